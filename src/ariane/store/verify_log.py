"""The commit log checked: every byte of every file belongs to a record, to a blank, or to the zeros at the end."""

from collections.abc import Callable, Iterator, Sequence

from ariane.errors import RecordError
from ariane.store.disk import Disk
from ariane.store.scan import DataFile, LogItem, walk_files
from ariane.store.verify_facts import FactColumns, LogFacts
from ariane.store.verify_report import Cure, Report
from ariane.wire.record_view import BlankRecord, BrokenRecord, Fault, RecordView, verify

_LARGE_PORT = slice(-4, -2)  # a port is stored in 32 bits, of which the upper half is zero


class LogCheck:
    """Walks the log once. What is broken counts as damage only when something whole follows it: else it is the end.

    After a crash, what is broken at or above `durable_to` is the end, too: a power cut may lose pages in any order.
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
        self._cut = 0
        self._facts = LogFacts()
        self._broken: list[LogItem] = []
        self._newest_ms = 0
        self._went_back = 0
        self.begin = files[0].base if files else 0
        self.end = self.begin
        """Behind the last whole record."""

    def columns(self) -> Iterator[FactColumns]:
        """What the records of each file say, for the checks of queues and index."""
        for file in self._files:
            try:
                for item in walk_files(self._disk, [file], progress=self._progress):
                    self._take(item)
            except OSError as error:
                self._report.fault(file.path, 0, f"it cannot be read: {error.strerror}", Cure.RESTORE)
            yield self._facts.take()

    def _take(self, item: LogItem) -> None:
        if self._is_cut(item):
            self._cut += isinstance(item.verdict, RecordView)
        elif isinstance(item.verdict, RecordView):
            self._tell_damage()
            self._take_record(item, item.verdict)
        elif isinstance(item.verdict, BlankRecord):
            self._take_blank(item, item.verdict)
        else:
            self._take_broken(item, item.verdict)
            self._broken.append(item._replace(buffer=b""))  # many of them must not hold many windows

    def _is_cut(self, item: LogItem) -> bool:
        """Whether recovery will end the log before this item."""
        if self._durable_to is None or not self._broken or self._broken[0].offset < self._durable_to:
            return False
        return self._cut > 0 or not isinstance(item.verdict, BrokenRecord)

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
            self._tell_damage()

    def _take_broken(self, item: LogItem, broken: BrokenRecord) -> None:
        """A record whose body alone is damaged still has its entry in its queue."""
        if broken.fault is Fault.BAD_CRC:
            view = verify(item.buffer, broken.position, check_body_crc=False)
            if isinstance(view, RecordView) and view.physical_offset == item.offset:
                self._add_facts(item, view)

    def _tell_damage(self) -> None:
        for item in self._broken:
            assert isinstance(item.verdict, BrokenRecord)
            self._fault(item, f"no whole record in {item.size} bytes: {item.verdict.reason}")
        self._broken.clear()

    def finish(self, dispatched_to: int) -> None:
        """Judges what stands behind the last whole record. Queues reach to `dispatched_to`."""
        summary = self._report.summary
        summary.log_begins, summary.log_ends = self.begin, self.end
        if self._went_back:
            self._report.note(f"the store time goes back {self._went_back} times: a clock was set, or bytes changed")
        if self._cut:
            where = self._broken[0].offset
            self._report.note(f"the log ends at {where}: {self._cut} records behind it were not durable and will go")
        rest = [item for item in self._broken if not item.is_zeros]
        if rest:
            self._tell_rest(rest[0], rest[-1].offset + rest[-1].size - rest[0].offset, dispatched_to)
        unused = [item for item in self._broken if item.is_zeros and item.size == item.file.size]
        if unused:
            self._report.note(f"{len(unused)} commit log files were made ready and not used yet")

    def _tell_rest(self, item: LogItem, length: int, dispatched_to: int) -> None:
        assert isinstance(item.verdict, BrokenRecord)
        what = f"{length} bytes after the last record that are not zero: {item.verdict.reason}"
        position = item.offset - item.file.base
        if dispatched_to > item.offset and not self._report.is_unclean:
            self._report.fault(item.file.path, position, f"{what}; queues point behind it", Cure.RESTORE)
        else:
            self._report.note(f"{self._report.name(item.file.path)}, byte {position}: {what}; new records overwrite it")

    def _fault(self, item: LogItem, what: str) -> None:
        self._report.fault(item.file.path, item.offset - item.file.base, what, Cure.RESTORE)
