"""Messages of one queue that a consumer has in hand: pulled, and not finished.

                 commit_offset           next_offset
                      ▼                       ▼
    ... finished │ in hand ── waiting ── │ still at the broker
                   (some of them finished)

Handlers finish in any order, but the broker keeps one number per queue. So what is committed is the smallest
unfinished offset: after a crash a message may come twice, never not at all.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from operator import lt

from ariane.client.received import Received


class ProcessQueue:
    """Pure. `begin` is the offset of the first message to pull."""

    def __init__(self, begin: int) -> None:
        self.next_offset = begin
        """Where the next pull begins: all below was handed to us, or passed over by the filter."""
        self.bytes = 0
        self.dropped = False
        """Whether the queue was given up or moved. What handlers then still finish counts for nothing."""
        self._waiting: deque[Received] = deque()
        self._order: deque[int] = deque()
        self._unfinished: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._unfinished)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def commit_offset(self) -> int:
        return self._order[0] if self._order else self.next_offset

    @property
    def last_offset(self) -> int:
        """The largest offset in hand; that before the next one to pull when there is none."""
        return self._order[-1] if self._order else self.next_offset - 1

    @property
    def span(self) -> int:
        """How far the offsets in hand reach: one stuck message among many quick ones makes it grow."""
        return self._order[-1] - self._order[0] if self._order else 0

    def put(self, messages: Sequence[Received], next_offset: int) -> None:
        """What a pull brought. Offsets that were here before are passed over: a broker may repeat itself."""
        offsets = [message.queue_offset for message in messages]
        if not _rises(offsets, self.next_offset):
            messages = list(_rising(messages, self.next_offset))
            offsets = [message.queue_offset for message in messages]
        sizes = [len(message.body) for message in messages]
        self._waiting.extend(messages)
        self._order.extend(offsets)
        self._unfinished.update(zip(offsets, sizes, strict=True))
        self.bytes += sum(sizes)
        self.next_offset = max(self.next_offset, next_offset, offsets[-1] + 1 if offsets else 0)

    def take(self, count: int) -> list[Received]:
        """The next messages, in order; they stay in hand until they are finished."""
        if count >= len(self._waiting):
            taken = list(self._waiting)
            self._waiting.clear()
            return taken
        return [self._waiting.popleft() for _ in range(count)]

    def put_back(self, messages: Sequence[Received]) -> None:
        """Taken but not finished: they come first again, as ordered consumption wants it."""
        self._waiting.extendleft(reversed(messages))

    def finish(self, messages: Sequence[Received]) -> None:
        unfinished, order = self._unfinished, self._order
        self.bytes -= sum([unfinished.pop(message.queue_offset, 0) for message in messages])
        if not unfinished:
            order.clear()
        while order and order[0] not in unfinished:
            order.popleft()


def _rises(offsets: Sequence[int], begin: int) -> bool:
    """As the answers of a sound broker do."""
    return not offsets or (offsets[0] >= begin and all(map(lt, offsets, offsets[1:])))


def _rising(messages: Sequence[Received], begin: int) -> Iterator[Received]:
    for message in messages:
        if message.queue_offset >= begin:
            yield message
            begin = message.queue_offset + 1
