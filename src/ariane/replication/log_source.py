"""What a master reads of its log for its slaves: raw bytes, which may begin and end inside a record."""

from ariane.store.blocking_io import IoSteps, UncachedBytes, read_bytes
from ariane.store.service import StoreService


class LogSource:
    """Bytes that this process wrote lately are in memory and are read at once; a thread reads all others."""

    def __init__(self, service: StoreService) -> None:
        self._service = service
        self._log = service.store.components.commit_log

    @property
    def end(self) -> int:
        return self._log.max_offset

    @property
    def begin(self) -> int:
        return self._log.min_offset

    @property
    def file_bytes(self) -> int:
        return self._log.segments.segment_bytes

    @property
    def last_file(self) -> int:
        """Where the last file begins."""
        return max(self.end - self.end % self.file_bytes, self.begin)

    @property
    def cached_from(self) -> int:
        """From here on everything is in memory."""
        return self._log.assume_cached_from

    def cached(self, offset: int, size_max: int) -> memoryview:
        """Bytes from `offset` on, not beyond its file; none when the file is gone."""
        base, end, view = self._log.window(offset)
        return view[offset - base : min(offset + size_max, end) - base]

    async def read(self, offset: int, size_max: int) -> bytes:
        """The same, read by a thread. OSError when the disk cannot read it."""
        return await self._service.run(self._read_steps(offset, size_max))

    def _read_steps(self, offset: int, size_max: int) -> IoSteps[bytes]:
        segment = self._log.segments.find(offset)
        size = 0 if segment is None else min(size_max, segment.end - offset, self.end - offset)
        if segment is None or size <= 0:
            return b""
        pieces: list[bytes] = []
        part = UncachedBytes(segment.file, offset - segment.base, size)
        yield lambda: pieces.append(read_bytes(part))
        return pieces[0]
