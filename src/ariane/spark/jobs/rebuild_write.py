"""The second half of a rebuild: scratch files to queue files and index files, each made by one task, durable."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ariane.errors import StoreFull
from ariane.spark.jobs.rebuild_keys import ROW_TYPE, IndexRows
from ariane.store.consume_queues import ConsumeQueues
from ariane.store.disk import RealDisk
from ariane.store.index_entries import KeyRows
from ariane.store.index_file import IndexFile, Shape
from ariane.store.index_header import Header
from ariane.store.layout import offset_name
from ariane.store.queue_entry import ENTRY_BYTES, FILLER
from ariane.store.rebuild import BesideLayout
from ariane.store.scan_queue import ENTRY_TYPE, Entries
from ariane.store.settings import StoreSettings


@dataclass(frozen=True, slots=True)
class Place:
    """Entries of a queue, or rows of the index, in the scratch files of one stretch."""

    stretch: int
    at: int
    count: int


@dataclass(frozen=True, slots=True)
class QueueWork:
    topic: str
    queue_id: int
    first: int
    is_plain: bool
    """Whether its numbers follow each other without a gap from `first` on, as they nearly always do."""
    places: tuple[Place, ...]

    @property
    def entries(self) -> int:
        return sum(place.count for place in self.places)


@dataclass(frozen=True, slots=True)
class IndexWork:
    name: str
    slots: int
    entries: int
    before: Place | None
    """The last row of the file before this one: its time is where this one begins to count."""
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Target:
    root: str
    commit_log: str
    scratch: str
    queue_segment_bytes: int

    @property
    def layout(self) -> BesideLayout:
        return BesideLayout(Path(self.root), Path(self.commit_log))


def write_one(target: Target, work: list[QueueWork] | IndexWork) -> int:
    """How many entries the queues have now, or the index file."""
    try:
        if isinstance(work, IndexWork):
            return _write_index(target, work)
        return sum(_write_queue(target, queue) for queue in work)
    except OSError as error:
        raise StoreFull(f"{target.layout.root} cannot be written: {error.strerror}") from error


# --- queues ----------------------------------------------------------------------------------------------------------


def _write_queue(target: Target, work: QueueWork) -> int:
    if not work.is_plain:
        return _replay_queue(target, work)
    directory = target.layout.queue(work.topic, work.queue_id)
    RealDisk().make_directory(directory, synced=False)
    data = memoryview(b"".join(_entries(target, place).tobytes() for place in work.places))
    position = work.first * ENTRY_BYTES
    end = position + len(data)
    segment = target.queue_segment_bytes
    for base in range(position - position % segment, end, segment):
        part = data[max(base - position, 0) : base + segment - position]
        _write_segment(directory / offset_name(base), segment, max(position - base, 0), part)
    RealDisk().sync_directory(directory)
    RealDisk().sync_directory(directory.parent)
    return work.entries


def _write_segment(path: Path, size: int, begin: int, data: memoryview) -> None:
    """A queue that begins inside a file has fillers before it."""
    file = RealDisk().create(path, size, allocated=0)
    try:
        if begin:
            file.write(FILLER * (begin // ENTRY_BYTES), 0)
        file.write(data, begin)
        file.sync()
    finally:
        file.close()


def _replay_queue(target: Target, work: QueueWork) -> int:
    """A queue with gaps, or one that begins anew: entry by entry, by the rules of the running broker."""
    settings = StoreSettings(root=target.layout.root, queue_segment_bytes=target.queue_segment_bytes)
    queues = ConsumeQueues(RealDisk(), target.layout, settings.queue_segment_bytes, 8)
    try:
        queue = queues.get_or_create(work.topic, work.queue_id)
        for place in work.places:
            numbers = _read(target, place, "numbers", np.dtype(np.int64)).tolist()
            for number, entry in zip(numbers, _entries(target, place).tolist(), strict=True):
                queue.append_at(number, *entry)
            queue.write()
        for unsynced in queue.take_unsynced():
            unsynced.sync()
        return queue.max_offset - queue.min_offset
    finally:
        queues.close()


def _entries(target: Target, place: Place) -> Entries:
    return _read(target, place, "queues", ENTRY_TYPE)


def _read(target: Target, place: Place, kind: str, dtype: np.dtype[np.generic]) -> npt.NDArray[np.void]:
    path = Path(target.scratch) / f"{place.stretch}.{kind}"
    with path.open("rb") as file:
        return np.fromfile(file, dtype, place.count, offset=place.at * dtype.itemsize)


# --- the index -------------------------------------------------------------------------------------------------------


def _write_index(target: Target, work: IndexWork) -> int:
    rows = np.concatenate([_rows(target, place) for place in work.places])
    before = None if work.before is None else _rows(target, work.before)[0]
    header = Header.following(*((0, 0) if before is None else (int(before["stored_ms"]), int(before["physical"]))))
    file = IndexFile.create(RealDisk(), target.layout.index / work.name, Shape(work.slots, work.entries), header)
    try:
        file.publish(file.stage(KeyRows(rows["hash"].copy(), rows["physical"].copy(), rows["stored_ms"].copy())))
        file.sync()
    finally:
        file.close()
    return len(rows)


def _rows(target: Target, place: Place) -> IndexRows:
    return _read(target, place, "index", ROW_TYPE)


def index_works(counts: list[int], slots: int, entries: int, names: Iterator[str]) -> Iterator[IndexWork]:
    """A file is full with one entry less than it has places for. `counts` are the rows of each stretch."""
    room = entries - 1
    places: list[Place] = []
    free, before, last = room, None, None
    for stretch, count in enumerate(counts):
        at = 0
        while at < count:
            step = min(free, count - at)
            places.append(Place(stretch, at, step))
            at, free = at + step, free - step
            last = Place(stretch, at - 1, 1)
            if not free:
                yield IndexWork(next(names), slots, entries, before, tuple(places))
                places, free, before = [], room, last
    if places:
        yield IndexWork(next(names), slots, entries, before, tuple(places))
