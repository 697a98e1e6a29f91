"""Paths and file names under a store's root directory, as in Apache RocketMQ."""

from dataclasses import dataclass
from pathlib import Path

OFFSET_DIGITS = 20


def offset_name(offset: int) -> str:
    """A segment is named by the offset of its first byte."""
    return f"{offset:020d}"


def offset_of(name: str) -> int | None:
    """The offset in a segment's name; None when it is not the name of a segment."""
    return int(name) if len(name) == OFFSET_DIGITS and name.isascii() and name.isdigit() else None


@dataclass(frozen=True, slots=True)
class Layout:
    root: Path
    commit_log: Path

    @classmethod
    def under(cls, root: Path, commit_log: Path | None = None) -> "Layout":
        return cls(root, commit_log if commit_log is not None else root / "commitlog")

    @property
    def commit_log_checksums(self) -> Path:
        """Ariane's own directory of block checksums beside the log: Apache ignores directories it does not know."""
        return self.commit_log.with_name(f"{self.commit_log.name}_sums")

    @property
    def consume_queues(self) -> Path:
        return self.root / "consumequeue"

    @property
    def queue_checksums(self) -> Path:
        """Ariane's own directory: what the consume queues must hold (consume_queue/saved_state.py)."""
        return self.root / "consumequeue_sums"

    @property
    def consume_queue_extensions(self) -> Path:
        return self.root / "consumequeue_ext"

    @property
    def index(self) -> Path:
        return self.root / "index"

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def abort(self) -> Path:
        return self.root / "abort"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def reserve(self) -> Path:
        """Ariane's own file, given up when the file system is full."""
        return self.root / "reserve"

    @property
    def quarantine(self) -> Path:
        """Ariane's own directory of corrupt bytes, kept for manual inspection."""
        return self.root / "quarantine"

    def queue(self, topic: str, queue_id: int) -> Path:
        return self.consume_queues / topic / str(queue_id)
