"""Ports that are bound before a server is ready to listen on them.

A port in use is then reported at once and not after a recovery of minutes, and no other process takes one of a free set
in between. Binding is not listening: no client is accepted yet.
"""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from ariane.errors import ListenFailed
from ariane.model.address import Address
from ariane.transport.listener import listen_failed

_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class PortSet:
    """A main port, and others that go with it. Main port 0 stands for a free set."""

    host: str
    port: int
    others: tuple[tuple[int, bool, str], ...] = ()

    def with_distance(self, distance: int, note: str) -> "PortSet":
        """With a port so far from the main one; `note` says what it is for."""
        return replace(self, others=(*self.others, (distance, True, note)))

    def with_port(self, port: int, note: str) -> "PortSet":
        return replace(self, others=(*self.others, (port, False, note)))


@dataclass(frozen=True, slots=True)
class Reservation:
    port: int
    _held: ExitStack

    def release(self) -> None:
        """Just before the servers listen on the ports themselves."""
        self._held.close()


@contextmanager
def reserved_ports(ports: PortSet) -> Iterator[Reservation]:
    """Holds all of them. ListenFailed when one is taken."""
    with ExitStack() as held:
        yield Reservation(_hold_all(ports, held), held)


def _hold_all(ports: PortSet, held: ExitStack) -> int:
    for _ in range(0 if ports.port else _ATTEMPTS - 1):
        try:
            return _hold(ports, held)
        except ListenFailed:
            continue
    return _hold(ports, held)


def _hold(ports: PortSet, held: ExitStack) -> int:
    with ExitStack() as bound:
        main: int = bound.enter_context(_bind(Address(ports.host, ports.port), "")).getsockname()[1]
        for number, is_distance, note in ports.others:
            bound.enter_context(_bind(Address(ports.host, main + number if is_distance else number), f" ({note})"))
        held.enter_context(bound.pop_all())
    return main


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
