"""Pulls of 32 messages from the page cache, joined as an answer is, beside a plain copy of as many bytes."""

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from ariane.store.message_store import MessageStore
from bench.store_setup import Spent, Stopwatch, chunked, drafts, first_outcome, opened, queue_of

COUNT = 32
SIZES = ((1024, "1 KiB"), (100, "100 B"))

Way = Callable[[], tuple[Spent, int]]
"""Time for so many reads, and the bytes that they gave."""


def report(directory: Path, *, quick: bool) -> Iterator[str]:
    messages, repeats = (32_768, 3) if quick else (131_072, 7)
    yield f"5. Reads of {COUNT} messages from page cache, joined; 8 queues; median rate and best CPU of {repeats}"
    yield f"{'':<30}{'reads/s':>10}{'messages/s':>12}{'GB/s':>7}{'CPU us':>9}{'/ copy':>8}"
    for size, label in SIZES:
        with opened(directory / f"read-{size}", index_enable=False) as store:
            for chunk in chunked(drafts(messages, size)):
                first_outcome(store, chunk)
            store.derived.write()
            yield from _rows(store, label, repeats)


def _rows(store: MessageStore, label: str, repeats: int) -> Iterator[str]:
    ways: dict[str, Way] = {"store": lambda: _read(store), "one copy": lambda: _copy(store)}
    samples: dict[str, list[tuple[Spent, int]]] = {name: [] for name in ways}
    for way in ways.values():
        way()  # maps the pages
    for _ in range(repeats):
        for name, way in ways.items():
            samples[name].append(way())
    cpu_us = {name: min(spent.cpu_us for spent, _ in of_one) for name, of_one in samples.items()}
    for name, of_one in samples.items():
        rate = statistics.median(spent.per_second for spent, _ in of_one)
        gigabytes = statistics.median(size / spent.wall_s for spent, size in of_one) / 1e9
        figures = f"{rate:>10,.0f}{rate * COUNT:>12,.0f}{gigabytes:>7.2f}{cpu_us[name]:>9.2f}"
        yield f"{f'{name}, {label}':<30}{figures}{cpu_us[name] / cpu_us['one copy']:>8.2f}"


def _read(store: MessageStore) -> tuple[Spent, int]:
    """A whole queue from its beginning, as a consumer that catches up."""
    topic, queue_id = queue_of(0)
    offset = reads = size = 0
    watch = Stopwatch()
    while True:
        result = store.reader.read(topic, queue_id, offset, COUNT)
        if not result.slices:
            return watch.stop(reads), size
        size += len(b"".join(result.slices))
        offset = result.next_offset
        reads += 1


def _copy(store: MessageStore) -> tuple[Spent, int]:
    """As many bytes in as many steps, each in one piece."""
    commit_log = store.components.commit_log
    step, reads, size = _record_bytes(store) * COUNT, 0, 0
    watch = Stopwatch()
    for position in range(0, commit_log.max_offset - step, step * 8):
        view = commit_log.read(position, step)
        assert view is not None
        size += len(bytes(view))
        reads += 1
    return watch.stop(reads), size


def _record_bytes(store: MessageStore) -> int:
    topic, queue_id = queue_of(0)
    return len(store.reader.read(topic, queue_id, 0, 1).slices[0])
