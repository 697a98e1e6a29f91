"""The address that clients are told: found when it is not given, and checked before anybody is sent there.

A wrong one is the classic trap of brokers behind containers and several network cards: clients get their route and then
cannot connect. What can be known here is refused or told in the log.
"""

import asyncio
import logging
import re
import socket
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, ip_address

from ariane.broker.settings import BrokerSettings
from ariane.errors import SettingsError
from ariane.model.address import Address
from ariane.model.message import HostPort
from ariane.wire.host import encode_host

log = logging.getLogger(__name__)

# With a letter: a name of digits and dots is an address with a part missing, which systems complete in odd ways.
_HOST_NAME = re.compile(r"(?=[0-9._-]*[A-Za-z])[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?")
_ANYWHERE = Address("192.0.2.1", 9)  # an address of documentation: asks for the default route, nothing is sent there
_CURE = "set brokerIP1 in the settings file, or --advertise HOST, to an address of this machine that clients reach"

IpAddress = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Placed:
    """A broker that knows its place: settings with the real port and address, and the host of its message ids."""

    settings: BrokerSettings
    store_host: bytes


async def place(settings: BrokerSettings, port: int) -> Placed:
    """`settings` completed for a broker that listens on `port`. SettingsError when no address can be told."""
    host = settings.advertised_host or await _host_to_tell(settings)
    address = await _resolve(host)
    if address.is_unspecified or address.is_multicast:
        raise SettingsError(f"brokerIP1 = {host} is no address that a client can connect to: {_CURE}")
    placed = replace(settings, port=port, advertised_host=host)
    _warn_of_traps(placed, address)
    return Placed(placed, encode_host(HostPort(address, placed.advertised.port)))


async def _host_to_tell(settings: BrokerSettings) -> str:
    if not _is_every_address(settings.host):
        return settings.host
    targets = [Address.parse(text) for text in settings.nameservers] or [_ANYWHERE]
    for target in targets:
        source = await _source_towards(target)
        if source is not None:
            return source
    raise SettingsError(
        f"listening on {settings.host}, but no route leads to {' or '.join(map(str, targets))}, so which address "
        f"clients can use is not known: {_CURE}"
    )


def _is_every_address(host: str) -> bool:
    try:
        return not host or ip_address(host).is_unspecified
    except ValueError:
        return False


async def _source_towards(target: Address) -> str | None:
    """The address of ours from which `target` would be reached. Connecting a UDP socket only looks up the route."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(target.host, target.port, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, name = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(name)
            source: str = probe.getsockname()[0]
    except OSError:
        return None
    return source


async def _resolve(host: str) -> IpAddress:
    try:
        return ip_address(host)
    except ValueError:
        pass
    try:
        if _HOST_NAME.fullmatch(host) is None:
            raise OSError("not a host name")
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SettingsError(
            f"brokerIP1 = {host[:255]!r} is neither an IP address nor a name that resolves ({error}): {_CURE}"
        ) from error
    addresses = [ip_address(name[0]) for *_, name in found]
    # IPv4 first: C++ and Node clients cannot read message ids that hold an IPv6 address.
    return min(addresses, key=lambda address: address.version)


def _warn_of_traps(settings: BrokerSettings, address: IpAddress) -> None:
    told = {"advertised": str(settings.advertised), "listening": settings.host}
    if address.is_loopback and not all(map(_is_local, settings.nameservers)):
        log.warning("clients on other machines cannot reach the advertised address", extra=told | {"cure": _CURE})
    elif not address.is_loopback and _is_local(f"{settings.host}:0"):
        log.warning(
            "listening on this machine only, while clients are told another address",
            extra=told | {"cure": "listen on every address with bindAddress=0.0.0.0 or --listen 0.0.0.0:PORT"},
        )


def _is_local(address: str) -> bool:
    host = Address.parse(address).host
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
