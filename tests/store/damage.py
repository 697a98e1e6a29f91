"""Stores whose log gets damaged, and what their readers then find."""

import random
from collections.abc import Iterator
from typing import NamedTuple

from ariane.store.blocking_io import run_sync
from ariane.store.layout import Layout, offset_name
from ariane.store.message_store import MessageStore
from ariane.wire.properties import encode_properties
from ariane.wire.record.read import RecordView
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import ROOT, draft, put, records

LAYOUT = Layout.under(ROOT)
QUEUES = 3
PARTS = ("header", "properties", "body")


class Stored(NamedTuple):
    view: RecordView
    data: bytes

    @property
    def place(self) -> tuple[str, int, int]:
        return self.view.topic, self.view.queue_id, self.view.queue_offset


def fill(store: MessageStore, count: int, rng: random.Random, body_bytes: tuple[int, int] = (1, 300)) -> None:
    for _ in range(count):
        number = rng.randrange(1 << 30)
        message = draft(rng.randbytes(rng.randint(*body_bytes)), queue_id=number % QUEUES, key=f"key{number}", tag="t")
        message.properties += encode_properties({"city": "Nantes", "price": str(number)})
        put(store, message)


def stored(store: MessageStore) -> list[Stored]:
    """Every record, as it is in the log now."""
    found = []
    for view in records(store):
        segment = store.components.commit_log.segments.find(view.physical_offset)
        assert segment is not None
        found.append(Stored(view, bytes(segment.file.view()[view.position : view.position + view.size])))
    return found


def position_in(view: RecordView, part: str, rng: random.Random) -> int:
    """A random byte of a record, counted from its first one."""
    body = range(view.body_position - view.position, view.body_position - view.position + view.body_length)
    choices = {"header": range(body.start), "body": body, "properties": range(body.stop, view.size)}
    return rng.choice(choices[part])


def flip(disk: SimulatedDisk, record: RecordView, part: str, rng: random.Random, segment_bytes: int = 8192) -> int:
    """Flips one bit; returns the physical offset of its byte."""
    physical = record.physical_offset + position_in(record, part, rng)
    base = physical // segment_bytes * segment_bytes
    disk.flip_bit(LAYOUT.commit_log / offset_name(base), physical - base, rng.randrange(8))
    return physical


def delivered(store: MessageStore) -> Iterator[tuple[tuple[str, int, int], bytes]]:
    """What a consumer gets that reads every queue from its beginning to its end, and the place where it finds it."""
    for queue_id in range(QUEUES):
        queue = store.components.queues.get("orders", queue_id)
        offset, end = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
        while offset < end:
            result = run_sync(store.reader.read_steps("orders", queue_id, offset, 7))
            assert result.next_offset > offset, "a damaged record must not stop its queue"
            for record in result.slices:
                yield ("orders", queue_id, int.from_bytes(record[20:28], "big")), bytes(record)
            offset = result.next_offset
