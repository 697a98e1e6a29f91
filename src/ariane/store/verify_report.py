"""What a check of a store found: faults that somebody has to act on, notes that explain, and a summary."""

from dataclasses import dataclass, field
from pathlib import Path

FAULTS_KEPT = 1000
"""A store that was overwritten has a fault in every entry: the first ones tell as much as all of them."""


@dataclass(frozen=True, slots=True)
class StoreFault:
    """Something that is wrong at a byte of a file, and what to do about it."""

    file: str
    position: int
    what: str
    cure: str


class Cure:
    """The few things that can be done, in the words of the command that does them."""

    RESTORE = "these bytes changed on disk: restore the file from a copy or a replica"
    REPLACED = "restore the file; or, if another log was put here on purpose, remove the sums file"
    SUMS = "remove this file: the log does not need it, and what is written from now on is summed anew"
    QUEUES = "the commit log has all that is needed: run `ariane store rebuild --queues`"
    INDEX = "the commit log has all that is needed: run `ariane store rebuild --index`"
    FILES = "bring the missing file back, or move the odd one out of the directory"
    CHECKPOINT = "remove the file: the next start walks the whole log and writes a new one"
    CONFIG = "bring back the .bak file beside it, or a copy; a broker starts with an empty table otherwise"
    RECOVER = "start the broker on it: its recovery ends the log at the last whole record"


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
    """Bytes of the log of which a block sum is known: in these every changed bit shows."""
    oldest_ms: int | None = None
    newest_ms: int | None = None


@dataclass(slots=True)
class Report:
    root: Path
    is_unclean: bool = False
    """Whether the last run ended in a crash, or is not over: then what lags behind is for recovery, not for a human."""
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

    def unfinished(self, path: Path, position: int, what: str, cure: str) -> None:
        """A lag: a note after a crash, when it is expected and mends itself; a fault after a clean stop."""
        if self.is_unclean:
            self.note(f"{self.name(path)}, byte {position}: {what}; the next start mends it")
        else:
            self.fault(path, position, what, cure)

    def name(self, path: Path) -> str:
        """As people see it: below the store's root, when it is there."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)
