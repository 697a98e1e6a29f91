"""Client identity: the client id `ip@instance[@unit]`, by which brokers distinguish group members, and its signer.

What a client sends is signed as the server needs it (rpc/signing.py), one-way calls and heartbeats included.
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import closing

from ariane.client.settings import ClientSettings
from ariane.model.address import Address
from ariane.rpc.signing import Signer

_LOOPBACK = "127.0.0.1"


async def client_ip(settings: ClientSettings) -> str:
    """The local address from which the first nameserver that the network can route to is reached."""
    if settings.client_ip is not None:
        return settings.client_ip
    for nameserver in settings.nameserver_list:
        ip = await _address_towards(Address.parse(nameserver))
        if ip is not None:
            return ip
    return _LOOPBACK


def client_id(ip: str, settings: ClientSettings) -> str:
    """Must be unique: two clients of one group with the same id would consume the same queues.

    A process id alone is not enough: processes in containers that share an address are all number 1.
    """
    instance = settings.instance_name or f"{os.getpid()}#{time.monotonic_ns()}"
    return "@".join(part for part in (ip, instance, settings.unit_name) if part)


async def _address_towards(address: Address) -> str | None:
    """Connecting a datagram socket sends nothing, but chooses the address that a packet would leave from."""
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_DGRAM)
        return _source_address(infos)
    except OSError:  # no such host, or no network: the nameserver may come later
        return None


def _source_address(infos: Sequence[tuple[int, int, int, str, tuple[object, ...]]]) -> str:
    family, kind, protocol, _, target = infos[0]
    with closing(socket.socket(family, kind, protocol)) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])


def signer_of(settings: ClientSettings, now_ms: Callable[[], int]) -> Signer | None:
    """None for a client without an access key."""
    if settings.access_key is None or settings.secret_key is None:
        return None
    return Signer(settings.access_key, settings.secret_key, now_ms, settings.security_token)
