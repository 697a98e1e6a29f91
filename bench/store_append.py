"""What an append costs in CPU: record, write, queue entry, index; beside a bare write of the same bytes."""

import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ariane.store.append.draft import Draft
from ariane.store.disk import RealDisk, RealFile
from ariane.store.message_store import MessageStore
from ariane.store.settings import GiB
from bench import store_append_parts
from bench.store_setup import CHUNK, Rounds, Spent, Stopwatch, chunked, drafts, first_outcome, opened

AIM_US = 4.0
SIZES = ((1024, "1 KiB"), (100, "100 B"))

_FILE_BYTES = 1 * GiB

Way = Callable[[], Spent]


def report(directory: Path, *, quick: bool) -> Iterator[str]:
    messages, repeats = (16_384, 5) if quick else (65_536, 9)
    yield f"1. Append, chunks of {CHUNK}, 8 queues, a key and a tag each: CPU us a message, best of {repeats}"
    yield f"{'':<30}{'us':>8}{'aim us':>8}{'/ aim':>7}{'/ pwrite':>10}{'/ mmap':>8}"
    for size, label in SIZES:
        costs = _costs(directory / label.replace(" ", ""), chunked(drafts(messages, size)), repeats)
        for name, us in costs.items():
            aim = f"{AIM_US:8.1f}{us / AIM_US:7.2f}" if name.startswith("store") else " " * 15
            yield f"{f'{name}, {label}':<30}{us:8.2f}{aim}{us / costs['pwrite']:10.2f}{us / costs['mmap copy']:8.2f}"
        if not quick or size == SIZES[0][0]:
            yield from _split(directory / "parts", size, costs)


def _costs(directory: Path, chunks: list[Sequence[Draft]], repeats: int) -> dict[str, float]:
    """All ways in turn, so that a busy minute meets each of them. Neighbours only ever add, so the best counts."""
    directory.mkdir()
    spent: dict[str, list[float]] = {}
    with ExitStack() as stack:
        indexed = stack.enter_context(opened(directory / "indexed"))
        gated = stack.enter_context(opened(directory / "gated", gated=True))
        plain = stack.enter_context(opened(directory / "plain", index_enable=False))
        written = stack.enter_context(_file(directory / "written"))
        mapped = stack.enter_context(_file(directory / "mapped"))
        records = _records(indexed, chunks[0])
        ways: dict[str, Way] = {
            "store, index on": lambda: _append(indexed, chunks),
            "store, gated": lambda: _append_and_confirm(gated, chunks),
            "store, index off": lambda: _append(plain, chunks),
            "pwrite": _pwrite(written, records, len(chunks)),
            "mmap copy": _mmap_copy(mapped, records, len(chunks)),
        }
        for _ in range(repeats):
            for name, way in ways.items():
                spent.setdefault(name, []).append(way().cpu_us)
    return {name: min(values) for name, values in spent.items()}


@contextmanager
def _file(path: Path) -> Iterator[RealFile]:
    """Its blocks are taken, as the log's are."""
    file = RealDisk().create(path, _FILE_BYTES, allocated=_FILE_BYTES)
    try:
        yield file
    finally:
        file.close()


def _records(store: MessageStore, chunk: Sequence[Draft]) -> bytes:
    """The bytes that the log gets for a chunk."""
    first = first_outcome(store, chunk)
    view = store.components.commit_log.read(
        first.physical_offset, store.components.commit_log.max_offset - first.physical_offset
    )
    assert view is not None
    return bytes(view)


def _append(store: MessageStore, chunks: list[Sequence[Draft]]) -> Spent:
    rounds, watch = Rounds(store), Stopwatch()
    for chunk in chunks:
        store.append(chunk)
        rounds.tick()
    store.derived.write()
    return watch.stop(len(chunks) * CHUNK)


def _append_and_confirm(store: MessageStore, chunks: list[Sequence[Draft]]) -> Spent:
    """With a gate, which shows each chunk after the next one is appended."""
    rounds, watch, gate, log = Rounds(store), Stopwatch(), store.gate, store.components.commit_log
    assert gate is not None
    gate.begin_epoch(gate.epoch + 1)
    for chunk in chunks:
        end = log.max_offset
        store.append(chunk)
        gate.confirm(end, gate.epoch)
        rounds.tick()
    gate.confirm(log.max_offset, gate.epoch)
    store.derived.write()
    return watch.stop(len(chunks) * CHUNK)


def _pwrite(file: RealFile, records: bytes, chunks: int) -> Way:
    position, size, descriptor = 0, len(records), file.descriptor

    def write() -> Spent:
        nonlocal position
        watch = Stopwatch()
        for _ in range(chunks):
            os.pwrite(descriptor, records, position)
            position += size
        return watch.stop(chunks * CHUNK)

    return write


def _mmap_copy(file: RealFile, records: bytes, chunks: int) -> Way:
    """How Apache writes its log: each new page is a page fault."""
    position, size, mapped = 0, len(records), mmap.mmap(file.descriptor, _FILE_BYTES)

    def copy() -> Spent:
        nonlocal position
        watch = Stopwatch()
        for _ in range(chunks):
            mapped[position : position + size] = records
            position += size
        return watch.stop(chunks * CHUNK)

    return copy


def _split(directory: Path, body_bytes: int, costs: dict[str, float]) -> Iterator[str]:
    """Where it goes. The parts are timed alone and warm, so the rest is also caches that are not."""
    parts = store_append_parts.costs(directory / str(body_bytes), body_bytes)
    parts["pwrite of a chunk, a 64th"] = costs["pwrite"]
    parts["loops, calls, cold caches"] = costs["store, index on"] - sum(parts.values())
    for name, us in parts.items():
        yield f"{'  ' + name:<30}{us:8.2f}"
