"""Where to cut a stretch of the log, so that parts are about equal and no record is cut."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ariane.arrow.log_files import LogFiles
from ariane.arrow.log_probe import LogProbe
from ariane.arrow.log_queues import QueueEntries

_SAMPLES_MIN = 256
_SAMPLES_PER_SPLIT = 16


class Cut(NamedTuple):
    begin: int
    end: int
    bytes: int
    """Of the records in it, about."""
    is_aligned: bool = True


def even_cuts(files: LogFiles, probe: LogProbe, begin: int, end: int, bytes_each: int) -> Iterator[Cut]:
    """Parts of equal length. Each begins where a queue says that a record does, or, when none says, anywhere."""
    is_aligned = True
    while begin < end:
        target = begin + bytes_each
        cut, next_aligned = (end, True) if target >= end else _cut(files, probe, target, end, bytes_each // 4)
        yield Cut(begin, cut, cut - begin, is_aligned)
        begin, is_aligned = cut, next_aligned


def _cut(files: LogFiles, probe: LogProbe, target: int, end: int, near_bytes: int) -> tuple[int, bool]:
    """Where to cut near `target`, and whether a record is known to begin there: so does every file with one."""
    base = next((file.base for file in files.overlapping(target, target + near_bytes) if file.base >= target), None)
    if base is not None and base < end:
        return base, True
    found = probe.certain(target, near_bytes)
    return (target, False) if found is None or found.start >= end else (found.start, True)


def queue_cuts(queues: Sequence[QueueEntries], begin: int, end: int, bytes_each: int) -> Iterator[Cut]:
    """Parts that hold equally many bytes of the records in these queues, as far as a sample of the entries tells."""
    places, weights = _samples(queues, begin, end, bytes_each)
    order = np.argsort(places, kind="stable")
    places, so_far = places[order], np.cumsum(weights[order])
    total = float(so_far[-1]) if len(so_far) else 0.0
    if not total:
        return
    parts = max(1, round(total / bytes_each))
    cuts = np.unique(places[np.searchsorted(so_far, total / parts * np.arange(1, parts))]).tolist()
    edges = [begin, *(cut for cut in cuts if begin < cut < end), end]
    for first, last in pairwise(edges):
        yield Cut(first, last, round(total / (len(edges) - 1)))


def _samples(
    queues: Sequence[QueueEntries], begin: int, end: int, bytes_each: int
) -> tuple["np.ndarray[tuple[int], np.dtype[np.int64]]", "np.ndarray[tuple[int], np.dtype[np.float64]]"]:
    count = max(_SAMPLES_MIN, _SAMPLES_PER_SPLIT * (end - begin) // bytes_each)
    places, weights = [], []
    for queue in queues:
        offsets, each = queue.sample(queue.number_at(begin), queue.number_at(end), count)
        places.append(offsets)
        weights.append(np.full(len(offsets), each))
    if not places:
        return np.empty(0, np.int64), np.empty(0, np.float64)
    return np.concatenate(places), np.concatenate(weights)
