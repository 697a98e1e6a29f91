"""The state of replication, as a broker tells it to operators.

The fields of 5.x have its names, and its tools print them. Those that Ariane adds are None, or empty, in a response of
Apache; its tools ignore them.
"""

from msgspec import field

from ariane.wire.codes import RequestCode
from ariane.wire.exchange import ServedBy, request
from ariane.wire.fields import Request, Response
from ariane.wire.json.body import JsonBody


class SlaveConnection(JsonBody, frozen=True):
    """A slave that is connected to a master."""

    addr: str = ""
    """Where the connection comes from: not the slave's address in the route."""
    slave_ack_offset: int = 0
    """Where its log ends, by its last report."""
    diff: int = 0
    """How many bytes it is behind."""
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0
    """The next byte of the log to send."""
    broker_id: int | None = None
    """None for a slave of Apache, which does not say it on this connection."""
    connected_timestamp: int | None = None
    dispatched_offset: int | None = None
    """How far consumers can read there."""
    behind_millis: int | None = None
    """How long ago it had everything; 0 if it has."""


class LostConnection(JsonBody, frozen=True):
    """A slave that is not connected any more, or a peer that the master refused."""

    addr: str = ""
    broker_id: int | None = None
    lost_timestamp: int = 0
    reason: str | None = None
    """Why the master closed it; None if the other end did."""
    slave_ack_offset: int | None = None
    """None for a peer that was refused."""
    behind_millis: int | None = None


class MasterConnection(JsonBody, frozen=True):
    """A slave's connection to its master; without `connected_timestamp` there is none, if it is a slave of Ariane."""

    master_addr: str | None = None
    """The master's replication port."""
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    """Where the slave's log ends."""
    last_read_timestamp: int | None = None
    last_write_timestamp: int | None = None
    master_flush_offset: int | None = None
    """What the master has synced; None if it does not say that."""
    connected_timestamp: int | None = None
    dispatched_offset: int | None = None
    behind_bytes: int | None = None
    behind_millis: int | None = None
    reason: str | None = None
    """Why it is not connected."""
    metadata_timestamp: int | None = None
    """When topics, groups and offsets were last copied from the master."""
    metadata_failure: str | None = None


class HaStatus(JsonBody, frozen=True):
    master: bool = False
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    """How many slaves are behind by less than `haSlaveFallbehindMax`."""
    ha_connection_info: list[SlaveConnection] = []
    ha_client_runtime_info: MasterConnection = MasterConnection()
    broker_role: str | None = None
    """None from a broker of Apache."""
    lost_connections: list[LostConnection] = []


class HaStatusResponse(Response, frozen=True):
    body: HaStatus = field(default_factory=HaStatus)


@request(RequestCode.GET_BROKER_HA_STATUS, served_by=ServedBy.BROKER)
class GetHaStatus(Request[HaStatusResponse], frozen=True):
    """From 5.x; brokers of 4.x respond with REQUEST_CODE_NOT_SUPPORTED."""
