"""The two ports of a broker: the main one, and the VIP port two below it.

Both are bound before the store is opened, so that a port in use is told at once and not after a recovery of minutes,
and so that nobody else takes one half of a free pair. Binding is not listening: no client is let in yet.
"""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from ariane.broker.settings import VIP_PORT_DISTANCE
from ariane.errors import ListenFailed
from ariane.model.address import Address
from ariane.transport.listener import listen_failed

_ATTEMPTS = 100
_VIP = f" (the VIP port, {VIP_PORT_DISTANCE} below the main one)"


@dataclass(frozen=True, slots=True)
class Reservation:
    port: int
    _held: ExitStack

    def release(self) -> None:
        """Just before the servers listen on the ports themselves."""
        self._held.close()


@contextmanager
def reserved_ports(host: str, port: int) -> Iterator[Reservation]:
    """Holds `port` and its VIP port, or a free pair for port 0. ListenFailed when one is taken."""
    with ExitStack() as held:
        yield Reservation(_hold_pair(host, port, held), held)


def _hold_pair(host: str, port: int, held: ExitStack) -> int:
    if port:
        held.enter_context(_bind(Address(host, port), ""))
        held.enter_context(_bind(Address(host, port - VIP_PORT_DISTANCE), _VIP))
        return port
    for _ in range(_ATTEMPTS - 1):
        try:
            return _hold_free_pair(host, held)
        except ListenFailed:
            continue
    return _hold_free_pair(host, held)


def _hold_free_pair(host: str, held: ExitStack) -> int:
    with ExitStack() as pair:
        main = pair.enter_context(_bind(Address(host, 0), ""))
        port: int = main.getsockname()[1]
        pair.enter_context(_bind(Address(host, port - VIP_PORT_DISTANCE), _VIP))
        held.enter_context(pair.pop_all())
    return port


def _bind(address: Address, note: str) -> socket.socket:
    try:
        family, *_ = socket.getaddrinfo(address.host or "0.0.0.0", address.port, type=socket.SOCK_STREAM)[0]  # noqa: S104
    except socket.gaierror as error:
        raise listen_failed(address, error, note) from error
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port of a broker that has just stopped is free
        bound.bind((address.host, address.port))
    except OSError as error:
        bound.close()
        raise listen_failed(address, error, note) from error
    return bound
