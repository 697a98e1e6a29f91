"""The block sums checked: each block of the log that has one still holds the bytes that were written.

A sum covers only what was durable when it was made, so it holds for a store that crashed and for one that runs. Blocks
without a sum (of Apache's files, of files from before, of the last moments before a crash) have the other checks alone,
and the report says how many bytes those are: what is not known is not shown as fine.
"""

from contextlib import closing
from typing import NamedTuple

from ariane.store.disk import Disk, File
from ariane.store.layout import Layout, offset_name, offset_of
from ariane.store.scan import DataFile
from ariane.store.sums_file import DAMAGED, NOT_KNOWN, SumsFile, open_sums
from ariane.store.verify_facts import FactColumns
from ariane.store.verify_report import Cure, Report
from ariane.wire.crc import crc32_onward


class _Changed(NamedTuple):
    """A block whose bytes are not those of its sum. Physical offsets."""

    begin: int
    end: int
    found: int
    wanted: int


class SumsCheck:
    def __init__(self, report: Report, disk: Disk, layout: Layout) -> None:
        self._report = report
        self._disk = disk
        self._directory = layout.commit_log_sums
        self._covered = 0
        self._covered_to = 0
        self._bases: set[int] = set()

    def compare(self, file: DataFile, columns: FactColumns) -> None:
        """One file of the log, and what its records say."""
        self._bases.add(file.base)
        path = self._directory / offset_name(file.base)
        if self._disk.size(path) is None or not file.size:
            return
        try:
            sums = open_sums(self._disk, path, file.base, file.size)
            if sums is None:
                self._report.unfinished(path, 0, "its head is damaged, or it was made for another log file", Cure.SUMS)
                return
            with closing(sums):
                self._compare(file, sums, columns)
        except FileNotFoundError:
            return  # a broker that runs on the store has just let it go
        except OSError as error:
            self._report.fault(path, 0, f"it cannot be read: {error.strerror}", Cure.SUMS)

    def _compare(self, file: DataFile, sums: SumsFile, columns: FactColumns) -> None:
        known, changed = 0, []
        with closing(self._disk.open(file.path, writable=False)) as handle:
            for number, wanted in enumerate(sums.read()):
                if wanted == DAMAGED:
                    self._tell_damaged_sum(sums, number)
                elif wanted != NOT_KNOWN:
                    known += 1
                    begin = sums.blocks.begin_of(number)
                    found = self._sum_of(handle, file, begin, wanted.covered_to)
                    if found is not None and found != wanted.crc:
                        changed.append(_Changed(begin, wanted.covered_to, found, wanted.crc))
        self._tell(file, known, changed, columns)

    def _tell_damaged_sum(self, sums: SumsFile, number: int) -> None:
        """Of a store that runs, it may have been read while it was written."""
        position = sums.blocks.position_of(number)
        what = f"the sum of block {number} is damaged, so it is not known whether the block is"
        if self._report.is_unclean:
            self._report.note(f"{self._report.name(sums.path)}, byte {position}: {what}")
        else:
            self._report.fault(sums.path, position, what, Cure.SUMS)

    def _sum_of(self, handle: File, file: DataFile, begin: int, end: int) -> int | None:
        """None when the disk cannot read it, which the walk over the records has told."""
        try:
            data = handle.read(end - begin, begin - file.base)
        except OSError:
            return None
        self._covered += end - begin
        self._covered_to = max(self._covered_to, end)
        return crc32_onward(data)

    def _tell(self, file: DataFile, known: int, changed: list[_Changed], columns: FactColumns) -> None:
        if len(changed) == known > 1:
            what = f"none of its {known} blocks with a sum holds the bytes that were written: it is another file"
            self._report.fault(file.path, 0, what, Cure.REPLACED)
            return
        for block in changed:
            first, last = block.begin - file.base, block.end - file.base - 1
            what = f"bytes {first} to {last} are not those that were written: their checksum is {block.found:#010x}, "
            what += f"it was {block.wanted:#010x}; {_records_of(block, columns)}"
            self._report.fault(file.path, first, what, Cure.RESTORE)

    def finish(self, log_begin: int, log_end: int) -> None:
        summary = self._report.summary
        summary.summed_bytes = self._covered
        summary.log_bytes = max(log_end, self._covered_to) - log_begin
        missing = summary.log_bytes - summary.summed_bytes
        if missing:
            self._report.note(
                f"block sums cover {summary.summed_bytes} of {summary.log_bytes} bytes of the log: in the other "
                f"{missing} a changed time, host, flag or free property does not show"
            )
        self._note_strays()

    def _note_strays(self) -> None:
        bases = [offset_of(name) for name in self._disk.names(self._directory)]
        strays = [base for base in bases if base is not None and base not in self._bases]
        if strays:
            self._report.note(
                f"{self._report.name(self._directory)} holds sums of {len(strays)} log files that are gone, "
                f"the first is {offset_name(strays[0])}; the next start removes them"
            )


def _records_of(block: _Changed, columns: FactColumns) -> str:
    """Which records lie in the block, at least in part."""
    inside = (columns.offsets < block.end) & (columns.offsets + columns.sizes > block.begin)
    offsets = columns.offsets[inside]
    if not len(offsets):
        return "no whole record is there"
    return f"{len(offsets)} whole records are there, at physical offsets {offsets[0]} to {offsets[-1]}"
