"""Many queues: one log for all of them, beside one file per queue, which is how Kafka stores its partitions."""

import os
import resource
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from typing import Protocol

from ariane.clock import Clock
from ariane.store.append.draft import Appended, Draft
from ariane.store.blocking_io import run_sync
from ariane.store.layout import Layout
from ariane.store.message_store import MessageStore
from ariane.store.settings import MiB
from bench.store_setup import CHUNK, NOTHING, Rounds, Spent, Stopwatch, chunked, drafts, number_of, opened, queue_of

QUEUES = (1, 100, 1_000, 5_000)
BODY_BYTES = 1024
POOL = 16_384  # messages, more than twice the queues
GOAL_RATIO = 0.9

_SEGMENT_BYTES = 256 * MiB
_SLICES = 60
_SLICE_CPU_S = 0.05
_FILES_EVERY = 8  # slices; files take no less room for being written faster

Key = tuple[str, int]
"""The name of a way, and how many queues."""
Results = dict[Key, list[Spent]]


class Way(Protocol):
    """One way to store messages."""

    def go_on(self, slice_number: int) -> None:
        """Stores some more."""

    def end(self) -> Spent:
        """What this turn has taken; its files are empty again."""


def report(directory: Path, *, quick: bool) -> Iterator[str]:
    counts, repeats = (QUEUES[:-1], 1) if quick else (QUEUES, 7)
    _allow_open_files(max(QUEUES) + 2_000)
    results: Results = {}
    with ExitStack() as stack:
        ways = dict(_ways(directory, stack, counts))
        for _ in range(repeats):
            for key, spent in _turn(ways):
                results.setdefault(key, []).append(spent)
    yield f"3. Queues: 1 KiB, chunks of {CHUNK}; medians of {repeats} turns; goal: {GOAL_RATIO} of 1 queue"
    yield f"{'':<20}{'queues':>8}{'messages/s':>12}{'/ 1 queue':>11}{'CPU us':>9}{'/ 1 queue':>11}"
    for (name, queues), samples in sorted(results.items(), reverse=True, key=lambda item: item[0][0]):
        yield _row(name, queues, samples, results[name, 1])


def _turn(ways: dict[Key, Way]) -> Iterator[tuple[Key, Spent]]:
    """In slices: the machine is faster in one second than in the next, and what is compared has to share them."""
    for number in range(_SLICES):
        for way in ways.values():
            way.go_on(number)
    for key, way in ways.items():
        yield key, way.end()


def _row(name: str, queues: int, samples: list[Spent], alone: list[Spent]) -> str:
    """Ratios are those within a turn."""
    rate = statistics.median(sample.per_second for sample in samples)
    cpu_us = statistics.median(sample.cpu_us for sample in samples)
    turns = list(zip(samples, alone, strict=True))
    faster = statistics.median(many.per_second / single.per_second for many, single in turns)
    cheaper = statistics.median(single.cpu_us / many.cpu_us for many, single in turns)
    return f"{name:<20}{queues:>8,}{rate:>12,.0f}{faster:>11.2f}{cpu_us:>9.2f}{cheaper:>11.2f}"


def _allow_open_files(count: int) -> None:
    """One file per queue needs as many descriptors; the store keeps 512 open at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


def _ways(directory: Path, stack: ExitStack, counts: Sequence[int]) -> Iterator[tuple[Key, Way]]:
    for queues in counts:
        chunks = chunked(drafts(POOL, BODY_BYTES, queues))
        root = directory / f"store-{queues}"
        for number in range(queues):  # or the store syncs the name of each: right, and not what is measured here
            Layout.under(root).queue(*queue_of(number)).mkdir(parents=True)
        own_time = _OwnTime()
        store = stack.enter_context(opened(root, own_time, segment_bytes=_SEGMENT_BYTES))
        records = list(_records(store, chunks))
        store.derived.write()
        yield ("store", queues), _Appending(store, own_time, chunks)
        files = _files(directory / f"files-{queues}", queues, stack)
        yield ("a file per queue", queues), _WritingFiles(files, records)


def _records(store: MessageStore, chunks: list[Sequence[Draft]]) -> Iterator[list[tuple[int, bytes]]]:
    """What each chunk is in the files of its queues: number of the queue, its records, joined. Warms the store, too."""
    for chunk in chunks:
        by_queue: dict[int, list[memoryview]] = {}
        for draft, outcome in zip(chunk, store.append(chunk), strict=True):
            assert isinstance(outcome, Appended), outcome
            record = store.components.commit_log.read(outcome.physical_offset, outcome.size)
            assert record is not None
            by_queue.setdefault(number_of(draft.topic, draft.queue_id), []).append(record)
        yield [(number, b"".join(parts)) for number, parts in by_queue.items()]


class _OwnTime(Clock):
    """CPU time that goes on only while its store is at work: the others of a turn do not hasten its rounds."""

    def __init__(self) -> None:
        self._before = 0.0
        self._begun: float | None = None

    def monotonic(self) -> float:
        return self._before if self._begun is None else self._before + time.process_time() - self._begun

    @contextmanager
    def going(self) -> Iterator[None]:
        self._begun = time.process_time()
        yield
        self._before, self._begun = self.monotonic(), None


class _Appending:
    """To a store, turn after turn. What a turn leaves in memory is written in the next one, as in a service."""

    def __init__(self, store: MessageStore, own_time: _OwnTime, chunks: list[Sequence[Draft]]) -> None:
        self._store = store
        self._own_time = own_time
        self._chunks = cycle(chunks)
        self._rounds = Rounds(store, own_time.monotonic)
        self._spent = NOTHING

    def go_on(self, slice_number: int) -> None:
        with self._own_time.going():
            self._append_until(self._own_time.monotonic() + _SLICE_CPU_S)

    def _append_until(self, end_s: float) -> None:
        watch, count, now = Stopwatch(), 0, self._own_time.monotonic
        while now() < end_s:
            self._store.append(next(self._chunks))
            self._rounds.tick()
            count += 1
        self._spent += watch.stop(count * CHUNK)

    def end(self) -> Spent:
        spent, self._spent = self._spent, NOTHING
        _forget(self._store)
        return spent


def _forget(store: MessageStore) -> None:
    """So that repeats do not fill the disk: the files are not read again."""
    segments = store.components.commit_log.segments
    while len(segments) > 1:
        run_sync(segments.drop_first_steps())


def _files(directory: Path, queues: int, stack: ExitStack) -> list[int]:
    directory.mkdir()
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    descriptors = [os.open(directory / str(number), flags) for number in range(queues)]
    for descriptor in descriptors:
        stack.callback(os.close, descriptor)
    return descriptors


class _WritingFiles:
    """The same chunks, each queue's part of it in one write; encoding is not counted here, as it is in the store."""

    def __init__(self, descriptors: list[int], records: list[list[tuple[int, bytes]]]) -> None:
        self._descriptors = descriptors
        self._records = records
        self._spent = NOTHING

    def go_on(self, slice_number: int) -> None:
        if slice_number % _FILES_EVERY:
            return
        watch, descriptors = Stopwatch(), self._descriptors
        for chunk in self._records:
            for number, data in chunk:
                os.write(descriptors[number], data)
        self._spent += watch.stop(len(self._records) * CHUNK)

    def end(self) -> Spent:
        for descriptor in self._descriptors:
            os.ftruncate(descriptor, 0)
        spent, self._spent = self._spent, NOTHING
        return spent
