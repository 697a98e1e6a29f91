"""Settings of replication: those of RocketMQ's master/slave pairs, and who may use the replication port."""

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path

from ariane.errors import SettingsError
from ariane.model.address import Address
from ariane.settings import Key, Secret, setting

KiB = 1024
MiB = 1024 * KiB

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationSettings:
    port: int = setting(
        0,
        minimum=0,
        maximum=65_535,
        doc="Port where a master waits for its slaves. 0 is listenPort + 1. The key haListenPort is accepted and "
        "ignored, as by Apache 4, which always takes listenPort + 1.",
    )
    advertised_host: str | None = setting(
        None,
        key="brokerIP2",
        doc="Address of the replication port that slaves get from the nameserver. Default: brokerIP1.",
    )
    master_address: str | None = setting(
        None,
        key="haMasterAddress",
        doc="For a slave: HOST:PORT of its master's replication port. Default: what the nameserver says.",
    )
    heartbeat_interval_s: float = setting(
        5.0,
        key=Key("haSendHeartbeatInterval", per_unit=1000),
        minimum=0.01,
        maximum=600,
        doc="A master without news, and a slave, send something at least this often.",
    )
    housekeeping_interval_s: float = setting(
        20.0,
        key=Key("haHousekeepingInterval", per_unit=1000),
        minimum=0.05,
        maximum=3600,
        doc="A connection on which nothing arrived for this long is closed. Apache's slaves send their first report "
        "only after 5 s.",
    )
    batch_bytes: int = setting(
        32 * KiB,
        key="haTransferBatchSize",
        minimum=1 * KiB,
        maximum=4 * MiB - 12,
        doc="Most bytes of the log in one frame to a slave of Apache. Slaves of Ariane get up to 256 KiB.",
    )
    fall_behind_bytes_max: int = setting(
        256 * MiB,
        key="haSlaveFallbehindMax",
        minimum=1,
        doc="A SYNC_MASTER whose slaves are all further behind does not wait for them: SLAVE_NOT_AVAILABLE.",
    )
    slave_timeout_s: float = setting(
        3.0,
        key=Key("slaveTimeout", per_unit=1000),
        minimum=0.001,
        maximum=600,
        doc="How long a SYNC_MASTER waits until a slave has a message; then FLUSH_SLAVE_TIMEOUT: it is stored here.",
    )
    offset_check_in_slave: bool = setting(
        False,
        key="offsetCheckInSlave",
        doc="Whether a slave moves a consumer whose offset is outside of its queue. By default it is asked to try "
        "again, since the slave may only be behind.",
    )
    catch_up_mib_s: float = setting(
        100.0,
        minimum=0.1,
        maximum=100_000,
        doc="How fast a slave gets what is not in memory any more, in MiB/s, so that producers keep the disk.",
    )
    allowed_peers: str | None = setting(
        None,
        doc="Addresses or networks of slaves, separated by commas, for the protocol of RocketMQ 4.x, which has no "
        "authentication. Others on this machine are always allowed; all the rest need secret_file at both ends.",
    )
    secret_file: Path | None = setting(
        None,
        doc="File with the secret that masters and slaves of Ariane prove to each other that they know. A slave with "
        "one speaks only to a master that has the same.",
    )
    tls: bool = setting(
        False,
        doc="Whether a slave connects to its master's replication port with TLS, and presents its own certificate "
        "(tls.certificate) if it has one. The port takes TLS as the main port does.",
    )
    tls_trust: Path | None = setting(
        None, doc="PEM file that the master's certificate is verified against. Default: the system's certificates."
    )
    access_key: str | None = setting(
        None,
        doc="Account that a slave's requests for topics, groups and offsets are signed with, at a master with access "
        "control. It is an administrator there.",
    )
    secret_key: Secret | None = setting(None, doc="The secret of that account.")

    def __post_init__(self) -> None:
        self.allowed_networks  # noqa: B018 - an invalid address is reported now, not when a slave connects
        if self.master_address is not None:
            _check_address(self.master_address)
        if (self.access_key is None) != (self.secret_key is None):
            raise SettingsError("replication.access_key and replication.secret_key come together: set both or none")

    @property
    def allowed_networks(self) -> tuple[Network, ...]:
        return tuple(_network(word.strip()) for word in (self.allowed_peers or "").split(",") if word.strip())

    def secret(self) -> bytes | None:
        """The content of `secret_file`, read now. SettingsError when it cannot be used."""
        if self.secret_file is None:
            return None
        try:
            secret = self.secret_file.read_bytes().strip()
        except OSError as error:
            raise SettingsError(f"replication.secret_file {self.secret_file}: {error.strerror}") from error
        if len(secret) < _SECRET_BYTES_MIN:
            raise SettingsError(
                f"replication.secret_file {self.secret_file} has {len(secret)} bytes: a secret of at least "
                f"{_SECRET_BYTES_MIN} is needed, for example from `openssl rand -hex 32`"
            )
        return secret


_SECRET_BYTES_MIN = 16


def _check_address(text: str) -> None:
    try:
        address = Address.parse(text)
    except ValueError as error:
        raise SettingsError(f"haMasterAddress: {error}") from error
    if not address.host or not address.port:
        raise SettingsError(f"haMasterAddress: {text!r} has no host or no port; an example is 10.0.0.1:10912")


def _network(word: str) -> Network:
    try:
        return ip_network(word, strict=False)
    except ValueError as error:
        raise SettingsError(f"replication.allowed_peers: {error}; separate addresses and networks by commas") from error
