"""Listening sockets, the socket options of every connection, and the file-descriptor limit."""

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Callable

from ariane.errors import ListenFailed
from ariane.model.address import Address

log = logging.getLogger(__name__)

ANOTHER_ADDRESS = "another address with --listen HOST:PORT"
_RESERVED_FILES = 64  # for the process itself: log, store, outgoing connections
_KEEPALIVE_PROBES = 4
_KEEPALIVE_INTERVAL_S = 15
_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


def listen(address: Address, backlog: int) -> socket.socket:
    try:
        family, *_ = socket.getaddrinfo(address.host or "0.0.0.0", address.port, type=socket.SOCK_STREAM)[0]  # noqa: S104
        listener = socket.create_server((address.host, address.port), family=family, backlog=backlog)
    except OSError as error:
        raise listen_failed(address, error) from error
    listener.setblocking(False)
    return listener


def listen_failed(address: Address, error: OSError, note: str = "") -> ListenFailed:
    """The error with a hint how to fix it; `note` says what the address is for, where that is not obvious."""
    if error.errno == errno.EADDRINUSE:
        hint = f"Stop the server that holds the port, or choose {ANOTHER_ADDRESS}."
    elif error.errno == errno.EACCES:
        hint = f"Ports below 1024 are for the superuser: choose {ANOTHER_ADDRESS}."
    else:
        hint = f"It has to be an address of this machine: choose {ANOTHER_ADDRESS}."
    return ListenFailed(f"cannot listen on {address}{note}: {error.strerror}. {hint}")


async def accept_forever(listener: socket.socket, accept: Callable[[socket.socket, str], None]) -> None:
    """Calls `accept` with each new connection and the IP address of its peer."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            accepted, address = await loop.sock_accept(listener)
        except OSError as error:
            if error.errno in _OUT_OF_RESOURCES:
                log.warning("cannot accept connections: out of files or memory", extra={"error": str(error)})
                await asyncio.sleep(0.1)
            elif error.errno != errno.ECONNABORTED:  # the peer closed before it was accepted: not our error
                raise
            continue
        accept(accepted, address[0])


def set_options(peer: socket.socket, keepalive_idle_s: int) -> None:
    """TCP_NODELAY for small responses; keep-alive probes detect peers that vanished without closing."""
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, keepalive_idle_s)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL_S)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)


def connection_limit(requested: int) -> int:
    """`requested`, or what the process can open after raising its soft file limit as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = requested + _RESERVED_FILES
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(requested, soft - _RESERVED_FILES)
