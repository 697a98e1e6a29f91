"""Stores that were cut, to be compared with stores that never had what was cut."""

import random
from dataclasses import dataclass, field

from ariane.store.append.draft import Appended, Draft
from ariane.store.layout import Layout
from ariane.store.message_store import MessageStore
from ariane.store.offline.verify import verify_store
from ariane.testing import FakeClock
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.block_checksums import is_covered
from tests.store.stores import ROOT, draft, entries, put

LAYOUT = Layout.under(ROOT)


@dataclass(frozen=True)
class Step:
    """Messages appended by one call, and what happens after it."""

    drafts: list[Draft]
    keys: list[str]
    then: str
    """`sync`, `write`, `checkpoint` or nothing."""


@dataclass
class History:
    """Ends of records after each step of it, and all keys."""

    steps: list[Step]
    ends: list[int] = field(default_factory=list)

    @property
    def keys(self) -> list[str]:
        return [key for step in self.steps for key in step.keys]


def random_history(rng: random.Random, steps: int) -> History:
    made = []
    for number in range(steps):
        drafts, keys = list[Draft](), list[str]()
        for message in range(rng.randint(1, 4)):
            keys.append(f"k{number}-{message}")
            body = bytes([number % 256]) * rng.choice((0, 1, 90, 700, 2500))
            topic = rng.choice(("orders", "orders", "orders", "bills"))
            drafts.append(draft(body, topic, rng.randrange(3), keys[-1], rng.choice(("", "a", "b"))))
        made.append(Step(drafts, keys, rng.choice(("", "", "sync", "write", "checkpoint"))))
    return History(made)


def play(store: MessageStore, steps: list[Step]) -> list[int]:
    """Where the log ended after each step."""
    ends = []
    for step in steps:
        ends.append(put(store, *step.drafts)[-1].end)
        if step.then == "sync":
            store.flusher.flushed(store.flusher.sync_now())
            store.extend_checksums(store.flusher.flushed_to)
        elif step.then == "write":
            store.derived.write()
        elif step.then == "checkpoint":
            store.make_durable()
    return ends


def whole_end(store: MessageStore) -> int:
    return store.components.commit_log.max_offset


def log_bytes(store: MessageStore) -> bytes:
    """All files, without the zeros at the end: a log that was cut to nothing keeps its first file."""
    log = store.components.commit_log
    return b"".join(bytes(segment.file.view()) for segment in log.segments).rstrip(b"\0")


def queue_entries(store: MessageStore) -> dict[tuple[str, int], tuple[int, int, list[tuple[int, int, int]]]]:
    return {
        (queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset, entries(queue))
        for queue in store.components.queues
        if queue.max_offset
    }


def found_by_key(store: MessageStore, keys: list[str]) -> dict[str, list[bytes]]:
    store.components.dispatcher.write_index()
    topics = ("orders", "bills")
    return {
        key: [bytes(record) for topic in topics for record in store.lookup.by_key(topic, key, 10, 0, 2**62)]
        for key in keys
    }


def check_same(store: MessageStore, never: MessageStore, keys: list[str]) -> None:
    """What `store` has is what `never` has, a store without what was cut; also after more was appended to both."""
    for more in (0, 1):
        if more:
            for number, one in enumerate((store, never)):
                one._appender.timestamp_ms = never._appender.timestamp_ms if number else one._appender.timestamp_ms
                outcomes = put(one, *[draft(b"later" * 50, queue_id=n % 3, key=f"later{n}") for n in range(12)])
                assert all(isinstance(outcome, Appended) for outcome in outcomes)
            keys = [*keys, *(f"later{n}" for n in range(12))]
        assert whole_end(store) == whole_end(never)
        assert log_bytes(store) == log_bytes(never)
        assert queue_entries(store) == queue_entries(never)
        assert found_by_key(store, keys) == found_by_key(never, keys)
        store.make_durable()
        disk = store.components.disk
        assert isinstance(disk, SimulatedDisk)
        assert is_covered(disk, whole_end(store))
        report = verify_store(disk, LAYOUT)
        assert report.faults == []


def clock() -> FakeClock:
    return FakeClock()
