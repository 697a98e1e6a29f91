"""Requests that are encoded once and sent repeatedly, which makes the load generator cheap.

All requests have one length, so they are the rows of one array, and any number of neighbours goes out in one call
without a copy. Parts that must differ from round to round (unique keys, and for NATS the inbox of the connection) are
patched in place, many rows by one assignment.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

ROUND = b"@@@@"
"""Placeholder for the number of the round: four digits."""
CONNECTION = b"###"
"""Placeholder for the number of the connection: three digits."""


_BLOCK = 256

Bytes = np.ndarray[tuple[int, int], np.dtype[np.uint8]]


class Piece(NamedTuple):
    """Rows `begin` to `end`, valid until they are taken again."""

    begin: int
    end: int
    data: memoryview


class Ring:
    def __init__(self, rows: Sequence[bytes]) -> None:
        """The placeholders must be at the same positions in every row."""
        if any(len(row) != len(rows[0]) for row in rows):
            raise ValueError("rows of unequal length: numbers in a request must have a fixed number of digits")
        self.count = len(rows)
        self._width = len(rows[0])
        self._bytes = memoryview(bytearray().join(rows))
        self._rows: Bytes = np.frombuffer(self._bytes, dtype=np.uint8).reshape(self.count, self._width)
        self._round_columns = _columns(rows[0], ROUND)
        self._connection_at = rows[0].find(CONNECTION)
        self._next = 0
        self._patched_to = 0
        self._round = 0

    def take(self, count: int, connection: int = 0) -> Iterator[Piece]:
        """The next rows; in two pieces when they pass the end of the ring."""
        while count:
            begin = self._next
            end = min(begin + count, self.count)
            count -= end - begin
            if end > self._patched_to:
                self._patch_round(end)
            if self._connection_at >= 0:
                self._patch_connection(begin, end, connection)
            self._next = end
            if end == self.count:
                self._next = self._patched_to = 0
                self._round = (self._round + 1) % 10_000
            yield Piece(begin, end, self._bytes[begin * self._width : end * self._width])

    def _patch_round(self, end: int) -> None:
        """A block at a time: an assignment costs nearly the same for one row as for many."""
        begin, self._patched_to = self._patched_to, min(end + _BLOCK, self.count)
        if self._round_columns.size:
            digits = np.frombuffer(b"%04d" % self._round, dtype=np.uint8)
            repeated = np.tile(digits, self._round_columns.size // len(digits))
            self._rows[begin : self._patched_to, self._round_columns] = repeated

    def _patch_connection(self, begin: int, end: int, connection: int) -> None:
        columns = slice(self._connection_at, self._connection_at + len(CONNECTION))
        self._rows[begin:end, columns] = np.frombuffer(b"%03d" % connection, dtype=np.uint8)


def _columns(row: bytes, mark: bytes) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """The columns of every occurrence of the mark."""
    columns: list[int] = []
    position = row.find(mark)
    while position >= 0:
        columns.extend(range(position, position + len(mark)))
        position = row.find(mark, position + len(mark))
    return np.array(columns, dtype=np.intp)
