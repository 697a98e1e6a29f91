"""Transport settings: limits and timeouts of connections, and TLS. Each default comes with its reason."""

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
        256 * KiB,
        minimum=1 * KiB,
        maximum=1 * MiB,
        doc="Longest header of a request whose fields are read; a longer one, up to the frame's limit, is answered "
        "with an error code. A header is parsed before the peer is authenticated, so the limit is small; the largest "
        "that clients send hold the properties of a message, 32 KiB, which JSON escapes to at most 192 KiB.",
    )
    first_frame_timeout_s: float = setting(
        5.0,
        minimum=0.1,
        maximum=3600,
        doc="Time from connecting, TLS handshake included, to the first complete frame. Clients connect in order to "
        "send, so a peer that stays silent is not a client.",
    )
    frame_timeout_s: float = setting(
        10.0,
        minimum=0.1,
        maximum=3600,
        doc="Time from the first byte of a frame to its last: 16 MiB at 13 Mbit/s. Closes connections of peers that "
        "send byte by byte.",
    )
    idle_timeout_s: float = setting(
        120.0,
        key="serverChannelMaxIdleTimeSeconds",
        minimum=1,
        maximum=86_400,
        doc="A connection without traffic in either direction for this long is closed. Clients send a heartbeat "
        "every 30 s.",
    )
    in_flight_max: int = setting(
        1024,
        minimum=1,
        maximum=65_535,
        doc="Requests of one connection that a server handles at the same time; further ones are read when some "
        "are done.",
    )
    calls_max: int = setting(
        65_535,
        minimum=1,
        maximum=1_000_000,
        doc="For clients: requests that may wait for their responses on one connection; one more fails "
        "immediately. As many as Apache's clients allow.",
    )
    write_buffer_bytes_max: int = setting(
        4 * MiB,
        key=Key("writeBufferHighWaterMark", zero_is_default=True),
        minimum=64 * KiB,
        maximum=1024 * MiB,
        doc="Bytes of responses buffered for a slow reader. Above it no more requests are read from the connection. In "
        "a properties file 0 stands for the default, as in Apache.",
    )
    memory_bytes_max: int = setting(
        256 * MiB,
        minimum=32 * MiB,
        maximum=1024 * 1024 * MiB,
        doc="Memory that all connections of a server may hold together: frames half received, responses not yet read, "
        "pulls that wait (three quarters at most). At the limit the connection that holds the most for the longest "
        "time is closed. Small requests are not affected.",
    )
    connections_max: int = setting(
        10_000,
        minimum=1,
        maximum=1_000_000,
        doc="Most open connections. Each needs a file descriptor: raise the hard limit (`ulimit -Hn`) along with it.",
    )
    connections_per_address_max: int = setting(
        0,
        minimum=0,
        maximum=1_000_000,
        doc="Most open connections from one IP address, so that one host cannot use up all. 0: half of all, 5,000 "
        "unless the limit of files is lower: enough for a thousand pods behind a NAT that all reconnect. Raise it when "
        "nearly all clients come through one proxy.",
    )
    backlog: int = setting(
        1024,
        key="serverSocketBacklog",
        minimum=1,
        maximum=65_535,
        doc="Connections that the kernel queues until they are accepted: enough for a fleet that reconnects at the "
        "same time. Linux caps it at net.core.somaxconn.",
    )
    keepalive_idle_s: int = setting(
        60,
        minimum=1,
        maximum=32_767,
        doc="Idle time after which the kernel probes whether the peer is still there: half of the idle timeout.",
    )
    drain_timeout_s: float = setting(
        1.5,
        minimum=0,
        maximum=3600,
        doc="On shutdown, time for requests in flight to finish. Short enough that a shutdown takes less than two "
        "seconds.",
    )
    connect_timeout_s: float = setting(
        3.0,
        minimum=0.1,
        maximum=3600,
        doc="For clients: time for opening a connection, TLS handshake included. The same as in Apache's clients.",
    )
    call_timeout_s: float = setting(
        3.0,
        minimum=0.1,
        maximum=3600,
        doc="For clients: time for the response to a request that does not set its own timeout. The same as in "
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
        doc="disabled: plain connections only. permissive: both kinds on the same port, distinguished by their "
        "first byte; TLS needs a certificate. enforcing: TLS only. The default is Apache's, so that clients "
        "can switch to TLS one by one.",
    )
    certificate: Path | None = setting(
        None,
        key="tls.server.certPath",
        doc="PEM file with the server's certificate and its chain. Without it TLS connections are refused: unlike "
        "Apache, Ariane never generates a certificate, because no client could verify it.",
    )
    key: Path | None = setting(
        None,
        key="tls.server.keyPath",
        doc="PEM file with the private key of the certificate.",
    )
    key_password: Secret | None = setting(
        None,
        key="tls.server.keyPassword",
        doc="Password of an encrypted private key. Better set by an environment variable than in a file. Never "
        "shown, logged or sent.",
    )
    trust: Path | None = setting(
        None,
        key="tls.server.trustCertPath",
        doc="PEM file with the certificates that client certificates are verified against.",
    )
    client_authentication: ClientAuthentication = setting(
        ClientAuthentication.NONE,
        key="tls.server.need.client.auth",
        doc="Whether clients need a certificate. optional: a certificate that is sent must verify. require: "
        "connections without one are refused. Both need trust.",
    )

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise SettingsError(
                "tls.certificate (tls.server.certPath) and tls.key (tls.server.keyPath) must be set together; "
                f"{'tls.certificate' if self.certificate is None else 'tls.key'} is missing"
            )
        if self.mode is TlsMode.ENFORCING and self.certificate is None:
            raise SettingsError("tls.mode is enforcing, which needs tls.certificate and tls.key: set their PEM files")
        if self.client_authentication is not ClientAuthentication.NONE and self.trust is None:
            raise SettingsError(
                f"tls.client_authentication is {self.client_authentication}, which needs tls.trust "
                "(tls.server.trustCertPath): set the PEM file that client certificates are verified against"
            )
