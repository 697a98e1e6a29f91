"""Redis Streams: XADD with generated ids, and XRANGE from known ids. Responses arrive in order."""

import re
from collections import deque
from collections.abc import Iterator, Sequence

from bench.load.names import stream_key
from bench.load.plan import Kind, LoadPlan
from bench.load.ring import ROUND, Ring
from bench.load.rocketmq import ROWS_MIN, body_of

KEPT = 100_000
"""Maximum length of each stream, approximately: streams are in memory, and a long run would exhaust it."""
FILL_ROWS = 10_000
"""A power of ten: round and row are then the digits of one growing number."""

_ADDED = re.compile(rb"(?:\$\d+\r\n\d+-\d+|-[^\r]*)\r\n")
_NUMBER_FIRST = 100_000_000


def ring_of(plan: LoadPlan) -> Ring:
    rows = {Kind.SEND: _adds, Kind.FILL: _numbered_adds, Kind.PULL: _ranges}[plan.kind]
    return Ring(list(rows(plan)))


def _adds(plan: LoadPlan) -> Iterator[bytes]:
    body = body_of(plan.body_bytes)
    targets = plan.topics * plan.queues
    for row in range(targets * -(-ROWS_MIN // targets)):
        key = stream_key(row % plan.topics, row // plan.topics % plan.queues).encode()
        yield command(b"XADD", key, b"MAXLEN", b"~", b"%d" % KEPT, b"*", b"d", body)


def _numbered_adds(plan: LoadPlan) -> Iterator[bytes]:
    """Ids 1-100000000, 1-100000001, ..., for one connection that walks over the queues in turn."""
    body = body_of(plan.body_bytes)
    for row in range(FILL_ROWS):
        yield command(b"XADD", stream_key(0, row % plan.queues).encode(), b"1-1%s%04d" % (ROUND, row), b"d", body)


def _ranges(plan: LoadPlan) -> Iterator[bytes]:
    """A queue has every eighth id, so a run of 32 messages spans 256."""
    step = plan.messages_a_request * plan.queues
    for row in range((plan.filled // plan.messages_a_request - 1) * plan.queues):
        first = b"1-%d" % (_NUMBER_FIRST + row // plan.queues * step)
        count = b"%d" % plan.messages_a_request
        yield command(b"XRANGE", stream_key(0, row % plan.queues).encode(), first, b"+", b"COUNT", count)


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class _InOrder:
    """Rows that were sent and not answered yet."""

    def __init__(self) -> None:
        self.messages = 0
        self.refused = 0
        self.first_error = ""
        self._rest = b""
        self._waiting: deque[int] = deque()

    def sent(self, begin: int, end: int) -> None:
        self._waiting.extend(range(begin, end))

    def _next_rows(self, count: int) -> list[int]:
        popped = self._waiting.popleft
        return [popped() for _ in range(count)]


class AddResponses(_InOrder):
    def feed(self, data: bytes) -> Sequence[int]:
        data = self._rest + data
        responses = _ADDED.findall(data)
        # Responses are contiguous.
        self._rest = data[sum(map(len, responses)) :]
        errors = [response for response in responses if response.startswith(b"-")]
        if errors:
            self.refused += len(errors)
            self.first_error = self.first_error or errors[0].decode(errors="replace")
        return self._next_rows(len(responses))


class RangeResponses(_InOrder):
    """Ids and bodies have one length each, so all responses have the same length."""

    def __init__(self, messages_a_read: int, body_bytes: int) -> None:
        super().__init__()
        self._messages_a_read = messages_a_read
        entry = b"*2\r\n$11\r\n1-%d\r\n" % _NUMBER_FIRST + command(b"d", b"x" * body_bytes)
        self._response_bytes = len(b"*%d\r\n" % messages_a_read) + messages_a_read * len(entry)

    def feed(self, data: bytes) -> Sequence[int]:
        data = self._rest + data
        count = len(data) // self._response_bytes
        self._rest = data[count * self._response_bytes :]
        for index in range(count):
            self._check(data, index * self._response_bytes)
        return self._next_rows(count)

    def _check(self, data: bytes, position: int) -> None:
        if data.startswith(b"*%d\r\n*2\r\n" % self._messages_a_read, position):
            self.messages += self._messages_a_read
        else:
            self.refused += 1
            self.first_error = self.first_error or data[position : position + 200].decode(errors="replace")
