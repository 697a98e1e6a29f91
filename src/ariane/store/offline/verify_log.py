"""Verifies the commit log: every byte belongs to a record, a blank record or the zeros at the end; and its checksums.

`FactColumns` holds what the other checks need of the records of one log file, as columns of numbers. A file of 1 GiB
may hold ten million records. As columns they take 40 bytes each, and a queue's entries are compared by one call of
numpy; as objects they would not fit into memory. The columns are emptied after each file.

`ChecksumCheck` compares each block of the log with its checksum. A checksum covers only what was durable when it was
made, so this also works for a store that crashed and for one that is running. Blocks without a checksum (Apache's
files, older files, the last moments before a crash) have only the other checks, and the report says how many bytes
those are: what is not known is not shown as fine.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ariane.errors import RecordError
from ariane.model.message import Property
from ariane.model.system_topics import SCHEDULE
from ariane.store.commit_log.checksums import DAMAGED, NOT_KNOWN, ChecksumFile, checksum_of, open_checksums
from ariane.store.commit_log.scan import DataFile, LogItem, walk_files
from ariane.store.disk import Disk, File
from ariane.store.dispatch import is_queued
from ariane.store.index.entries import key_hashes, topic_hash
from ariane.store.layout import Layout, offset_name, offset_of
from ariane.store.offline.verify_report import Fix, Report
from ariane.wire.record.read import BlankRecord, BrokenRecord, DispatchFacts, Fault, RecordView, verify
from ariane.wire.sys_flag import SysFlag, transaction_type

# --- facts of the records of one file ---

Longs = npt.NDArray[np.int64]
Queue = tuple[str, int]

_ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)
_HASHED_AT_ONCE = 4096
_NUMBERS_A_RECORD = 7
NOT_QUEUED = -1


@dataclass(frozen=True, slots=True)
class FactColumns:
    """One row per record, in the order of the log; one key row per index key, with the number of its record."""

    offsets: Longs
    sizes: Longs
    queues: Longs
    """Number of the record's queue in `queue_names`; NOT_QUEUED for a prepared or rolled back message."""
    queue_offsets: Longs
    tags_codes: Longs
    is_delayed: npt.NDArray[np.bool_]
    """The entry holds a delivery time in place of the tags code."""
    store_times_ms: Longs
    key_records: Longs
    key_hashes: Longs
    queue_names: Sequence[Queue]


class FactCollector:
    def __init__(self) -> None:
        self._queue_numbers: dict[Queue, int] = {}
        self._clear()

    def _clear(self) -> None:
        self._rows = array("q")
        """Seven numbers per record: one call that adds them all costs less than seven."""
        self._records = 0
        self._key_records = array("q")
        self._key_hashes: list[npt.NDArray[np.int32]] = []
        self._topics = array("I")
        self._keys: list[str] = []

    def add(self, view: RecordView, offset: int) -> None:
        """RecordError when the properties are not text."""
        facts = view.dispatch_facts()
        is_delayed = view.topic == SCHEDULE and Property.DELAY in view.properties()
        self._rows.extend(
            (
                offset,
                view.size,
                self._queue_number(view),
                view.queue_offset,
                facts.tags_code,
                is_delayed,
                view.store_timestamp_ms,
            )
        )
        if transaction_type(view.sys_flag) != _ROLLBACK:
            self._add_keys(view.topic, facts)
        self._records += 1

    def _queue_number(self, view: RecordView) -> int:
        if not is_queued(view.sys_flag):
            return NOT_QUEUED
        return self._queue_numbers.setdefault((view.topic, view.queue_id), len(self._queue_numbers))

    def _add_keys(self, topic: str, facts: DispatchFacts) -> None:
        keys = [facts.unique_key, *facts.keys] if facts.unique_key else facts.keys
        self._keys.extend(keys)
        self._key_records.extend([self._records] * len(keys))
        self._topics.extend([topic_hash(topic)] * len(keys))
        if len(self._keys) >= _HASHED_AT_ONCE:
            self._hash()

    def _hash(self) -> None:
        if self._keys:
            self._key_hashes.append(key_hashes(np.frombuffer(self._topics, np.uint32), self._keys))
            self._topics, self._keys = array("I"), []

    def take(self) -> FactColumns:
        """Returns the columns and empties them. Queues keep their numbers."""
        self._hash()
        columns = _longs(self._rows).reshape(-1, _NUMBERS_A_RECORD).T
        facts = FactColumns(
            offsets=columns[0],
            sizes=columns[1],
            queues=columns[2],
            queue_offsets=columns[3],
            tags_codes=columns[4],
            is_delayed=columns[5] != 0,
            store_times_ms=columns[6],
            key_records=_longs(self._key_records),
            key_hashes=np.concatenate([*self._key_hashes, np.zeros(0, np.int32)]).astype(np.int64),
            queue_names=list(self._queue_numbers),
        )
        self._clear()
        return facts


