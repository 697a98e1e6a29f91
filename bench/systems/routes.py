"""Waits until a nameserver knows the brokers: after a stop of both it may need the next registration."""

import socket
import struct

from bench.load.names import topic_name
from bench.load.plan import Wire
from bench.load.rocketmq import OPAQUE_FIRST, frame
from bench.load.wires import connect
from bench.systems.system import Running
from interop.processes import wait_until

GET_ROUTE = 105
REGISTERED_S = 45.0
"""A broker registers every 30 s."""


def await_route(running: Running) -> None:
    with connect(Wire.ROCKETMQ, running.nameserver) as peer:
        wait_until(lambda: _is_known(peer), f"{running.name}: route of the topic", REGISTERED_S)


def _is_known(peer: socket.socket) -> bool:
    peer.sendall(frame(GET_ROUTE, OPAQUE_FIRST, {b"topic": topic_name(0).encode()}, b""))
    (length,) = struct.unpack(">i", _read(peer, 4))
    return b'"code":0,' in _read(peer, length)


def _read(peer: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = peer.recv(count - len(data))
        if not chunk:
            raise ConnectionError("the nameserver closed a connection")
        data += chunk
    return data
