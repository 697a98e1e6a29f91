"""Long polling in each protocol: requests that wait on the server until there is a message."""

import re
import socket
from dataclasses import dataclass

from bench.load.names import STREAM, stream_key, subject, topic_name
from bench.load.plan import Wire
from bench.load.redis import command
from bench.load.rocketmq import OPAQUE_FIRST, pull
from bench.load.wires import connect
from bench.systems.nats import request
from bench.systems.system import Running

SUSPEND_MS = 20_000
_XREAD_LINES = 13
"""Of a response with one message: counts and lengths, the key, the id, the field and the body."""
_NATS_MESSAGE = re.compile(rb"MSG bench\.")


@dataclass(frozen=True, slots=True)
class LongPoll:
    """A connection that waits for messages of one queue."""

    wire: Wire
    peer: socket.socket
    topic: int
    queue: int
    connection: int

    def send(self, offset: int) -> None:
        """Sends the request for the message at `offset`."""
        self.peer.sendall(self._request(offset))

    def _request(self, offset: int) -> bytes:
        if self.wire is Wire.ROCKETMQ:
            return pull(OPAQUE_FIRST + offset, topic_name(self.topic), self.queue, offset, 32, SUSPEND_MS)
        if self.wire is Wire.REDIS:
            words = (b"XREAD", b"BLOCK", b"%d" % SUSPEND_MS, b"STREAMS", stream_key(self.topic, self.queue).encode())
            return command(*words, b"$")
        body = b'{"batch":1,"expires":%d}' % (SUSPEND_MS * 1_000_000)
        name = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{_consumer(self.topic, self.queue)}".encode()
        return b"PUB %s _INBOX.%03d.000000 %d\r\n%s\r\n" % (name, self.connection, len(body), body)

    def read_message(self) -> None:
        """Waits for a response with a message."""
        data = b""
        while not self._has_message(data):
            chunk = self.peer.recv(65_536)
            if not chunk:
                raise ConnectionError("the server closed a connection that waited for a message")
            data += chunk

    def _has_message(self, data: bytes) -> bool:
        if self.wire is Wire.ROCKETMQ:
            return len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4], "big") and b'"code":0,' in data
        if self.wire is Wire.REDIS:
            return data.startswith(b"*1\r\n") and data.endswith(b"\r\n") and data.count(b"\r\n") >= _XREAD_LINES
        return _NATS_MESSAGE.search(data) is not None and data.endswith(b"\r\n") and data.count(b"\r\n") >= 2


def open_long_poll(running: Running, topic: int, queue: int, connection: int) -> LongPoll:
    address = running.addresses[0]
    if running.wire is Wire.NATS:
        _make_consumer(address, topic, queue)
    return LongPoll(running.wire, connect(running.wire, address, connection), topic, queue, connection)


def _make_consumer(address: str, topic: int, queue: int) -> None:
    """A consumer that starts with new messages and needs no acknowledgements, like a client with its own offset."""
    name = _consumer(topic, queue)
    settings = {
        "durable_name": name,
        "filter_subject": subject(topic, queue),
        "deliver_policy": "new",
        "ack_policy": "none",
    }
    request(address, f"CONSUMER.DURABLE.CREATE.{STREAM}.{name}", {"stream_name": STREAM, "config": settings})


def _consumer(topic: int, queue: int) -> str:
    return f"c{topic}-{queue}"
