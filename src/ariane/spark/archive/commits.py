"""Commits of an archive: which files count, and how far each source was read. Written once, never changed."""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import msgspec

from ariane.errors import StoreCorrupt, StoreError, StoreInUse
from ariane.store.disk import RealDisk
from ariane.store.layout import offset_name, offset_of

# --- archive_layout ---
#
# Where the files of an archive are.
#
#     archive/
#       topic=orders/day=2026-01-31/broker-a-0-00000000000000000000-00000000000000120000.parquet
#       _ariane/commits/00000000000000000001.json    what a commit added, and how far the archive reaches then
#       _ariane/staged/RUN/...                       files of tasks, until a commit names them
#       _ariane/lock                                 held by the one job that writes
#
# Names that begin with `_` are passed over by Spark and by most other readers, so they see committed files only. A
# commit is one file, made in one step: it is there or it is not. Files that it names are moved to their place right
# after; until then readers find them where they were staged, and a job that was killed in between leaves that to the
# next one.

_NO_DAY = "__HIVE_DEFAULT_PARTITION__"
DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class ArchiveLayout:
    root: Path

    @property
    def commits(self) -> Path:
        return self.root / "_ariane" / "commits"

    @property
    def staged(self) -> Path:
        return self.root / "_ariane" / "staged"

    @property
    def lock(self) -> Path:
        return self.root / "_ariane" / "lock"

    def commit(self, number: int) -> Path:
        return self.commits / f"{offset_name(number)}.json"

    def inside(self, relative: str) -> Path:
        """A path that a commit names. StoreCorrupt for one that leads out of the archive."""
        path = Path(relative)
        if path.is_absolute() or ".." in path.parts:
            raise StoreCorrupt(f"a commit of {self.root} names {relative!r}, which is not inside: it was tampered with")
        return self.root / path


def partition_directory(topic: str, day: int | None) -> str:
    """Of a topic and a day, counted from 1970; None for messages without a time. Escaped as Hive and Spark do."""
    name = _NO_DAY if day is None else datetime.fromtimestamp(day * DAY_US // 1_000_000, UTC).date().isoformat()
    return f"topic={quote(topic, safe='')}/day={name}"


# ---

VERSION = 1


class QueueSpan(msgspec.Struct, frozen=True, array_like=True):
    """Offsets of one queue that a file holds: from `first` on, before `end`."""

    broker: str | None
    queue_id: int
    first: int
    end: int


class ArchivedFile(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    staged: str
    """Where it is until it is moved to `path`. Both are seen from the archive's root."""
    topic: str
    rows: int
    size: int
    row_groups: int
    stored_min_us: int | None
    stored_max_us: int | None
    """Store times; None when no message has one."""
    queues: list[QueueSpan]


class StoreReach(msgspec.Struct, frozen=True):
    topics: list[str] | None
    """Of which the log was archived; None for all."""
    end: int
    """Physical offset up to which it was."""


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    version: int = VERSION
    number: int
    source: str
    """`broker` or `store`: the two count progress differently, so an archive has one of them."""
    offsets: dict[str, dict[str, dict[int, int]]] = {}
    """By topic, broker and queue: the next message to archive."""
    stores: dict[str, StoreReach] = {}
    files: list[ArchivedFile] = []


def read_commits(layout: ArchiveLayout) -> list[Commit]:
    """All of them, the oldest first. StoreCorrupt when one is missing or is not what was written."""
    numbers = sorted(_numbers(layout))
    commits = [_read(layout.commit(number)) for number in numbers]
    for place, commit in enumerate(commits, 1):
        if commit.number != place:
            raise StoreCorrupt(f"commit {place} of the archive {layout.root} is missing: restore it from a copy")
    return commits


def _numbers(layout: ArchiveLayout) -> Iterator[int]:
    for name in RealDisk().names(layout.commits):
        number = offset_of(name.removesuffix(".json")) if name.endswith(".json") else None
        if number is not None:
            yield number


def _read(path: Path) -> Commit:
    try:
        commit = msgspec.json.decode(path.read_bytes(), type=Commit)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise StoreCorrupt(f"{path} is no commit of an archive ({error}): restore it from a copy") from None
    if commit.version != VERSION:
        raise StoreCorrupt(f"{path} has version {commit.version}, this program knows {VERSION}: use a newer one")
    return commit


def write_commit(layout: ArchiveLayout, commit: Commit) -> None:
    """Durable, and all at once. StoreInUse when another job has written this commit."""
    path = layout.commit(commit.number)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(commit), indent=1))
            file.flush()
            os.fsync(file.fileno())
        os.link(beside, path)  # unlike a rename, it fails when the name is taken
    except FileExistsError:
        raise StoreInUse(f"another job writes the archive {layout.root}: let it end, then start again") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        with suppress(FileNotFoundError):
            beside.unlink()
    RealDisk().sync_directory(layout.commits)


def publish(layout: ArchiveLayout, commit: Commit) -> None:
    """Moves the files of a commit to where other programs look for them. May be done again after a crash."""
    directories = set()
    for file in commit.files:
        target = layout.inside(file.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # it was moved before
            os.replace(layout.inside(file.staged), target)
        directories.add(target.parent)
    for directory in directories:
        RealDisk().sync_directory(directory)


def clear_staged(layout: ArchiveLayout) -> None:
    """Removes what tasks left that no commit names. Only for who holds the lock, and has published."""
    shutil.rmtree(layout.staged, ignore_errors=True)