def _longs(column: "array[int]") -> Longs:
    return np.frombuffer(column, np.int64) if column else np.zeros(0, np.int64)


# --- the log ---

_LARGE_PORT = slice(-4, -2)  # a port is stored in 32 bits, of which the upper half is zero


class LogCheck:
    """Scans the log once. A broken record is damage only if a valid one follows it; otherwise it is the log's end.

    After a crash, a broken record at or above `durable_to` is the end, too: a power cut may lose pages in any order.
    """

    def __init__(
        self,
        report: Report,
        disk: Disk,
        files: Sequence[DataFile],
        progress: Callable[[int], None],
        durable_to: int | None = None,
    ) -> None:
        self._report = report
        self._disk = disk
        self._files = files
        self._progress = progress
        self._durable_to = durable_to
        self._truncated = 0
        self._facts = FactCollector()
        self._broken: list[LogItem] = []
        self._newest_ms = 0
        self._went_back = 0
        self.begin = files[0].base if files else 0
        self.end = self.begin
        """End of the last valid record."""

    def columns(self) -> Iterator[FactColumns]:
        """The facts of each file's records, for the checks of queues and index."""
        for file in self._files:
            try:
                for item in walk_files(self._disk, [file], progress=self._progress):
                    self._take(item)
            except OSError as error:
                self._report.fault(file.path, 0, f"it cannot be read: {error.strerror}", Fix.RESTORE)
            yield self._facts.take()

    def _take(self, item: LogItem) -> None:
        if self._is_truncated(item):
            self._truncated += isinstance(item.verdict, RecordView)
        elif isinstance(item.verdict, RecordView):
            self._report_broken()
            self._take_record(item, item.verdict)
        elif isinstance(item.verdict, BlankRecord):
            self._take_blank(item, item.verdict)
        else:
            self._take_broken(item, item.verdict)
            self._broken.append(item._replace(buffer=b""))  # so that many of them do not keep many windows in memory

    def _is_truncated(self, item: LogItem) -> bool:
        """Whether recovery will end the log before this item."""
        if self._durable_to is None or not self._broken or self._broken[0].offset < self._durable_to:
            return False
        return self._truncated > 0 or not isinstance(item.verdict, BrokenRecord)

    def _take_record(self, item: LogItem, view: RecordView) -> None:
        self._check_record(item, view)
        self._count(view)
        self._add_facts(item, view)
        self.end = item.offset + item.size

    def _check_record(self, item: LogItem, view: RecordView) -> None:
        if view.physical_offset != item.offset:
            self._fault(item, f"a record at {item.offset} that says it is at {view.physical_offset}")
        if not view.body_length and view.body_crc:
            self._fault(item, f"a record without a body has the checksum {view.body_crc:#x}, not 0")
        if any(view.born_host[_LARGE_PORT]) or any(view.store_host[_LARGE_PORT]):
            self._fault(item, "a host of the record has a port above 65535")

    def _count(self, view: RecordView) -> None:
        summary = self._report.summary
        summary.records += 1
        summary.record_bytes += view.size
        if summary.oldest_ms is None or view.store_timestamp_ms < summary.oldest_ms:
            summary.oldest_ms = view.store_timestamp_ms
        if view.store_timestamp_ms < self._newest_ms:
            self._went_back += 1
        self._newest_ms = max(self._newest_ms, view.store_timestamp_ms)
        summary.newest_ms = self._newest_ms

    def _add_facts(self, item: LogItem, view: RecordView) -> None:
        try:
            self._facts.add(view, item.offset)
        except RecordError as error:
            self._fault(item, str(error))

    def _take_blank(self, item: LogItem, blank: BlankRecord) -> None:
        if blank.size != item.size:
            self._fault(item, f"a blank record of {blank.size} bytes, {item.size} are left in the file")
        else:
            self._report_broken()

    def _take_broken(self, item: LogItem, broken: BrokenRecord) -> None:
        """A record whose body alone is damaged still has its entry in its queue."""
        if broken.fault is Fault.BAD_CRC:
            view = verify(item.buffer, broken.position, check_body_crc=False)
            if isinstance(view, RecordView) and view.physical_offset == item.offset:
                self._add_facts(item, view)

    def _report_broken(self) -> None:
        for item in self._broken:
            assert isinstance(item.verdict, BrokenRecord)
            self._fault(item, f"no whole record in {item.size} bytes: {item.verdict.reason}")
        self._broken.clear()

    def finish(self, dispatched_to: int) -> None:
        """Checks what follows the last valid record. The queues end at `dispatched_to`."""
        summary = self._report.summary
        summary.log_begins, summary.log_ends = self.begin, self.end
        if self._went_back:
            self._report.note(f"the store time goes back {self._went_back} times: a clock was set, or bytes changed")
        if self._truncated:
            where = self._broken[0].offset
            self._report.note(
                f"the log ends at {where}: {self._truncated} records after it were not durable and will be dropped"
            )
        rest = [item for item in self._broken if not item.is_zeros]
        if rest:
            self._report_rest(rest[0], rest[-1].offset + rest[-1].size - rest[0].offset, dispatched_to)
        unused = [item for item in self._broken if item.is_zeros and item.size == item.file.size]
        if unused:
            self._report.note(f"{len(unused)} commit log files were created ahead and not used yet")

    def _report_rest(self, item: LogItem, length: int, dispatched_to: int) -> None:
        assert isinstance(item.verdict, BrokenRecord)
        what = f"{length} bytes after the last record that are not zero: {item.verdict.reason}"
        position = item.offset - item.file.base
        if dispatched_to > item.offset and not self._report.is_unclean:
            self._report.fault(item.file.path, position, f"{what}; queues point behind it", Fix.RESTORE)
        else:
            self._report.note(f"{self._report.name(item.file.path)}, byte {position}: {what}; new records overwrite it")

    def _fault(self, item: LogItem, what: str) -> None:
        self._report.fault(item.file.path, item.offset - item.file.base, what, Fix.RESTORE)


