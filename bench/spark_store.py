"""Creates a store directory for the readers: one topic in four queues, in files of 1 GiB.

The records of one block are encoded once, then copied with new offsets: this takes seconds, and a broker would take
minutes. The store has queues, but no index.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ariane.arrow.gather import ByteGatherer
from ariane.arrow.walk import Walk
from ariane.store.consume_queue.entry import ENTRY_BYTES
from ariane.store.consume_queue.scan import ENTRY_TYPE
from ariane.store.layout import Layout, offset_name
from ariane.wire.hashes import tags_code
from ariane.wire.record.layout import pack_blank
from ariane.wire.record.numpy_fields import HEAD_TYPE
from bench.arrow import make_log

TOPIC = "BenchTopic"
QUEUES = 4
SEGMENT_BYTES = 1 << 30
_BLOCK_BYTES = 8 << 20
_ENTRIES_PER_FILE = 300_000


@dataclass(frozen=True, slots=True)
class BenchStore:
    root: Path
    rows: int
    bytes: int


def make_store(root: Path, body_bytes: int, log_bytes: int) -> BenchStore:
    block = _Block(make_log(body_bytes, min(_BLOCK_BYTES, log_bytes)))
    layout = Layout.under(root)
    layout.commit_log.mkdir(parents=True)
    places: list[npt.NDArray[np.int64]] = []
    rows = base = 0
    while base < log_bytes:
        with (layout.commit_log / offset_name(base)).open("wb") as file:
            while file.tell() + len(block) + 8 <= SEGMENT_BYTES and base + file.tell() < log_bytes:
                places.append(block.starts + base + file.tell())
                file.write(block.moved_to(base + file.tell(), rows))
                rows += len(block.starts)
            left = SEGMENT_BYTES - file.tell()
            file.write(pack_blank(left))
            file.truncate(SEGMENT_BYTES)
        base += SEGMENT_BYTES
    _write_queues(layout, np.concatenate(places), np.tile(block.sizes, len(places)))
    return BenchStore(root, rows, log_bytes)


class _Block:
    def __init__(self, log: bytes) -> None:
        walk = Walk(ByteGatherer(log), len(log), 0)
        found = [span.rows for span in walk.spans(0, len(log))]
        count = sum(map(len, found)) // QUEUES * QUEUES
        self.starts = np.concatenate([rows.position for rows in found])[:count]
        self.sizes = np.concatenate([rows.field("size", np.int64) for rows in found])[:count]
        self._bytes = np.frombuffer(log, np.uint8)[: self.starts[-1] + self.sizes[-1]].copy()
        self._view = ByteGatherer(self._bytes.data).at_every_byte(">i8")
        self._numbers = np.arange(count) // QUEUES

    def __len__(self) -> int:
        return len(self._bytes)

    def moved_to(self, base: int, rows_before: int) -> bytes:
        place = {name: HEAD_TYPE.fields[name][1] for name in ("queueOffset", "physicalOffset")}  # type: ignore[index]
        self._view[self.starts + place["queueOffset"]] = self._numbers + rows_before // QUEUES
        self._view[self.starts + place["physicalOffset"]] = self.starts + base
        return self._bytes.tobytes()


def _write_queues(layout: Layout, places: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> None:
    tags = np.array([tags_code(f"Tag{letter}") for letter in "ABC"], np.int64)
    for queue in range(QUEUES):
        entries = np.zeros(len(places[queue::QUEUES]), ENTRY_TYPE)
        entries["offset"], entries["size"] = places[queue::QUEUES], sizes[queue::QUEUES]
        entries["tags"] = tags[np.arange(queue, len(places), QUEUES) % 3]
        directory = layout.queue(TOPIC, queue)
        directory.mkdir(parents=True)
        for first in range(0, len(entries), _ENTRIES_PER_FILE):
            with (directory / offset_name(first * ENTRY_BYTES)).open("wb") as file:
                file.write(entries[first : first + _ENTRIES_PER_FILE].tobytes())
                file.truncate(_ENTRIES_PER_FILE * ENTRY_BYTES)
