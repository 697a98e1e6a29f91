"""The record of deleted topics: up to where in the commit log the messages of a topic are deleted.

    deletedTopics.json    {"arianeCrc32":"...","deletedTopics":{"orders":81920}}

A deletion removes the queues of a topic, while its messages stay in the log until retention reaches them. Everything
that makes queues from the log therefore asks here: a record of the topic below that physical offset is not in any queue
of the topic, not even if a topic of that name was created again. An entry is forgotten when the log begins after it.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

from ariane.errors import StoreCorrupt, StoreError
from ariane.store.blocking_io import IoSteps, run_sync
from ariane.store.config.table_file import load_config, read_config, save_config
from ariane.store.disk import Disk
from ariane.wire.json import fastjson

FILE_NAME = "deletedTopics.json"
_MEMBER = "deletedTopics"


class Deletions:
    """Use on the event loop only. Create it with `load`; `Deletions()` is empty and saves nothing."""

    def __init__(self, disk: Disk | None = None, path: Path | None = None) -> None:
        self._disk = disk
        self._path = path
        self._ends: dict[str, int] = {}

    @classmethod
    def load(cls, disk: Disk, config: Path) -> "Deletions":
        """From the directory `config`; the file is repaired from its copy if needed. StoreCorrupt if both are lost."""
        deletions = cls(disk, config / FILE_NAME)
        deletions._ends = _ends_of(load_config(disk, config / FILE_NAME), config / FILE_NAME)
        return deletions

    @classmethod
    def read(cls, disk: Disk, config: Path) -> "Deletions":
        """The same without writing anything, for tools. A damaged file counts as empty; `verify` reports it."""
        deletions = cls()
        deletions._ends = _ends_of(read_config(disk, config / FILE_NAME), config / FILE_NAME)
        return deletions

    @property
    def ends(self) -> Mapping[str, int]:
        """By topic: its records below this physical offset are deleted."""
        return MappingProxyType(self._ends)

    def end_of(self, topic: str) -> int:
        """Records of the topic below this physical offset are deleted; 0 if none is."""
        return self._ends.get(topic, 0)

    def covers(self, topic: str, physical_offset: int) -> bool:
        """Whether the record of this topic at this physical offset is deleted."""
        return physical_offset < self._ends.get(topic, 0)

    def add(self, topics: Iterable[str], physical_offset: int) -> None:
        """Records durably that the topics' messages below `physical_offset` are deleted. StoreError if it cannot."""
        run_sync(self.add_steps(topics, physical_offset))

    def add_steps(self, topics: Iterable[str], physical_offset: int) -> IoSteps[None]:
        """The same in steps. One at a time: each saves the whole table as it was when it began."""
        new = {topic: physical_offset for topic in topics if physical_offset > self.end_of(topic)}
        if new:
            yield from self._change(self._ends | new)

    def fit(self, log_begin: int, log_end: int) -> None:
        """Adapts it to the log, at the start of a store. StoreError if it cannot be saved.

        Retention may have removed the deleted messages. And a power cut may have ended the log before the offset of a
        deletion: the records that will be written there are not deleted.
        """
        fitting = {topic: min(end, log_end) for topic, end in self._ends.items() if min(end, log_end) > log_begin}
        if fitting != self._ends:
            run_sync(self._change(fitting))

    def _change(self, ends: dict[str, int]) -> IoSteps[None]:
        if self._disk is not None and self._path is not None:
            try:
                yield partial(save_config, self._disk, self._path, fastjson.emit({_MEMBER: ends}))
            except OSError as error:
                raise StoreError(f"{self._path} cannot be saved ({error.strerror}): free disk space") from error
        self._ends = ends


def _ends_of(table: object, path: Path) -> dict[str, int]:
    if table is None:
        return {}
    ends = table.get(_MEMBER) if isinstance(table, dict) else None
    if not isinstance(ends, dict) or not all(isinstance(end, int) for end in ends.values()):
        raise StoreCorrupt(f"{path} is not a table of deleted topics: restore it from a copy of the store")
    return {str(topic): end for topic, end in ends.items()}