# --- block checksums ---


class _ChangedBlock(NamedTuple):
    """A block whose bytes do not match its checksum. Physical offsets."""

    begin: int
    end: int
    actual: int
    expected: int


class ChecksumCheck:
    def __init__(self, report: Report, disk: Disk, layout: Layout) -> None:
        self._report = report
        self._disk = disk
        self._directory = layout.commit_log_checksums
        self._covered = 0
        self._covered_to = 0
        self._bases: set[int] = set()

    def compare(self, file: DataFile, columns: FactColumns) -> None:
        """Checks one file of the log; `columns` are its records."""
        self._bases.add(file.base)
        path = self._directory / offset_name(file.base)
        if self._disk.size(path) is None or not file.size:
            return
        try:
            checksums = open_checksums(self._disk, path, file.base, file.size)
            if checksums is None:
                self._report.lagging(path, 0, "its head is damaged, or it was made for another log file", Fix.CHECKSUMS)
                return
            with closing(checksums):
                self._compare(file, checksums, columns)
        except FileNotFoundError:
            return  # a running broker has just removed it
        except OSError as error:
            self._report.fault(path, 0, f"it cannot be read: {error.strerror}", Fix.CHECKSUMS)

    def _compare(self, file: DataFile, checksums: ChecksumFile, columns: FactColumns) -> None:
        known, changed = 0, []
        with closing(self._disk.open(file.path, writable=False)) as handle:
            for number, expected in enumerate(checksums.read()):
                if expected == DAMAGED:
                    self._report_damaged_checksum(checksums, number)
                elif expected != NOT_KNOWN:
                    known += 1
                    begin = checksums.blocks.begin_of(number)
                    actual = self._checksum_of(handle, file, begin, expected.covered_to)
                    if actual is not None and actual != expected.crc:
                        changed.append(_ChangedBlock(begin, expected.covered_to, actual, expected.crc))
        self._report_changed(file, known, changed, columns)

    def _report_damaged_checksum(self, checksums: ChecksumFile, number: int) -> None:
        """In a running store it may have been read while it was being written."""
        position = checksums.blocks.position_of(number)
        what = f"the checksum of block {number} is damaged, so the block cannot be checked"
        if self._report.is_unclean:
            self._report.note(f"{self._report.name(checksums.path)}, byte {position}: {what}")
        else:
            self._report.fault(checksums.path, position, what, Fix.CHECKSUMS)

    def _checksum_of(self, handle: File, file: DataFile, begin: int, end: int) -> int | None:
        """None when the disk cannot read it, which the scan of the records has reported."""
        try:
            data = handle.read(end - begin, begin - file.base)
        except OSError:
            return None
        self._covered += end - begin
        self._covered_to = max(self._covered_to, end)
        return checksum_of(data)

    def _report_changed(self, file: DataFile, known: int, changed: list[_ChangedBlock], columns: FactColumns) -> None:
        if len(changed) == known > 1:
            what = f"none of its {known} blocks with a checksum holds the bytes that were written: it is another file"
            self._report.fault(file.path, 0, what, Fix.REPLACED)
            return
        for block in changed:
            first, last = block.begin - file.base, block.end - file.base - 1
            what = f"bytes {first} to {last} are not those that were written: their checksum is {block.actual:#010x}, "
            what += f"it was {block.expected:#010x}; {_records_in(block, columns)}"
            self._report.fault(file.path, first, what, Fix.RESTORE)

    def finish(self, log_begin: int, log_end: int) -> None:
        summary = self._report.summary
        summary.summed_bytes = self._covered
        summary.log_bytes = max(log_end, self._covered_to) - log_begin
        missing = summary.log_bytes - summary.summed_bytes
        if missing:
            self._report.note(
                f"block checksums cover {summary.summed_bytes} of {summary.log_bytes} bytes of the log: in the other "
                f"{missing} a changed time, host, flag or free property is not detected"
            )
        self._note_strays()

    def _note_strays(self) -> None:
        bases = [offset_of(name) for name in self._disk.names(self._directory)]
        strays = [base for base in bases if base is not None and base not in self._bases]
        if strays:
            self._report.note(
                f"{self._report.name(self._directory)} holds checksums of {len(strays)} deleted log files, "
                f"the first is {offset_name(strays[0])}; the next start removes them"
            )


def _records_in(block: _ChangedBlock, columns: FactColumns) -> str:
    """The records that overlap the block."""
    inside = (columns.offsets < block.end) & (columns.offsets + columns.sizes > block.begin)
    offsets = columns.offsets[inside]
    if not len(offsets):
        return "no valid record is there"
    return f"{len(offsets)} valid records are there, at physical offsets {offsets[0]} to {offsets[-1]}"
