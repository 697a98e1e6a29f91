"""Unique keys that a repeated task makes again, so that duplicates can be told from new messages.

    10 bytes  hash of query, micro-batch, partition and row number / 65536
     4 bytes  0, where a producer's key has the time since the month began
     2 bytes  row number modulo 65536

The layout is that of a producer's unique key: tools search for a key from the time in it on, and 0 is before every
message of the month. Rows of a partition must come in the same order each time for this to hold.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

KEYS_PER_PREFIX = 1 << 16


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    query: str
    batch: str
    partition: int


class TaskKeys:
    def __init__(self, identity: TaskIdentity) -> None:
        self._identity = identity
        self._row = 0
        self._prefix = ""

    def next(self) -> str:
        low = self._row % KEYS_PER_PREFIX
        if low == 0:
            self._prefix = self._prefix_for(self._row // KEYS_PER_PREFIX)
        self._row += 1
        return f"{self._prefix}{low:04X}"

    def take(self, count: int) -> Iterator[tuple[str, int, int]]:
        """The next keys, as prefix, number of the first and how many: the rest of each is its number in hex."""
        while count > 0:
            block, low = divmod(self._row, KEYS_PER_PREFIX)
            some = min(count, KEYS_PER_PREFIX - low)
            self._prefix = self._prefix_for(block)
            self._row += some
            count -= some
            yield self._prefix, low, some

    def _prefix_for(self, block: int) -> str:
        one = self._identity
        text = "\x00".join((one.query, one.batch, str(one.partition), str(block)))
        return hashlib.sha256(text.encode()).hexdigest()[:20].upper() + "00000000"
