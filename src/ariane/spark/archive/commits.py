"""The layout of an archive, and its commits: which files belong to it, and up to which position each source was read.

    archive/
      topic=orders/day=2026-01-31/broker-a-0-00000000000000000000-00000000000000120000.parquet
      _ariane/commits/00000000000000000001.json    the files that a commit added, and the positions it goes up to
      _ariane/staged/RUN/...                       files of tasks, until a commit names them
      _ariane/lock                                 held by the one job that writes

Spark and most other readers ignore names that begin with `_`, so they see committed files only. A commit is one file,
created atomically and never changed. The files that it names are moved to their final paths right after; until then
readers find them where they were staged. If a job is killed in between, the next one moves them.
"""

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
        """A path that a commit names. StoreCorrupt for one outside the archive."""
        path = Path(relative)
        if path.is_absolute() or ".." in path.parts:
            raise StoreCorrupt(
                f"a commit of {self.root} names {relative!r}, which is not inside: the commit was tampered with"
            )
        return self.root / path


def partition_directory(topic: str, day: int | None) -> str:
    """The directory of a topic and a day, counted from 1970; None for messages without a time. Escaped as Hive and
    Spark do."""
    name = _NO_DAY if day is None else datetime.fromtimestamp(day * DAY_US // 1_000_000, UTC).date().isoformat()
    return f"topic={quote(topic, safe='')}/day={name}"


VERSION = 1


class QueueSpan(msgspec.Struct, frozen=True, array_like=True):
    """The offsets of one queue in a file, from `first` to before `end`."""

    broker: str | None
    queue_id: int
    first: int
    end: int


class ArchivedFile(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    staged: str
    """Where it is until it is moved to `path`. Both are relative to the root of the archive."""
    topic: str
    rows: int
    size: int
    row_groups: int
    stored_min_us: int | None
    stored_max_us: int | None
    """Store times; None when no message has one."""
    queues: list[QueueSpan]


class StorePosition(msgspec.Struct, frozen=True):
    topics: list[str] | None
    """The topics that were archived; None for all."""
    end: int
    """The physical offset up to which the log was archived."""


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    version: int = VERSION
    number: int
    source: str
    """`broker` or `store`: the two count progress differently, so all commits of an archive have the same."""
    offsets: dict[str, dict[str, dict[int, int]]] = {}
    """By topic, broker and queue: the next message to archive."""
    stores: dict[str, StorePosition] = {}
    files: list[ArchivedFile] = []


def read_commits(layout: ArchiveLayout) -> list[Commit]:
    """All of them, the oldest first. StoreCorrupt when one is missing or is not what was written."""
    numbers = sorted(_numbers(layout))
    commits = [_read(layout.commit(number)) for number in numbers]
    for expected, commit in enumerate(commits, 1):
        if commit.number != expected:
            raise StoreCorrupt(f"commit {expected} of the archive {layout.root} is missing: restore it from a copy")
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
        raise StoreCorrupt(f"{path} is not a commit of an archive ({error}): restore it from a copy") from None
    if commit.version != VERSION:
        raise StoreCorrupt(f"{path} has version {commit.version}, this program knows {VERSION}: use a newer one")
    return commit


def write_commit(layout: ArchiveLayout, commit: Commit) -> None:
    """Durable and atomic. StoreInUse when another job has written this commit."""
    path = layout.commit(commit.number)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(commit), indent=1))
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)  # unlike a rename, it fails when the name is taken
    except FileExistsError:
        raise StoreInUse(f"another job writes the archive {layout.root}: wait for it, then start again") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
    RealDisk().sync_directory(layout.commits)


def publish(layout: ArchiveLayout, commit: Commit) -> None:
    """Moves the files of a commit to where other programs look for them. Idempotent, for use after a crash."""
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
    """Removes staged files that no commit names. The caller must hold the lock, and have published the last commit."""
    shutil.rmtree(layout.staged, ignore_errors=True)
