"""Many queues: one log for all of them, beside one file per queue, which is how Kafka stores its partitions."""

import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path

from ariane.store.draft import Appended, Draft
from ariane.store.layout import Layout
from ariane.store.message_store import MessageStore
from ariane.store.settings import MiB
from bench.store_setup import CHUNK, Rounds, Spent, Stopwatch, chunked, drafts, number_of, opened, queue_of

QUEUES = (1, 100, 1_000, 5_000)
BODY_BYTES = 1024
POOL = 16_384  # messages, more than twice the queues
GOAL_RATIO = 0.9

_SEGMENT_BYTES = 256 * MiB
_FILE_ROUNDS = 8

Way = Callable[[], Spent]
Results = dict[tuple[str, int], list[Spent]]


def report(directory: Path, *, quick: bool) -> Iterator[str]:
    counts, repeats = (QUEUES[:-1], 1) if quick else (QUEUES, 9)
    _allow_open_files(max(QUEUES) + 2_000)
    results: Results = {}
    with ExitStack() as stack:
        ways = dict(_ways(directory, stack, counts))
        for _ in range(repeats):
            for key, way in ways.items():
                results.setdefault(key, []).append(way())
    yield f"3. Queues: 1 KiB, chunks of {CHUNK}; medians of {repeats} turns; goal: {GOAL_RATIO} of 1 queue"
    yield f"{'':<20}{'queues':>8}{'messages/s':>12}{'/ 1 queue':>11}{'CPU us':>9}{'/ 1 queue':>11}"
    for (name, queues), samples in sorted(results.items(), reverse=True, key=lambda item: item[0][0]):
        yield _row(name, queues, samples, results[name, 1])


def _row(name: str, queues: int, samples: list[Spent], alone: list[Spent]) -> str:
    """Ratios are those within a turn: a disk that is slow for a while is so for both."""
    rate = statistics.median(one.per_second for one in samples)
    cpu_us = statistics.median(one.cpu_us for one in samples)
    turns = list(zip(samples, alone, strict=True))
    faster = statistics.median(one.per_second / single.per_second for one, single in turns)
    cheaper = statistics.median(single.cpu_us / one.cpu_us for one, single in turns)
    return f"{name:<20}{queues:>8,}{rate:>12,.0f}{faster:>11.2f}{cpu_us:>9.2f}{cheaper:>11.2f}"


def _allow_open_files(count: int) -> None:
    """One file per queue needs as many descriptors; the store keeps 512 open at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


def _ways(directory: Path, stack: ExitStack, counts: Sequence[int]) -> Iterator[tuple[tuple[str, int], Way]]:
    for queues in counts:
        chunks = chunked(drafts(POOL, BODY_BYTES, queues))
        root = directory / f"store-{queues}"
        for number in range(queues):  # or the store syncs the name of each: right, and not what is measured here
            Layout.under(root).queue(*queue_of(number)).mkdir(parents=True)
        store = stack.enter_context(opened(root, segment_bytes=_SEGMENT_BYTES))
        records = list(_records(store, chunks))
        store.write_derived()
        yield ("store", queues), _append(store, chunks)
        yield ("a file per queue", queues), _write_files(_files(directory / f"files-{queues}", queues, stack), records)


def _records(store: MessageStore, chunks: list[Sequence[Draft]]) -> Iterator[list[tuple[int, bytes]]]:
    """What each chunk is in the files of its queues: number of the queue, its records, joined. Warms the store, too."""
    for chunk in chunks:
        by_queue: dict[int, list[memoryview]] = {}
        for draft, outcome in zip(chunk, store.append(chunk), strict=True):
            assert isinstance(outcome, Appended), outcome
            record = store.parts.commit_log.read(outcome.physical_offset, outcome.size)
            assert record is not None
            by_queue.setdefault(number_of(draft.topic, draft.queue_id), []).append(record)
        yield [(number, b"".join(parts)) for number, parts in by_queue.items()]


def _append(store: MessageStore, chunks: list[Sequence[Draft]]) -> Way:
    def append() -> Spent:
        """For a second of CPU time, and then the write of the queues that a service does every second."""
        watch, until, count = Stopwatch(), time.process_time() + 1.0, 0
        rounds = Rounds(store)
        for chunk in cycle(chunks):
            store.append(chunk)
            rounds.tick()
            count += 1
            if time.process_time() > until:
                break
        store.write_derived()
        spent = watch.stop(count * CHUNK)
        _forget(store)
        return spent

    return append


def _forget(store: MessageStore) -> None:
    """So that repeats do not fill the disk: nobody is going to read what was written."""
    segments = store.parts.commit_log.segments
    while len(segments) > 1:
        segments.drop_first()


def _files(directory: Path, queues: int, stack: ExitStack) -> list[int]:
    directory.mkdir()
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    descriptors = [os.open(directory / str(number), flags) for number in range(queues)]
    for descriptor in descriptors:
        stack.callback(os.close, descriptor)
    return descriptors


def _write_files(descriptors: list[int], records: list[list[tuple[int, bytes]]]) -> Way:
    """The same chunks, each queue's part of it in one write; encoding is not counted here, as it is in the store."""

    def write() -> Spent:
        watch = Stopwatch()
        for _ in range(_FILE_ROUNDS):
            for chunk in records:
                for number, data in chunk:
                    os.write(descriptors[number], data)
        spent = watch.stop(_FILE_ROUNDS * len(records) * CHUNK)
        for descriptor in descriptors:
            os.ftruncate(descriptor, 0)
        return spent

    return write
