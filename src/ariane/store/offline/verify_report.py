"""The report of a store verification: faults that need action, notes, and a summary; and checks of file sequences.

`infer_file_sizes` derives the file sizes that a store was written with: they are stored in no file.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from ariane.store.commit_log.scan import DataFile
from ariane.store.consume_queue.scan import list_queues
from ariane.store.disk import Disk
from ariane.store.index.entries import ENTRY_BYTES, entries_position
from ariane.store.index.scan import list_index, open_index
from ariane.store.layout import Layout, offset_name
from ariane.store.settings import StoreSettings

FAULTS_KEPT = 1000
"""An overwritten store has a fault in every entry: the first ones are enough."""


@dataclass(frozen=True, slots=True)
class StoreFault:
    """A problem at a byte of a file, and how to fix it. The field names are the keys of the JSON output."""

    file: str
    position: int
    what: str
    cure: str


class Fix:
    """How to fix a fault."""

    RESTORE = "these bytes changed on disk: restore the file from a copy or a replica"
    REPLACED = "restore the file; or, if another log was put here on purpose, remove the checksum file"
    CHECKSUMS = "remove this file: the log does not need it, and what is written from now on gets new checksums"
    QUEUES = "the commit log has all that is needed: run `ariane store rebuild --queues`"
    INDEX = "the commit log has all that is needed: run `ariane store rebuild --index`"
    FILES = "bring the missing file back, or move the odd one out of the directory"
    CHECKPOINT = "remove the file: the next start scans the whole log and writes a new one"
    COPY = "start a broker: of a table and its .bak it takes the one that is intact, and writes the other one again"
    CONFIG = "restore it from a copy of the store; if it was edited or removed on purpose: `ariane store accept-config`"
    JOURNAL = "start a broker: it leaves the line out, and messages may be consumed again"
    RECOVER = "start the broker on it: its recovery ends the log at the last valid record"


@dataclass(slots=True, kw_only=True)
class Summary:
    files: int = 0
    bytes: int = 0
    records: int = 0
    record_bytes: int = 0
    topics: int = 0
    queues: int = 0
    queue_entries: int = 0
    index_files: int = 0
    index_entries: int = 0
    log_begins: int = 0
    log_ends: int = 0
    log_bytes: int = 0
    summed_bytes: int = 0
    """Bytes of the log with a block checksum: in these every changed bit is detected."""
    oldest_ms: int | None = None
    newest_ms: int | None = None


@dataclass(slots=True)
class Report:
    root: Path
    is_unclean: bool = False
    """Whether the last run crashed or is still running: then recovery fixes what lags behind, not the operator."""
    faults: list[StoreFault] = field(default_factory=list)
    fault_count: int = 0
    notes: list[str] = field(default_factory=list)
    summary: Summary = field(default_factory=Summary)

    @property
    def is_sound(self) -> bool:
        return not self.fault_count

    def fault(self, path: Path, position: int, what: str, cure: str) -> None:
        self.fault_count += 1
        if len(self.faults) < FAULTS_KEPT:
            self.faults.append(StoreFault(self.name(path), position, what, cure))

    def note(self, text: str) -> None:
        self.notes.append(text)

    def lagging(self, path: Path, position: int, what: str, cure: str) -> None:
        """A file that lags behind: a note after a crash, when recovery fixes it; a fault after a clean stop."""
        if self.is_unclean:
            self.note(f"{self.name(path)}, byte {position}: {what}; the next start fixes it")
        else:
            self.fault(path, position, what, cure)

    def name(self, path: Path) -> str:
        """The path relative to the store's root, if it is below it."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)


# --- file sequences ---


def check_file_sequence(report: Report, files: Sequence[DataFile], *, unit_bytes: int = 1) -> None:
    """Checks sizes, names and gaps. The size of most files is the right one: the first one may be truncated."""
    file_bytes = most_common_size(files)
    for file in files:
        if not file.size:
            report.lagging(file.path, 0, "an empty file", Fix.FILES)
        elif file.size != file_bytes:
            report.fault(file.path, 0, f"{file.size} bytes, the other files have {file_bytes}", Fix.FILES)
        elif file.size % unit_bytes:
            report.fault(file.path, 0, f"{file.size} bytes are no multiple of {unit_bytes}", Fix.FILES)
        elif file.base % file_bytes:
            report.fault(file.path, 0, f"a name that is no multiple of the file size {file_bytes}", Fix.FILES)
    for before, after in pairwise(files):
        if after.base != before.base + file_bytes:
            report.fault(
                after.path,
                0,
                f"it does not follow {before.path.name}: {offset_name(before.base + file_bytes)} is missing",
                Fix.FILES,
            )


def most_common_size(files: Iterable[DataFile]) -> int:
    """The size of most files; 0 when all are empty."""
    sizes = Counter(file.size for file in files if file.size)
    return sizes.most_common(1)[0][0] if sizes else 0


def check_names(report: Report, disk: Disk, directory: Path, files: Sequence[DataFile]) -> None:
    """Apache's broker refuses to start with an unknown file there, ours ignores it."""
    known = {file.path.name for file in files}
    odd = [name for name in disk.names(directory) if name not in known]
    if odd:
        report.note(f"{report.name(directory)} holds unknown files: {', '.join(odd[:5])}")


# --- file sizes ---


def infer_file_sizes(
    disk: Disk, layout: Layout, *, index_slots: int | None = None, with_index: bool = True
) -> StoreSettings:
    """The defaults, with the sizes of the queue and index files that are there.

    StoreMismatch when an index file is so damaged that its number of slots must be given.
    """
    settings = StoreSettings(root=layout.root, commit_log_path=layout.commit_log)
    queue_bytes = most_common_size(file for queue in list_queues(disk, layout.consume_queues) for file in queue.files)
    if queue_bytes:
        settings = replace(settings, queue_segment_bytes=queue_bytes)
    index_files = list_index(disk, layout.index) if with_index else []
    if index_files:
        slots = open_index(disk, index_files[-1], index_slots).slots
        entries = ((disk.size(index_files[-1]) or 0) - entries_position(slots)) // ENTRY_BYTES
        return replace(settings, index_slots=slots, index_entries=entries)
    return replace(settings, index_slots=index_slots or settings.index_slots)
