"""Where the commit log really ends: after a clean stop, a crash of the process, a crash of the machine.

Two kinds of bad record look alike and mean different things. Above what was durable it is a torn tail: nobody was told
that it was stored, so the log ends before it. Below, it is corruption: messages behind it were acknowledged. Then its
bytes are put aside for a human, the walk finds the next record, and nothing is cut off.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ariane.errors import StoreCorrupt
from ariane.store.checkpoint import Checkpoint, LastExit
from ariane.store.disk import Disk, File, replace_all
from ariane.store.segments import Segment, Segments
from ariane.store.usual_records import RECORDS_MAX, UsualRecords, read_usual
from ariane.wire.record import MAGIC_V1, MAGIC_V2
from ariane.wire.record_view import BlankRecord, BrokenRecord, RecordView, verify

log = logging.getLogger(__name__)

_MAGICS = tuple(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))
_ZERO_CHUNK = 1024 * 1024
_APACHE_SLACK_MS = 3_000
_ALONE_MIN = 8
"""How many records are looked at one by one behind an unusual one; twice as many each time there is another at once."""


@dataclass(slots=True)
class LogWalk:
    """Walks records from `start` to the end of the log and remembers what it met on the way."""

    disk: Disk
    segments: Segments
    start: int
    durable_to: int
    size_max: int
    quarantine: Path
    end: int = 0
    last_timestamp_ms: int = 0
    records: int = 0
    quarantined: list[Path] = field(default_factory=list)
    _alone: int = 0
    _alone_next: int = _ALONE_MIN

    def whole_records(self) -> Iterator[RecordView | UsualRecords]:
        """Every whole record, many at once where they are usual; `end` is set when they are exhausted."""
        self.end = position = self.start
        files_end = self.segments.last.end if self.segments.last is not None else 0
        if self.start > files_end:
            raise StoreCorrupt(
                f"the commit log was durable up to {self.start}, but its files end at {files_end}: restore them. Or, "
                "to begin anew without those messages, remove `checkpoint`, `consumequeue` and `index`"
            )
        while (segment := self.segments.find(position)) is not None:
            usual = self._usual(segment, position)
            if usual is not None:
                self.records += len(usual.physical)
                self.last_timestamp_ms = max(self.last_timestamp_ms, *usual.timestamps_ms)
                yield usual
                self.end = position = segment.base + usual.end
                continue
            verdict = verify(segment.file.view(), position - segment.base, size_max=self.size_max)
            if isinstance(verdict, RecordView) and self._is_whole(verdict, position):
                self.records += 1
                self.last_timestamp_ms = max(self.last_timestamp_ms, verdict.store_timestamp_ms)
                yield verdict
                position += verdict.size
            elif isinstance(verdict, BlankRecord) and position + verdict.size == segment.end:
                position = segment.end
                continue  # a blank alone does not move the end: nothing follows it yet
            elif position < self.durable_to:
                position = self._pass_corruption(segment, position, verdict)
            else:
                return
            self.end = position

    def _usual(self, segment: Segment, position: int) -> UsualRecords | None:
        """None when the next record is to be looked at alone: behind an unusual one there are often more of them."""
        if self._alone:
            self._alone -= 1
            return None
        usual = read_usual(segment.file.view(), position - segment.base, segment.base, self.size_max)
        if usual is None:
            self._alone = self._alone_next
            self._alone_next = min(2 * self._alone_next, RECORDS_MAX)
        else:
            self._alone_next = _ALONE_MIN
        return usual

    def _is_whole(self, view: RecordView, position: int) -> bool:
        """A record may end on a page that a power cut lost, and its checksum covers the body alone. Such a page reads
        as zeros, which no topic and no property text holds.
        """
        if view.physical_offset != position:
            return False  # an old record, from a log that went on differently
        return position < self.durable_to or not ("\0" in view.topic or b"\0" in view.property_text)

    def _pass_corruption(self, segment: Segment, position: int, verdict: object) -> int:
        """Puts the damaged bytes aside; where the next whole record begins."""
        reason = verdict.reason if isinstance(verdict, BrokenRecord) else "a record that belongs elsewhere"
        following = _next_record(segment, position, min(self.durable_to, segment.end), self.size_max)
        if following is None:
            raise StoreCorrupt(
                f"{segment.path}: byte {position - segment.base} should begin a record and does not ({reason}), and no "
                f"record follows up to {self.durable_to}, below which all was durable. Restore the file from a copy or "
                "a replica; `ariane store verify` shows what is damaged"
            )
        kept = self.quarantine / f"{position:020d}-{following - position}"
        self.disk.make_directory(self.quarantine)
        replace_all(self.disk, kept, bytes(segment.file.view()[position - segment.base : following - segment.base]))
        self.quarantined.append(kept)
        log.error(
            "corruption below the durable offset: bytes put aside",
            extra={"file": str(segment.path), "offset": position, "bytes": following - position, "reason": reason},
        )
        return following


def _next_record(segment: Segment, position: int, end: int, size_max: int) -> int | None:
    """The first offset after `position` where a whole record says that it belongs there; `end` of a file counts too."""
    view = segment.file.view()
    data = bytes(view[position - segment.base : end - segment.base])
    at = 1
    while True:
        hits = [hit for magic in _MAGICS if (hit := data.find(magic, at + 4)) >= 0]
        if not hits:
            return segment.end if end == segment.end else None
        at = min(hits) - 4
        found = verify(view, position - segment.base + at, size_max=size_max)
        if isinstance(found, RecordView) and found.physical_offset == position + at:
            return position + at
        at += 1


def start_of_walk(segments: Segments, checkpoint: Checkpoint, exit_: LastExit, queued_to: int) -> int:
    """Where to begin: as far on as is known to be whole and dispatched. `queued_to`: how far the queues reach."""
    if checkpoint.is_ours:
        known = checkpoint.written_to if exit_ is LastExit.PROCESS_CRASH else checkpoint.dispatched_to
        return max(segments.base, known)
    return _start_like_apache(segments, checkpoint, exit_, max(segments.base, queued_to))


def _start_like_apache(segments: Segments, checkpoint: Checkpoint, exit_: LastExit, queued_to: int) -> int:
    """A store that Apache wrote, or a log that came alone: by files, because its checkpoint has only times."""
    files = list(segments)
    if exit_ is LastExit.CLEAN:
        return min(files[max(0, len(files) - 3)].base, queued_to) if files else 0
    safe_ms = min(checkpoint.physic_timestamp_ms, checkpoint.logics_timestamp_ms) - _APACHE_SLACK_MS
    for segment in reversed(files):
        first = verify(segment.file.view(), 0, check_body_crc=False)
        if isinstance(first, RecordView) and 0 < first.store_timestamp_ms <= safe_ms:
            return segment.base
    return segments.base


def end_log(segments: Segments, end: int) -> None:
    """Makes `end` the end: files beyond it go, and what stands behind it in its own file is zeroed and synced.

    Otherwise old records there, whole by themselves, would come back behind new ones after the next crash.
    """
    while segments.last is not None and segments.last.base > end:
        segments.drop_last()
    segment = segments.find(end)
    if segment is not None and _zero_from(segment.file, end - segment.base):
        segment.file.sync()


def _zero_from(file: File, position: int) -> bool:
    """Whether anything had to be zeroed. Ranges that were never written are skipped."""
    changed = False
    zeros = bytes(_ZERO_CHUNK)
    for start, end in list(_data_chunks(file, position)):
        data = file.read(end - start, start)
        if data != zeros[: len(data)]:
            file.write(zeros[: len(data)], start)
            changed = True
    return changed


def _data_chunks(file: File, position: int) -> Iterator[tuple[int, int]]:
    """Ranges that may hold something, to be listed before one is read: the kernel reads ahead, and counts what it has
    read as data. One read would lead to the next, through a gigabyte of zeros that was only allocated."""
    while (start := file.next_data(position)) is not None:
        position = start + min(_ZERO_CHUNK - start % _ZERO_CHUNK, file.size - start)
        yield start, position
