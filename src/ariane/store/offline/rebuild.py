"""Rebuilds consume queues and index from the commit log, with the dispatcher of a running broker.

They are built beside the old ones and replace them when they are complete and durable:

    consumequeue        ── becomes ──>  consumequeue.old
    consumequeue.new    ── becomes ──>  consumequeue            index likewise

Until then the old ones are unchanged. After a crash, a second rebuild starts over from the log. Messages of deleted
topics get no queue (store/config/deletions.py).
"""

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path

from ariane.errors import StoreMismatch
from ariane.model.system_topics import parse_levels
from ariane.store.commit_log.scan import walk_files
from ariane.store.config.deletions import Deletions
from ariane.store.consume_queue.queues import ConsumeQueues
from ariane.store.consume_queue.saved_state import remove_saved_states
from ariane.store.disk import Disk
from ariane.store.dispatch import Dispatcher
from ariane.store.index.index import Index
from ariane.store.layout import Layout
from ariane.store.lock import locked
from ariane.store.offline.verify import Progress, log_files
from ariane.store.settings import StoreSettings
from ariane.wire.record.read import RecordView

_FED_AT_ONCE = 50_000
"""Number of records after which entries are written to the files."""


class RebuildLayout(Layout):
    """The directories in which the new files are built."""

    @property
    def consume_queues(self) -> Path:
        return self.root / "consumequeue.new"

    @property
    def index(self) -> Path:
        return self.root / "index.new"


@dataclass(frozen=True, slots=True)
class Rebuilt:
    records: int
    queues: int
    queue_entries: int
    index_files: int


def rebuild_store(
    disk: Disk,
    layout: Layout,
    settings: StoreSettings,
    *,
    queues: bool,
    index: bool,
    discard_old: bool,
    progress: Progress,
) -> Rebuilt:
    """Takes the store's lock, builds, and replaces the requested directories."""
    targets = [path for path, is_requested in ((layout.consume_queues, queues), (layout.index, index)) if is_requested]
    with locked(layout.lock):
        for path in targets:
            if _exists(disk, old_of(path)) and not discard_old:
                raise StoreMismatch(f"{old_of(path)} is there from an earlier rebuild: remove it, or say --yes")
        beside = RebuildLayout(layout.root, layout.commit_log)
        _remove_beside(disk, beside)
        try:
            rebuilt = _build(disk, beside, settings, index, progress)
            remove_saved_states(disk, layout.queue_checksums)  # they describe the old files
            for path in targets:
                _swap(disk, path, discard_old)
        finally:
            _remove_beside(disk, beside)
        return rebuilt


def old_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.old")


def _build(disk: Disk, beside: RebuildLayout, settings: StoreSettings, with_index: bool, progress: Progress) -> Rebuilt:
    """The queues are always built, because the dispatcher feeds queues and index together."""
    for directory in (beside.consume_queues, beside.index):
        disk.make_directory(directory)
    with ExitStack() as opened:
        queues = ConsumeQueues.open(disk, beside, settings)
        opened.callback(queues.close)
        index = Index.open(disk, beside, settings, _local_name) if with_index else None
        opened.callback(index.close if index is not None else lambda: None)
        deletions = Deletions.read(disk, beside.config)
        dispatcher = Dispatcher(queues, index, parse_levels(settings.message_delay_levels), deletions)
        records = _feed(dispatcher, queues, _views(disk, beside, progress))
        _make_durable(queues, index)
        entries = sum(queue.max_offset - queue.min_offset for queue in queues)
        return Rebuilt(records, len(list(queues)), entries, len(disk.names(beside.index)))


def _views(disk: Disk, layout: Layout, progress: Progress) -> Iterator[RecordView]:
    """The valid records of the log whose stored offset is right. Broken ones are skipped, as in recovery."""
    for item in walk_files(disk, log_files(disk, layout), progress=progress):
        if isinstance(item.verdict, RecordView) and item.verdict.physical_offset == item.offset:
            yield item.verdict


def _feed(dispatcher: Dispatcher, queues: ConsumeQueues, views: Iterator[RecordView]) -> int:
    records = 0
    while fed := dispatcher.replay(islice(views, _FED_AT_ONCE)):
        records += fed
        queues.write_dirty()
    return records


def _make_durable(queues: ConsumeQueues, index: Index | None) -> None:
    for sync in queues.take_unsynced():
        sync()
    if index is not None:
        with index.syncing() as plan:
            plan.run()


def _local_name() -> str:
    """Name of an index file created now: local time, yyyyMMddHHmmssSSS."""
    return datetime.now().strftime("%Y%m%d%H%M%S%f")[:17]


def _swap(disk: Disk, path: Path, discard_old: bool) -> None:
    _remove_tree(disk, old_of(path))
    if _exists(disk, path):
        disk.rename(path, old_of(path))
    disk.rename(path.with_name(f"{path.name}.new"), path)
    disk.sync_directory(path.parent)
    if discard_old:
        _remove_tree(disk, old_of(path))


def _exists(disk: Disk, path: Path) -> bool:
    return path.name in disk.names(path.parent)


def _remove_beside(disk: Disk, beside: RebuildLayout) -> None:
    for path in (beside.consume_queues, beside.index):
        _remove_tree(disk, path)


def _remove_tree(disk: Disk, path: Path) -> None:
    for name in disk.names(path):
        _remove_tree(disk, path / name)
    with suppress(FileNotFoundError):
        try:
            disk.remove(path)
        except (IsADirectoryError, PermissionError):  # unlinking a directory: which error depends on the system
            disk.remove_directory(path)
