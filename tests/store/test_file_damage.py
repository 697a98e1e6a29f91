"""Random damage to the files of a store beside its log: flipped bits, truncated, extended and removed files, removed
directories. Whatever it hits, every message is read at its offset and found by its key, and no offset is used again.

`ARIANE_DAMAGES` says how often; `make chaos` does it 500 times. A failure prints its seed.
"""

import logging
import os
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from ariane.store.consume_queue import block_checksums
from ariane.store.layout import Layout
from ariane.store.message_store import MessageStore
from ariane.store.offline.verify import verify_store
from ariane.testing import FakeClock
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import BOOT, ROOT, bodies, draft, entries, opened, put

DAMAGES = int(os.environ.get("ARIANE_DAMAGES", "60"))
LAYOUT = Layout.under(ROOT)
TOPICS = ("orders", "invoices", "SCHEDULE_TOPIC_XXXX")


class Contents(NamedTuple):
    """What clients see of a store."""

    queues: dict[tuple[str, int], tuple[int, int, list[bytes], list[tuple[int, int, int]]]]
    """By topic and queue: first and next offset, bodies, entries."""
    keys: dict[str, list[bytes]]


class Made(NamedTuple):
    disk: SimulatedDisk
    contents: Contents
    changes: dict[str, int]
    """The store's settings."""


def contents(store: MessageStore, keys: int) -> Contents:
    store.components.dispatcher.write_index()
    queues = {
        (queue.topic, queue.queue_id): (
            queue.min_offset,
            queue.max_offset,
            bodies(store, queue.topic, queue.queue_id),
            entries(queue),
        )
        for queue in store.components.queues
    }
    found = {
        f"k{number}": [bytes(record) for topic in TOPICS for record in by_key(store, topic, f"k{number}")]
        for number in range(keys)
    }
    return Contents(queues, found)


def by_key(store: MessageStore, topic: str, key: str) -> list[memoryview]:
    return store.lookup.by_key(topic, key, 64, 0, 2**62)


MESSAGES = 120


@cache
def made(kind: str, shape: int) -> Made:
    """A store with checkpoints, a deleted topic, one that was deleted and made again, and deleted log files."""
    rng = random.Random(shape)
    clock = FakeClock()
    disk = SimulatedDisk(clock)
    changes = {
        "queue_segment_bytes": (200, 2000, 6000)[shape % 3],
        "index_slots": 16,
        "index_entries": (64, 300)[shape % 2],
    }
    store = opened(disk, clock, BOOT, **changes)
    put(store, draft(b"gone", topic="deleted", key="k0"))
    put(store, *[draft(b"old", topic="invoices", queue_id=number % 2) for number in range(8)])
    store.delete_topics("deleted", "invoices")
    for number in range(MESSAGES):
        topic = rng.choice(TOPICS)
        text = f"{number}:".encode() + rng.randbytes(rng.randrange(200, 500))
        put(
            store, draft(text, topic=topic, queue_id=rng.randrange(2), key=f"k{number}", tag=rng.choice(["", "a", "b"]))
        )
        if number % 40 == 30:
            store.make_durable()
        if number == 80:
            clock._elapsed_s += 73 * 3600
    if shape % 2:
        store.make_durable()
        assert store.clean(manual=True).files
    seen = contents(store, MESSAGES)
    if kind == "clean":
        store.close()
    elif kind == "written":
        store.derived.write()
    return Made(disk, seen, changes)


# --- damage -----------------------------------------------------------------------------------------------------------


def files_below(disk: SimulatedDisk, directory: Path) -> list[Path]:
    found = []
    for name in disk.names(directory):
        path = directory / name
        found += [path] if disk.size(path) is not None else files_below(disk, path)
    return found


def content(disk: SimulatedDisk, path: Path) -> bytes:
    return disk.open(path, writable=False).read(disk.size(path) or 0, 0)


def replace_content(disk: SimulatedDisk, path: Path, data: bytes) -> None:
    disk.remove(path)
    file = disk.create(path, len(data), allocated=0)
    file.write(data, 0)
    file.sync()
    disk.sync_directory(path.parent)


