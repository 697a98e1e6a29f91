"""Client settings, shared by producers, consumers and admins. Each default comes with its reason."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from ariane.errors import SettingsError
from ariane.model.address import Address
from ariane.settings import Key, Secret, setting
from ariane.transport.settings import TransportSettings

# Java clients accept a list with either separator, and an address with the scheme of their HTTP look-up.
_SEPARATORS = re.compile(r"[;,\s]+")
_SCHEME = re.compile(r"^https?://")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTlsSettings:
    enable: bool = setting(False, key="tls.enable", doc="Whether every connection of this client is TLS.")
    trust: Path | None = setting(
        None,
        key="tls.client.trustCertPath",
        doc="PEM file with the certificates that servers are verified against; the system's own when not set.",
    )
    certificate: Path | None = setting(
        None, key="tls.client.certPath", doc="PEM file with this client's certificate, for servers that want one."
    )
    key: Path | None = setting(None, key="tls.client.keyPath", doc="PEM file with the private key of the certificate.")
    verify: bool = setting(
        True,
        key="tls.client.authServer",
        doc="Whether the server's certificate is verified. Apache's default is off, which allows a man in the middle; "
        "switch it off only for a test.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    nameservers: str = setting(
        "127.0.0.1:9876",
        key="namesrvAddr",
        doc="Nameservers as HOST:PORT, several separated by semicolons. One is used until it fails, then the next.",
    )
    instance_name: str | None = setting(
        None,
        key="instanceName",
        doc="The middle part of the client id. Default: process id and time, which are unique. Set it if the id "
        "must outlive the process, as for broadcast offsets in files.",
    )
    unit_name: str | None = setting(None, key="unitName", doc="The last part of the client id.")
    unit_mode: bool = setting(False, key="unitMode", doc="Sent to brokers with each send and heartbeat.")
    client_ip: str | None = setting(
        None,
        key="clientIP",
        doc="The first part of the client id. Default: the local address from which the nameserver is reached.",
    )
    vip_channel: bool = setting(
        False,
        key="vipChannelEnabled",
        doc="Whether messages are sent to the broker's port - 2, which Apache's brokers keep free of pulls. Off, as "
        "in Apache's clients from 4.5.1 on: firewalls rarely allow that port.",
    )
    access_key: str | None = setting(None, key="accessKey", doc="The account that requests are signed for.")
    secret_key: Secret | None = setting(
        None, key="secretKey", doc="The key that requests are signed with. Never shown."
    )
    security_token: Secret | None = setting(None, key="securityToken", doc="A temporary token, if one is in use.")
    route_poll_interval_s: float = setting(
        30.0,
        key=Key("pollNameServerInterval", per_unit=1000),
        minimum=0.1,
        maximum=3600,
        doc="How often routes are refreshed. A failed send refreshes immediately.",
    )
    heartbeat_interval_s: float = setting(
        30.0,
        key=Key("heartbeatBrokerInterval", per_unit=1000),
        minimum=0.1,
        maximum=100,
        doc="How often heartbeats are sent; brokers drop a client after 120 s without one.",
    )
    offsets_save_interval_s: float = setting(
        5.0,
        key=Key("persistConsumerOffsetInterval", per_unit=1000),
        minimum=0.1,
        maximum=3600,
        doc="How often consumers save their offsets: what a crash repeats.",
    )
    nameserver_timeout_s: float = setting(
        3.0, minimum=0.1, maximum=3600, doc="Timeout of a request to a nameserver, before the next one is tried."
    )
    transport: TransportSettings = field(default_factory=TransportSettings)
    tls: ClientTlsSettings = field(default_factory=ClientTlsSettings)

    def __post_init__(self) -> None:
        if (self.access_key is None) != (self.secret_key is None):
            raise SettingsError("access_key (accessKey) and secret_key (secretKey) come together: set both or none")
        if not self.nameserver_list:
            raise SettingsError("nameservers is empty: give at least one HOST:PORT, for example 127.0.0.1:9876")

    @property
    def nameserver_list(self) -> tuple[str, ...]:
        """The addresses of the nameservers, validated."""
        try:
            return tuple(
                str(Address.parse(_SCHEME.sub("", text))) for text in _SEPARATORS.split(self.nameservers) if text
            )
        except ValueError as error:
            raise SettingsError(f"nameservers (namesrvAddr): {error}") from None


def settings_for(nameservers: str | Iterable[str] | None, settings: ClientSettings | None) -> ClientSettings:
    """`settings` with the first argument of every producer and consumer applied."""
    settings = settings or ClientSettings()
    if nameservers is None:
        return settings
    return replace(settings, nameservers=nameservers if isinstance(nameservers, str) else ";".join(nameservers))
