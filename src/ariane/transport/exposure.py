"""Who may reach a server: beyond this machine it listens only with access control, or if its settings say `insecure`.

A server without access control trusts every peer that can connect to it: they can read, write and administrate. So it
does not start on such an address by accident, and one that starts with `insecure` says so in its log every hour.
"""

import logging
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from ipaddress import IPv6Address, ip_address

from ariane.clock import Clock
from ariane.errors import SettingsError
from ariane.lifecycle import background, every

log = logging.getLogger(__name__)

WARNING_INTERVAL_S = 3600.0
_EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - what an empty host means


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`. Also for a name that does not resolve: nothing can listen on it."""
    try:
        found = socket.getaddrinfo(host or _EVERY_ADDRESS, None, type=socket.SOCK_STREAM)
    except OSError:
        return True
    return all(_is_loopback_address(str(name[0])) for *_, name in found)


def _is_loopback_address(text: str) -> bool:
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def exposed_hosts(hosts: Mapping[str, str], *, access_control: bool, insecure: bool) -> dict[str, str]:
    """The addresses beyond loopback of a server without access control, each with the setting that chose it.

    `hosts` are the server's addresses by setting. SettingsError, with the ways out, unless `insecure` accepts them.
    """
    exposed = {key: host for key, host in hosts.items() if not access_control and not is_loopback(host)}
    if exposed and not insecure:
        listens = " and ".join(f"{host or _EVERY_ADDRESS} ({key})" for key, host in exposed.items())
        raise SettingsError(
            f"refusing to listen on {listens} without access control: everybody who reaches it could read, write and "
            "administrate. Listen on 127.0.0.1, or switch access control on (aclEnable=true; `ariane acl init` writes "
            "a file of accounts), or accept the risk with --insecure (insecure=true)"
        )
    return exposed


@asynccontextmanager
async def exposure_logged(server: str, exposed: Mapping[str, str], clock: Clock) -> AsyncIterator[None]:
    """Warns now and every hour while the body runs, if `exposed` is not empty."""
    if not exposed:
        yield
        return
    warn = partial(
        log.warning,
        "listening beyond this machine without access control",
        extra={"server": server, "listening": ", ".join(host or _EVERY_ADDRESS for host in exposed.values())},
    )
    async with background(lambda: every(clock, WARNING_INTERVAL_S, warn, 0.0)):
        yield
