"""NATS JetStream: publishes with an acknowledgement each, and reads of consecutive messages by sequence number.

Every connection has an inbox of its own, `_INBOX.<connection>.*`, whose last word is the number of the row.
"""

import json
import re
import socket
from collections.abc import Iterator, Sequence

from bench.load.names import STREAM, subject
from bench.load.plan import Kind, LoadPlan
from bench.load.ring import CONNECTION, Ring
from bench.load.rocketmq import ROWS_MIN, body_of

_ACK = re.compile(rb"\r\nMSG _INBOX\.\d+\.(\d{6}) 1 \d+\r\n(?=\{)")
_ERROR = re.compile(rb'"error":.{0,200}', re.DOTALL)
# The message that ends a run; a read past the end of the stream is a 404.
_RUN_END = re.compile(rb"HMSG _INBOX\.\d+\.(\d{6}) 1 \d+ \d+\r\nNATS/1\.0 (204|4\d\d)")


def greet(peer: socket.socket, connection: int) -> None:
    """Connects and subscribes to the inbox; the PONG confirms that the server has read both."""
    options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "lang": "python"}
    peer.sendall(b"CONNECT %s\r\nSUB _INBOX.%03d.* 1\r\nPING\r\n" % (json.dumps(options).encode(), connection))
    received = b""
    while b"PONG\r\n" not in received:
        received += peer.recv(65_536)


def ring_of(plan: LoadPlan) -> Ring:
    return Ring(list(_reads(plan) if plan.kind is Kind.PULL else _publishes(plan)))


def _publishes(plan: LoadPlan) -> Iterator[bytes]:
    body = body_of(plan.body_bytes)
    targets = plan.topics * plan.queues
    for row in range(targets * -(-ROWS_MIN // targets)):
        name = subject(row % plan.topics, row // plan.topics % plan.queues).encode()
        yield _publish(name, row, body)


def _reads(plan: LoadPlan) -> Iterator[bytes]:
    """A direct get needs no consumer: like a pull, it has a start and a count."""
    count = plan.messages_a_request
    for row in range(plan.filled * plan.queues // count - 1):
        request = b'{"seq":%d,"batch":%d}' % (1 + row * count, count)
        yield _publish(
            f"$JS.API.DIRECT.GET.{STREAM}".encode(), row, request.ljust(40)
        )  # JSON may be followed by blanks


def _publish(name: bytes, row: int, body: bytes) -> bytes:
    return b"PUB %s _INBOX.%s.%06d %d\r\n%s\r\n" % (name, CONNECTION, row, len(body), body)


class PublishResponses:
    def __init__(self) -> None:
        self.messages = 0
        self.refused = 0
        self.first_error = ""
        # The pattern begins with the end of what came before, so the first response needs one, too.
        self._rest = b"\r\n"

    def sent(self, begin: int, end: int) -> None:
        """An acknowledgement contains the number of its row."""

    def feed(self, data: bytes) -> Sequence[int]:
        data = self._rest + data
        answered: list[int] = []
        seen_to = 0
        for match in _ACK.finditer(data):
            answered.append(int(match.group(1)))
            seen_to = match.end()
        self._note_errors(data, seen_to)
        self._rest = data[seen_to:]
        return answered

    def _note_errors(self, data: bytes, seen_to: int) -> None:
        count = data.count(b'"error":', 0, seen_to)
        if count:
            self.refused += count
            received = _ERROR.search(data)
            self.first_error = self.first_error or (received.group().decode(errors="replace") if received else "")


class ReadResponses:
    def __init__(self, messages_a_read: int) -> None:
        self.messages = 0
        self.refused = 0
        self.first_error = ""
        self._messages_a_read = messages_a_read
        self._rest = b""

    def sent(self, begin: int, end: int) -> None:
        """The end of a read contains the number of its row."""

    def feed(self, data: bytes) -> Sequence[int]:
        data = self._rest + data
        answered: list[int] = []
        seen_to = max(len(data) - 200, 0)
        for match in _RUN_END.finditer(data):
            answered.append(int(match.group(1)))
            seen_to = max(match.end(), seen_to)
            self._note(match.group(2), match.group())
        self._rest = data[seen_to:]
        return answered

    def _note(self, status: bytes, line: bytes) -> None:
        if status == b"204":
            self.messages += self._messages_a_read
        else:
            self.refused += 1
            self.first_error = self.first_error or line.decode(errors="replace")
