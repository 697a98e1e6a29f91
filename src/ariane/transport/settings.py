"""The limits and timeouts of every connection, and TLS. Each default comes with its reason."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ariane.errors import SettingsError
from ariane.settings import Key, Secret, setting

KiB = 1024
MiB = 1024 * KiB


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportSettings:
    frame_bytes_max: int = setting(
        16 * MiB,
        minimum=64 * KiB,
        maximum=16 * MiB,
        doc="Longest frame, in either direction. Apache's peers refuse more than 16 MiB, so nothing is gained "
        "above it.",
    )
    header_bytes_max: int = setting(
        64 * KiB,
        minimum=1 * KiB,
        maximum=1 * MiB,
        doc="Longest frame header. A header is parsed before anything is known of the peer, so it is kept small; "
        "the largest that clients send hold the properties of a message, at most 32 KiB.",
    )
    first_frame_timeout_s: float = setting(
        5.0,
        minimum=0.1,
        maximum=3600,
        doc="Time from connecting, TLS handshake included, to the first whole frame. Clients connect in order to "
        "send, so whoever stays silent is not one.",
    )
    frame_timeout_s: float = setting(
        10.0,
        minimum=0.1,
        maximum=3600,
        doc="Time from the first byte of a frame to its last: 16 MiB at 13 Mbit/s. Ends peers that drip bytes.",
    )
    idle_timeout_s: float = setting(
        120.0,
        key="serverChannelMaxIdleTimeSeconds",
        minimum=1,
        maximum=86_400,
        doc="A connection with no byte in either direction for this long is closed. Clients send a heartbeat "
        "every 30 s.",
    )
    in_flight_max: int = setting(
        1024,
        minimum=1,
        maximum=65_535,
        doc="Requests of one connection that may be waiting for their answers; further ones are read when some "
        "are done.",
    )
    calls_max: int = setting(
        65_535,
        minimum=1,
        maximum=1_000_000,
        doc="For the end that calls: requests that may wait for their answers on one connection; one more fails "
        "at once. As many as Apache's clients allow.",
    )
    write_buffer_bytes_max: int = setting(
        4 * MiB,
        key=Key("writeBufferHighWaterMark", zero_is_default=True),
        minimum=64 * KiB,
        maximum=1024 * MiB,
        doc="Answers waiting for a slow reader. Above it the connection's requests are no longer read. In a "
        "properties file 0 stands for the default, as it does for Apache.",
    )
    connections_max: int = setting(
        10_000,
        minimum=1,
        maximum=1_000_000,
        doc="Open connections. Each needs a file descriptor: raise the hard limit (`ulimit -Hn`) along with it.",
    )
    connections_per_address_max: int = setting(
        1_000,
        minimum=1,
        maximum=1_000_000,
        doc="Open connections from one IP address, so that one host cannot use up all. Raise it when clients "
        "share an address behind a NAT or a proxy.",
    )
    backlog: int = setting(
        1024,
        key="serverSocketBacklog",
        minimum=1,
        maximum=65_535,
        doc="Connections that the kernel holds until they are accepted: enough for a fleet that reconnects at "
        "once. Linux caps it at net.core.somaxconn.",
    )
    keepalive_idle_s: int = setting(
        60,
        minimum=1,
        maximum=32_767,
        doc="Silence after which the kernel probes whether the peer is still there: half of the idle timeout.",
    )
    drain_timeout_s: float = setting(
        1.5,
        minimum=0,
        maximum=3600,
        doc="On a stop, time for requests in hand to be answered. Short enough that a stop takes less than two "
        "seconds.",
    )
    connect_timeout_s: float = setting(
        3.0,
        minimum=0.1,
        maximum=3600,
        doc="For the end that calls: time for opening a connection, TLS handshake included. The same as in "
        "Apache's clients.",
    )
    call_timeout_s: float = setting(
        3.0,
        minimum=0.1,
        maximum=3600,
        doc="For the end that calls: time for the answer to a request that does not set its own. The same as in "
        "Apache's clients.",
    )

    def __post_init__(self) -> None:
        if self.header_bytes_max > self.frame_bytes_max:
            raise SettingsError(
                f"transport.header_bytes_max ({self.header_bytes_max}) is above transport.frame_bytes_max "
                f"({self.frame_bytes_max}); a header is part of its frame"
            )


class TlsMode(StrEnum):
    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuthentication(StrEnum):
    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    mode: TlsMode = setting(
        TlsMode.PERMISSIVE,
        key="tls.server.mode",
        doc="disabled: plain connections only. permissive: both kinds on the same port, told apart by their "
        "first byte; TLS needs a certificate. enforcing: TLS only. The default is Apache's, so that clients "
        "can change over one by one.",
    )
    certificate: Path | None = setting(
        None,
        key="tls.server.certPath",
        doc="PEM file with the server's certificate and its chain. Without it TLS is refused: unlike Apache we "
        "never make a certificate up, because no client could verify it.",
    )
    key: Path | None = setting(
        None,
        key="tls.server.keyPath",
        doc="PEM file with the private key of the certificate.",
    )
    key_password: Secret | None = setting(
        None,
        key="tls.server.keyPassword",
        doc="Password of an encrypted private key. Better given as a variable than in a file. Never shown, "
        "logged or sent.",
    )
    trust: Path | None = setting(
        None,
        key="tls.server.trustCertPath",
        doc="PEM file with the certificates that client certificates are verified against.",
    )
    client_authentication: ClientAuthentication = setting(
        ClientAuthentication.NONE,
        key="tls.server.need.client.auth",
        doc="Whether clients are asked for a certificate. optional: one that is shown must verify. require: "
        "without one there is no connection. Both need trust.",
    )

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise SettingsError(
                "tls.certificate (tls.server.certPath) and tls.key (tls.server.keyPath) come together; "
                f"{'tls.certificate' if self.certificate is None else 'tls.key'} is missing"
            )
        if self.mode is TlsMode.ENFORCING and self.certificate is None:
            raise SettingsError("tls.mode is enforcing, which needs tls.certificate and tls.key: name their PEM files")
        if self.client_authentication is not ClientAuthentication.NONE and self.trust is None:
            raise SettingsError(
                f"tls.client_authentication is {self.client_authentication}, which needs tls.trust "
                "(tls.server.trustCertPath): name the PEM file that client certificates are verified against"
            )
