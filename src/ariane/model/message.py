"""Messages before they are sent and after they are stored, and the property names that RocketMQ reserves."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from ipaddress import IPv4Address, IPv6Address
from typing import TypedDict

import msgspec

from ariane.model.ids import PhysicalOffset, QueueOffset


class Property:
    """Reserved property names; user properties may not use them. Plain strings: they are looked up for each message."""

    KEYS = "KEYS"
    TAGS = "TAGS"
    WAIT = "WAIT"
    DELAY = "DELAY"
    RETRY_TOPIC = "RETRY_TOPIC"
    REAL_TOPIC = "REAL_TOPIC"
    REAL_QUEUE_ID = "REAL_QID"
    TRANSACTION_PREPARED = "TRAN_MSG"
    PRODUCER_GROUP = "PGROUP"
    MIN_OFFSET = "MIN_OFFSET"
    MAX_OFFSET = "MAX_OFFSET"
    BUYER_ID = "BUYER_ID"
    ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
    TRANSFER_FLAG = "TRANSFER_FLAG"
    CORRECTION_FLAG = "CORRECTION_FLAG"
    MQ2_FLAG = "MQ2_FLAG"
    RECONSUME_TIME = "RECONSUME_TIME"
    MSG_REGION = "MSG_REGION"
    TRACE_SWITCH = "TRACE_ON"
    UNIQUE_KEY = "UNIQ_KEY"
    MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
    CONSUME_START_TIME = "CONSUME_START_TIME"
    TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
    TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
    CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    INSTANCE_ID = "INSTANCE_ID"
    CORRELATION_ID = "CORRELATION_ID"
    REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
    TTL = "TTL"
    MESSAGE_TYPE = "MSG_TYPE"
    ARRIVE_TIME = "ARRIVE_TIME"
    PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
    CLUSTER = "CLUSTER"
    SHARDING_KEY = "__SHARDINGKEY"
    TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
    TIMER_DELAY_MS = "TIMER_DELAY_MS"
    TIMER_DELAY_SEC = "TIMER_DELAY_SEC"


RESERVED_PROPERTIES = frozenset(value for name, value in vars(Property).items() if name.isupper())


class HostPort(msgspec.Struct, frozen=True):
    """The address of the producer (born host) or of the broker (store host) of a message."""

    ip: IPv4Address | IPv6Address
    port: int

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if self.ip.version == 6 else f"{self.ip}:{self.port}"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message to send. A msgspec Struct, because creating a dataclass takes six times as long.

    What RocketMQ stores in reserved properties has a field of its own here, so `properties` holds only user properties.
    """

    topic: str
    body: bytes
    tags: str | None = None
    """One tag that consumers can filter by."""
    keys: str | Sequence[str] = ()
    """Keys that the message can be queried by; in a single string they are separated by spaces."""
    properties: Mapping[str, str] = {}
    sharding_key: str | None = None
    """Messages with the same sharding key go to the same queue, and so stay in order."""
    delay_level: int = 0
    """From 1: the broker delays delivery, by its table of levels (1s 5s 10s 30s 1m ...)."""
    deliver_at: datetime | int | None = None
    """When to deliver: a time-zone aware datetime, or milliseconds since 1970."""
    wait_stored: bool = True
    """False: the broker responds without waiting for its disk and its slaves, whatever its settings are."""
    flag: int = 0

    @property
    def key_list(self) -> tuple[str, ...]:
        """The keys as a tuple, whichever form they were given in."""
        return split_keys(self.keys) if isinstance(self.keys, str) else tuple(self.keys)


class MessageFields(TypedDict, total=False):
    """The optional fields of a Message, for functions that take them as keyword arguments."""

    tags: str | None
    keys: str | Sequence[str]
    properties: Mapping[str, str]
    sharding_key: str | None
    delay_level: int
    deliver_at: datetime | int | None
    wait_stored: bool
    flag: int


class StoredMessage(msgspec.Struct, frozen=True):
    """A message as a broker stores it. `body` is compressed if `sys_flag` says so.

    Use keyword arguments. Only the decoder of pull responses passes the fields by position: that takes a third of the
    time.
    """

    topic: str
    body: bytes
    queue_id: int
    queue_offset: QueueOffset
    physical_offset: PhysicalOffset
    sys_flag: int
    born_timestamp_ms: int
    born_host: HostPort
    store_timestamp_ms: int
    store_host: HostPort
    properties: dict[str, str] = {}
    flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body_crc: int = 0
    stored_size: int = 0

    @property
    def tags(self) -> str | None:
        return self.properties.get(Property.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        return split_keys(self.properties.get(Property.KEYS, ""))

    @property
    def unique_key(self) -> str | None:
        return self.properties.get(Property.UNIQUE_KEY)


def split_keys(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(" ")))