def flip(disk: SimulatedDisk, path: Path, rng: random.Random) -> str:
    """One to three bits, two times of three where something is written."""
    data = content(disk, path)
    written = [at for at, byte in enumerate(data) if byte] if rng.random() < 0.7 else []
    places = []
    for _ in range(rng.choice((1, 1, 1, 2, 3)) if data else 0):
        position, bit = rng.choice(written) if written else rng.randrange(len(data)), rng.randrange(8)
        disk.flip_bit(path, position, bit)
        places.append((position, bit))
    return f"flip {path} at {places}"


def truncate(disk: SimulatedDisk, path: Path, rng: random.Random) -> str:
    size = rng.choice((0, 1, rng.randrange(len(content(disk, path)) + 1)))
    replace_content(disk, path, content(disk, path)[:size])
    return f"truncate {path} to {size}"


def extend(disk: SimulatedDisk, path: Path, rng: random.Random) -> str:
    more = rng.choice((bytes(20), rng.randbytes(20), rng.randbytes(4096)))
    replace_content(disk, path, content(disk, path) + more)
    return f"extend {path} by {len(more)}"


def remove(disk: SimulatedDisk, path: Path, rng: random.Random) -> str:
    disk.remove(path)
    return f"remove {path}"


def zero(disk: SimulatedDisk, path: Path, rng: random.Random) -> str:
    data = content(disk, path)
    begin = rng.randrange(len(data) + 1)
    end = rng.randint(begin, len(data))
    replace_content(disk, path, data[:begin] + bytes(end - begin) + data[end:])
    return f"zero {path} from {begin} to {end}"


def remove_directory(disk: SimulatedDisk, path: Path, rng: random.Random) -> str:
    directory = path.parent if path.parent == ROOT or rng.random() < 0.5 else path.parents[1]
    if directory == ROOT:
        return remove(disk, path, rng)
    for file in files_below(disk, directory):
        disk.remove(file)
    return f"remove everything below {directory}"


Damage = Callable[[SimulatedDisk, Path, random.Random], str]
DAMAGE: list[Damage] = [flip, flip, flip, truncate, extend, zero, remove, remove_directory]


def damage(disk: SimulatedDisk, rng: random.Random) -> str:
    kinds = [
        files_below(disk, LAYOUT.consume_queues),
        files_below(disk, LAYOUT.consume_queues),
        files_below(disk, LAYOUT.index),
        files_below(disk, LAYOUT.queue_checksums),
        files_below(disk, LAYOUT.commit_log_checksums),
        [LAYOUT.checkpoint],
    ]
    path = rng.choice(rng.choice([paths for paths in kinds if paths]))
    return rng.choice(DAMAGE)(disk, path, rng)


# --- the test ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["clean", "written", "killed"])
def test_damage_loses_no_message_and_reuses_no_offset(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(block_checksums, "BLOCK_BYTES", 400)  # many blocks in a file
    number = {"clean": 0, "written": 1, "killed": 2}[kind]
    for seed in range(number, DAMAGES, 3):
        attack(kind, seed)


def attack(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    store = made(kind, rng.randrange(6))
    disk = store.disk.crash_process()
    what = f"seed {seed}, {kind}: {damage(disk, rng)}"
    again = opened(disk, FakeClock(), BOOT, **store.changes)
    check(contents(again, MESSAGES), store.contents, what)
    for (topic, queue_id), (_, end, _, _) in store.contents.queues.items():
        (appended,) = put(again, draft(b"new", topic=topic, queue_id=queue_id))
        assert appended.queue_offset == end, f"{what}: offset of {topic}/{queue_id}"
    after = contents(again, MESSAGES)
    again.close()
    report = verify_store(disk, LAYOUT, index_slots=16)
    faults = [fault for fault in report.faults if not fault.file.startswith("commitlog")]
    assert not faults, f"{what}: {faults}"
    check(contents(opened(disk, FakeClock(), BOOT, **store.changes), MESSAGES), after, f"{what}, a second start")


def check(found: Contents, expected: Contents, what: str) -> None:
    for key, (low, end, texts, places) in expected.queues.items():
        assert key in found.queues, f"{what}: queue {key} is missing"
        found_low, found_end, found_texts, found_places = found.queues[key]
        assert (found_low, found_end) == (low, end), f"{what}: offsets of {key}"
        assert found_texts == texts, f"{what}: messages of {key}"
        assert found_places == places, f"{what}: entries of {key}"
    assert found.queues.keys() == expected.queues.keys(), f"{what}: a deleted queue is back"
    for name, records in expected.keys.items():
        assert found.keys[name] == records, f"{what}: key {name}"
