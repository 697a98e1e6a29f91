"""Where the commit logs of a master and its slaves end, read from their files: the servers notice nothing of it.

The files of Ariane and Apache have one format, and other processes see what was written to them at once. An end is
found by walking from record to record, so it is that of the last record whose beginning is there.
"""

import mmap
import struct
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ariane.wire.record.layout import BLANK_MAGIC, MAGIC_V1, MAGIC_V2

_SIZE_AND_MAGIC = struct.Struct(">iI")
_RECORDS = frozenset({MAGIC_V1, MAGIC_V2})
_DIGITS = 20
"""Of a file's name: the offset of its first byte."""
SAMPLE_S = 0.002


class LogEnd:
    """Follows one commit log."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file: mmap.mmap | None = None
        self._base = self._at = 0

    def read(self) -> int:
        """The present end; 0 while there is no log."""
        while (self._file is not None or self._open()) and self._walk():
            self._base += len(self._file or b"")
            self._file, self._at = None, 0
        return self._base + self._at

    def _open(self) -> bool:
        if not self._base:  # a slave may begin with its master's last file
            names = sorted(path.name for path in self._directory.glob("[0-9]" * _DIGITS))
            self._base = int(names[0]) if names else 0
        with suppress(FileNotFoundError, ValueError):  # ValueError: it has no bytes yet
            with (self._directory / f"{self._base:0{_DIGITS}d}").open("rb") as file:
                self._file = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return self._file is not None

    def _walk(self) -> bool:
        """Goes to the last record of the file; whether the log goes on in the next one."""
        view, at = self._file, self._at
        assert view is not None
        last = len(view) - _SIZE_AND_MAGIC.size
        unpack = _SIZE_AND_MAGIC.unpack_from
        while at <= last:
            size, magic = unpack(view, at)
            if magic == BLANK_MAGIC:
                return True
            if magic not in _RECORDS or size <= 0:
                self._at = at
                return False
            at += size
        self._at = at
        return at >= len(view)


class LagSample(NamedTuple):
    at_s: float
    master: int
    slave: int


class Lag(NamedTuple):
    """Of a slave, while its master's log grew."""

    p50_ms: float
    p99_ms: float
    p99_bytes: float


def lag_of(samples: Sequence[LagSample]) -> Lag:
    """How long ago the master had the byte that the slave gets next, as seen by the samples: never less than it was,
    and up to one pause between two of them more."""
    growing = [index for index, (old, new) in enumerate(pairwise(samples)) if new[1] > old[1]]
    if not growing:
        raise ValueError("the master's log did not grow while its slave's lag was measured")
    ends = [sample.master for sample in samples]
    waits_ms, sizes = [], []
    for sample in samples[growing[0] + 1 : growing[-1] + 2]:
        since = bisect_right(ends, sample.slave) - 1  # the last time that the master had no more than the slave now
        waits_ms.append((sample.at_s - samples[max(since, 0)].at_s) * 1e3 if sample.master > sample.slave else 0.0)
        sizes.append(max(sample.master - sample.slave, 0))
    p50, p99 = map(float, np.percentile(waits_ms, (50, 99)))
    return Lag(p50, p99, float(np.percentile(sizes, 99)))


@contextmanager
def sampled(master: LogEnd, slave: LogEnd) -> Iterator[list[LagSample]]:
    """The samples are complete when the block is over."""
    samples: list[LagSample] = []
    stop = threading.Event()

    def sample() -> None:
        while not stop.wait(SAMPLE_S):
            end = slave.read()  # first: so a lag is not too small
            samples.append(LagSample(time.perf_counter(), master.read(), end))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        stop.set()
        thread.join()
