"""Where the files of an archive are.

    archive/
      topic=orders/day=2026-01-31/broker-a-0-00000000000000000000-00000000000000120000.parquet
      _ariane/commits/00000000000000000001.json    what a commit added, and how far the archive reaches then
      _ariane/staged/RUN/...                       files of tasks, until a commit names them
      _ariane/lock                                 held by the one job that writes

Names that begin with `_` are passed over by Spark and by most other readers, so they see committed files only. A commit
is one file, made in one step: it is there or it is not. Files that it names are moved to their place right after; until
then readers find them where they were staged, and a job that was killed in between leaves that to the next one.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from ariane.errors import StoreCorrupt
from ariane.store.layout import offset_name

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
