"""Listening sockets, and the socket options of every connection."""

import errno
import resource
import socket

from ariane.errors import ListenFailed
from ariane.model.address import Address

ANOTHER_ADDRESS = "another address with --listen HOST:PORT"
_SPARE_FILES = 64  # for the process itself: log, store, outgoing connections
_KEEPALIVE_PROBES = 4
_KEEPALIVE_INTERVAL_S = 15


def listen(address: Address, backlog: int) -> socket.socket:
    try:
        family, *_ = socket.getaddrinfo(address.host or "0.0.0.0", address.port, type=socket.SOCK_STREAM)[0]  # noqa: S104
        listener = socket.create_server((address.host, address.port), family=family, backlog=backlog)
    except OSError as error:
        raise listen_failed(address, error) from error
    listener.setblocking(False)
    return listener


def listen_failed(address: Address, error: OSError, note: str = "") -> ListenFailed:
    """With the cure for what is wrong; `note` tells what the address is for, where that is not plain."""
    if error.errno == errno.EADDRINUSE:
        cure = f"Stop the server that holds the port, or choose {ANOTHER_ADDRESS}."
    elif error.errno == errno.EACCES:
        cure = f"Ports below 1024 are for the superuser: choose {ANOTHER_ADDRESS}."
    else:
        cure = f"It has to be an address of this machine: choose {ANOTHER_ADDRESS}."
    return ListenFailed(f"cannot listen on {address}{note}: {error.strerror}. {cure}")


def set_options(peer: socket.socket, keepalive_idle_s: int) -> None:
    """No delay for small answers; the kernel notices peers that vanished without a word."""
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, keepalive_idle_s)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL_S)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)


def affordable_connections(wanted: int) -> int:
    """`wanted`, or what the process may open after raising its own soft limit as far as it is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _SPARE_FILES
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(wanted, soft - _SPARE_FILES)
