"""Shared by the store benchmarks: drafts, stores in a temporary directory, and the maintenance of a running broker."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from sys import intern

from ariane.clock import Clock
from ariane.model.message import HostPort
from ariane.store.append.draft import Appended, Draft
from ariane.store.message_store import MessageStore
from ariane.store.settings import StoreSettings
from ariane.wire.hashes import tags_code
from ariane.wire.host import encode_host
from ariane.wire.properties import encode_properties

CHUNK = 64
"""Messages in one append: what a busy broker finds when it looks at its connections."""
QUEUES_A_TOPIC = 8
HOST = encode_host(HostPort(IPv4Address("127.0.0.1"), 10911))

_INDEX_S, _QUEUES_S = 0.05, 1.0  # the service's ticks
_NOW_MS = 1_700_000_000_000


def queue_of(number: int) -> tuple[str, int]:
    """Its topic as the broker hands it on: one string for all messages, not one for each."""
    return intern(f"topic-{number // QUEUES_A_TOPIC:04d}"), number % QUEUES_A_TOPIC


def number_of(topic: str, queue_id: int) -> int:
    """Of a queue that `queue_of` named."""
    return int(topic[-4:]) * QUEUES_A_TOPIC + queue_id


def drafts(count: int, body_bytes: int, queues: int = QUEUES_A_TOPIC) -> list[Draft]:
    """Messages with a key and a tag each, in turn over the queues."""
    body = bytes(range(256)) * (body_bytes // 256 + 1)
    return [_draft(number, body[:body_bytes], *queue_of(number % queues)) for number in range(count)]


def _draft(number: int, body: bytes, topic: str, queue_id: int) -> Draft:
    key = f"7F0000010000{number * 2_654_435_761 % 2**64:020X}"
    return Draft(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties=encode_properties({"KEYS": key, "TAGS": "TagA"}),
        born_timestamp_ms=_NOW_MS,
        born_host=HOST,
        tags_code=tags_code("TagA"),
        keys=(key,),
    )


def chunked(messages: Sequence[Draft]) -> list[Sequence[Draft]]:
    return [messages[begin : begin + CHUNK] for begin in range(0, len(messages), CHUNK)]


@contextmanager
def opened(root: Path, clock: Clock | None = None, *, gated: bool = False, **changes: object) -> Iterator[MessageStore]:
    """A store that is let go without its last round: what is measured is over then, and the files go away."""
    settings = StoreSettings(root=root, **changes)  # type: ignore[arg-type]
    store = MessageStore.open(settings, clock or Clock(), HOST, gated=gated)
    try:
        yield store
    finally:
        store.components.commit_log.close()
        store.components.queues.close()
        if store.components.index is not None:
            store.components.index.close()


def first_outcome(store: MessageStore, chunk: Sequence[Draft]) -> Appended:
    """Appends, and makes sure that what is going to be timed works."""
    outcome = store.append(chunk)[0]
    assert isinstance(outcome, Appended), outcome
    return outcome


class Rounds:
    """Writes index and queues as often as the service does, in CPU time: on a shared machine that is the fair clock."""

    def __init__(self, store: MessageStore, now: Callable[[], float] = time.process_time) -> None:
        self._store = store
        self._now = now
        self._index_due = self._queues_due = 0.0
        self._wait(now())

    def _wait(self, now: float) -> None:
        self._index_due, self._queues_due = now + _INDEX_S, now + _QUEUES_S

    def tick(self) -> None:
        now = self._now()
        if now >= self._queues_due and self._store.derived.is_due:
            self._store.derived.write()
            self._wait(now)
        elif now >= self._index_due:
            self._store.components.dispatcher.write_index()
            self._index_due = now + _INDEX_S


@dataclass(frozen=True)
class Spent:
    """Time for so many messages."""

    messages: int
    wall_s: float
    cpu_s: float

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(self.messages + other.messages, self.wall_s + other.wall_s, self.cpu_s + other.cpu_s)

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.messages * 1e6

    @property
    def per_second(self) -> float:
        return self.messages / self.wall_s


NOTHING = Spent(0, 0.0, 0.0)


class Stopwatch:
    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def stop(self, messages: int) -> Spent:
        return Spent(messages, time.perf_counter() - self._wall, time.process_time() - self._cpu)
