"""A commit log opened for reading beside a broker that may be writing it: nothing is locked, nothing is written.

Files are mapped, because rows of one topic are a few pages among many. A broker appends to files that have their full
size from the start, and what is read here lies below a position that it has left behind, so a mapping never changes
under a reader; a file that retention removes stays readable for whoever has mapped it.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from ariane.arrow.source import Source
from ariane.arrow.walk import Walk
from ariane.errors import StoreCorrupt, StoreMismatch
from ariane.store.disk import Disk, RealDisk
from ariane.store.scan import DataFile, list_files
from ariane.wire.record_view import RecordView, verify


def map_file(disk: Disk, path: Path) -> memoryview:
    """The bytes of a file, valid as long as somebody holds them; StoreMismatch when it is not there any more."""
    try:
        file = disk.open(path, writable=False)
    except FileNotFoundError:
        raise StoreMismatch(
            f"{path} is gone since it was found: retention may have removed it; read again from what is left"
        ) from None
    except OSError as error:
        raise StoreCorrupt(f"{path} cannot be read: {error.strerror}") from error
    try:
        return file.view() if file.size else memoryview(b"")
    except OSError as error:
        raise StoreCorrupt(f"{path} cannot be mapped: {error.strerror}") from error
    finally:
        file.close()


class LogFiles:
    """The files of one commit log as they were when this was made."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self._disk = disk or RealDisk()
        self.files = [file for file in list_files(self._disk, directory) if file.size]
        self._mapped: tuple[DataFile, Source] | None = None

    @property
    def begin(self) -> int:
        return self.files[0].base if self.files else 0

    @property
    def end(self) -> int:
        return self.files[-1].end if self.files else 0

    def gaps(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Where files are missing between `begin` and `end`."""
        inside = [file for file in self.files if file.base < end and file.end > begin]
        return [(before.end, after.base) for before, after in pairwise(inside) if after.base > before.end]

    def find(self, offset: int) -> DataFile | None:
        return next((file for file in self.files if file.base <= offset < file.end), None)

    def walk(self, file: DataFile, limit: int) -> Walk:
        """A walk over one file, of which bytes from the physical offset `limit` on do not count."""
        if self._mapped is None or self._mapped[0] is not file:
            self._mapped = file, Source(map_file(self._disk, file.path))
        source = self._mapped[1]
        return Walk(source, max(0, min(len(source), limit - file.base)), file.base)

    def record_at(self, offset: int, limit: int) -> RecordView | None:
        """The record that begins at a physical offset and ends before `limit`; None when there is none."""
        file = self.find(offset)
        if file is None:
            return None
        walk = self.walk(file, limit)
        view = verify(walk.source.view, offset - file.base, end=walk.limit, check_body_crc=False)
        return view if isinstance(view, RecordView) and view.physical_offset == offset else None

    def bytes_at(self, offset: int, length: int) -> bytes:
        """What stands there, as far as one file holds it; nothing when its file is gone."""
        file = self.find(offset)
        if file is None:
            return b""
        view = self.walk(file, file.end).source.view
        return bytes(view[offset - file.base : offset - file.base + length])

    def overlapping(self, begin: int, end: int) -> Iterator[DataFile]:
        return (file for file in self.files if file.base < end and file.end > begin)
