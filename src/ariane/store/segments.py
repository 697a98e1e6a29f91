"""A run of files of equal size that together are one long array of bytes: the commit log, or one consume queue.

name = offset of the first byte      00000000000000000000  00000000001073741824  00000000002147483648
                                     |--- segment_bytes --||-------------------||-------------------|
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ariane.errors import StoreMismatch
from ariane.store.disk import Disk, File
from ariane.store.layout import offset_name, offset_of
from ariane.store.steps import Steps, at_once


@dataclass(eq=False, slots=True)
class Segment:
    base: int
    path: Path
    file: File
    end: int = field(init=False)

    def __post_init__(self) -> None:
        self.end = self.base + self.file.size


class Segments:
    """Oldest first, without gaps. Opens what is there; `add` appends, `drop_*` remove from either end."""

    def __init__(self, disk: Disk, directory: Path, segment_bytes: int, *, writable: bool) -> None:
        self._disk = disk
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._writable = writable
        self._segments: list[Segment] = []
        for name in disk.names(directory):
            base = offset_of(name)
            if base is not None and not self._is_unfinished(name):
                self._open(name, base)

    def _is_unfinished(self, name: str) -> bool:
        """A file whose name outlived a crash and whose size did not: nothing was ever written to it."""
        path = self._directory / name
        if self._disk.size(path):
            return False
        if self._writable:
            self._disk.remove(path)
        return True

    def _open(self, name: str, base: int) -> None:
        path = self._directory / name
        size = self._disk.size(path)
        if size != self._segment_bytes:
            raise StoreMismatch(
                f"{path} has {size} bytes, the settings say {self._segment_bytes}: set the size that the store was "
                "written with, or move the file away"
            )
        if self._segments and base != self._segments[-1].end:
            raise StoreMismatch(f"{path} does not follow {self._segments[-1].path}: a file between them is missing")
        self._segments.append(Segment(base, path, self._disk.open(path, writable=self._writable)))

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def segment_bytes(self) -> int:
        return self._segment_bytes

    @property
    def first(self) -> Segment | None:
        return self._segments[0] if self._segments else None

    @property
    def last(self) -> Segment | None:
        return self._segments[-1] if self._segments else None

    @property
    def base(self) -> int:
        """The first offset that is there, 0 when nothing is."""
        return self._segments[0].base if self._segments else 0

    def find(self, offset: int) -> Segment | None:
        """The segment that holds `offset`."""
        segments = self._segments
        index = (offset - segments[0].base) // self._segment_bytes if segments else -1
        return segments[index] if 0 <= index < len(segments) else None

    def before(self, offset: int) -> list[Segment]:
        """The segments that end at or before `offset`."""
        return [segment for segment in self._segments if segment.end <= offset]

    def create(self, base: int, *, allocated: int) -> Segment:
        """A new file, durable as an empty one. Changes nothing here, so a thread may do it; then `adopt` it."""
        path = self._directory / offset_name(base)
        file = self._disk.create(path, self._segment_bytes, allocated=allocated)
        try:
            file.sync()
            self._disk.sync_directory(self._directory)
        except OSError:  # nothing was ever in it; its name must not stand in the way of the next attempt
            file.close()
            self._disk.remove(path)
            raise
        return Segment(base, path, file)

    def adopt(self, segment: Segment) -> None:
        assert not self._segments or segment.base == self._segments[-1].end, "segments follow each other"
        self._segments.append(segment)

    def drop_first(self) -> Segment:
        """Forgets and unlinks the oldest. Readers that hold its view keep it until they let go."""
        return at_once(self.dropping_first())

    def dropping_first(self) -> Steps[Segment]:
        """The same step by step: to give back the blocks of a large file takes a while.

        It is forgotten first, so nobody finds it any more while a thread removes it; and a number is never used again,
        so its name is no other file's.
        """
        segment = self._segments.pop(0)
        yield partial(self._remove, segment)
        return segment

    def drop_last(self) -> Segment:
        segment = self._segments.pop()
        self._remove(segment)
        return segment

    def _remove(self, segment: Segment) -> None:
        segment.file.close()
        self._disk.remove(segment.path)
        self._disk.sync_directory(self._directory)  # one by one: a crash must not undo one removal and keep the next

    def close(self) -> None:
        for segment in self._segments:
            segment.file.close()
        self._segments.clear()
