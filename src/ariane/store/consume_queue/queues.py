"""The consume queues of a store, by topic and queue id."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from sys import intern

from ariane.errors import MessageRefused, StoreError, StoreMismatch
from ariane.model.ids import topic_name_problem
from ariane.store.blocking_io import IoSteps, run_sync
from ariane.store.config.deletions import Deletions
from ariane.store.consume_queue.entry import ENTRY, ENTRY_BYTES
from ariane.store.consume_queue.files import OPEN_FILES_MAX, OpenFiles, QueueFiles
from ariane.store.consume_queue.gate import Gate
from ariane.store.consume_queue.new_entries import NewEntries
from ariane.store.consume_queue.queue import ConsumeQueue
from ariane.store.consume_queue.saved_state import QueueState, SavedState
from ariane.store.disk import Disk, PendingSync, sync_together
from ariane.store.layout import Layout, offset_of
from ariane.store.settings import StoreSettings

log = logging.getLogger(__name__)

_QUEUE_ID_MAX = 2**31 - 1
_QUEUES_PER_STEP = 16
_WRITES_PER_STEP = 128  # less than a millisecond

SYNCED_EACH_MAX = 64
"""Files and directories that are synced one by one. More are synced with all else on their file system, which takes
less time than so many commits of its journal, and the same however many there are."""

_NO_QUEUES: Mapping[int, ConsumeQueue] = {}

BlockRepair = Callable[[ConsumeQueue, int, bytes], bytes]
"""From a queue, the offset of the first entry of a damaged block and its bytes, to the bytes that the log says."""


class StateUnusable(Exception):
    """The saved state does not describe these files: somebody else has changed them since."""


class ConsumeQueues:
    """For one thread; only the functions that `take_unsynced` returns are for another."""

    def __init__(
        self, disk: Disk, layout: Layout, segment_bytes: int, open_files_max: int, gate: Gate | None = None
    ) -> None:
        self._disk = disk
        self._new_queue = ConsumeQueue if gate is None else gate.new_queue
        self._layout = layout
        self._segment_bytes = -(-segment_bytes // ENTRY_BYTES) * ENTRY_BYTES  # up to whole entries, as Apache does
        self._open_files = OpenFiles(disk, open_files_max)
        self.by_topic: dict[str, dict[int, ConsumeQueue]] = {}
        """For the hot path; all other code uses `get`."""
        self._new: NewEntries[ConsumeQueue] = NewEntries()
        self.new_entries = self._new.packed
        """The hot path adds to it."""
        self._new_names: set[Path] = set()  # directories with new names of topics or queues, not yet synced
        self._file_system = disk.file_system(layout.root)  # opened before the first write, whose loss it must report
        self._in_doubt = False
        self._states: dict[ConsumeQueue, bytes] = {}
        self._repair: BlockRepair | None = None
        self.damaged: dict[ConsumeQueue, tuple[int, int]] = {}
        """Queues to be completed from the log: from which physical offset on, and up to which queue offset."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        layout: Layout,
        settings: StoreSettings,
        *,
        open_files_max: int = OPEN_FILES_MAX,
        repair: BlockRepair | None = None,
        state: SavedState | None = None,
        deletions: Deletions | None = None,
        log_begin: int = 0,
        gate: Gate | None = None,
    ) -> "ConsumeQueues":
        """Every existing queue. With a `state`, as it says: `damaged` lists what is not so. Without one, each is
        recovered from its own files, and whether they agree with the log is not checked here."""
        queues = cls(disk, layout, settings.queue_segment_bytes, open_files_max, gate)
        queues._repair = repair
        with ExitStack() as undo:
            undo.callback(queues.close)
            try:
                queues._load(state, deletions or Deletions(), log_begin)
            except OSError as error:
                raise StoreError(f"{layout.consume_queues} cannot be read: {error.strerror}") from error
            undo.pop_all()
        return queues

    def _load(self, state: SavedState | None, deletions: Deletions, log_begin: int) -> None:
        found = [*self._existing()]
        file_system = self._file_system
        if file_system is not None and not all(file_system.holds(self._layout.queue(*key)) for key in found):
            self._forget_file_system()  # some queue is on another disk
        if state is None:
            self._check_file_sizes(found)
            for topic, queue_id in found:
                self._make(topic, queue_id)
        else:
            log_end = state.log_end
            kept = {key: queue for key, queue in state.queues.items() if deletions.end_of(key[0]) < log_end}
            for topic, queue_id in found:
                if (topic, queue_id) not in kept:
                    self._remove_later_queue(topic, queue_id, log_end if deletions.end_of(topic) < log_end else 0)
            for (topic, queue_id), queue in kept.items():
                self._restore(topic, queue_id, queue, log_begin)

    def _existing(self) -> Iterator[tuple[str, int]]:
        """Topic and id of each directory of a queue."""
        root = self._layout.consume_queues
        for topic in self._disk.names(root):
            if (fault := topic_name_problem(topic)) is not None:
                log.warning("ignored: no topic's directory", extra={"path": str(root / topic), "reason": fault})
                continue
            for name in self._disk.names(root / topic):
                queue_id = _queue_id(name)
                if queue_id is None:
                    log.warning("ignored: no queue's directory", extra={"path": str(root / topic / name)})
                else:
                    yield topic, queue_id

    def _check_file_sizes(self, found: list[tuple[str, int]]) -> None:
        """A file of another size is damaged. If all are, the setting is wrong: then nothing must be rebuilt."""
        directories = [self._layout.queue(*key) for key in found]
        paths = [directory / name for directory in directories for name in self._disk.names(directory)]
        sizes = {size: path for path in paths if offset_of(path.name) is not None and (size := self._disk.size(path))}
        if len(sizes) == 1 and self._segment_bytes not in sizes and not min(sizes) % ENTRY_BYTES:
            ((size, path),) = sizes.items()
            raise StoreMismatch(
                f"{path} has {size} bytes, mappedFileSizeConsumeQueue says {self._segment_bytes}: set the size that "
                "the store was written with, or move the file away"
            )

    def _restore(self, topic: str, queue_id: int, state: QueueState, log_begin: int) -> None:
        end = state.checksums.end // ENTRY_BYTES
        queue = self._make(topic, queue_id, is_new=True)
        resume = queue.restore(state, log_begin)
        if queue.problem is not None:
            self.damaged[queue] = (state.last_end if resume is None else resume), end

    def _remove_later_queue(self, topic: str, queue_id: int, log_end: int) -> None:
        """A queue that was created or deleted after the state was saved: all its records must be behind `log_end`."""
        queue = self._make(topic, queue_id)
        entry = queue.stored_entries(queue.min_offset, 1)
        if entry and ENTRY.unpack(entry)[0] < log_end:
            raise StateUnusable(f"{self._layout.queue(topic, queue_id)} has entries that it should not have")
        queue.destroy()
        queue.unregister()
        del self.by_topic[topic][queue_id]

    def _forget_file_system(self) -> None:
        file_system, self._file_system = self._file_system, None
        if file_system is not None:
            file_system.close()

    # --- looking up -------------------------------------------------------------------------------------------------

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self.by_topic.get(topic, _NO_QUEUES).get(queue_id)

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """A new queue has no file until it is written. MessageRefused for a name that must not become a directory."""
        queue = self.by_topic.get(topic, _NO_QUEUES).get(queue_id)
        return queue if queue is not None else self._make(topic, queue_id)

    def _make(self, topic: str, queue_id: int, *, is_new: bool = False) -> ConsumeQueue:
        """Recovered from its files, unless `is_new`."""
        fault = topic_name_problem(topic)
        if fault is not None:
            raise MessageRefused(fault)
        if not 0 <= queue_id <= _QUEUE_ID_MAX:
            raise MessageRefused(f"queue {queue_id} of topic {topic}: a queue id is between 0 and {_QUEUE_ID_MAX}")
        directory = self._layout.queue(topic, queue_id)
        files = QueueFiles(self._disk, self._open_files, directory, self._segment_bytes, self._new_names)
        siblings = self.by_topic.setdefault(intern(topic), {})  # an interned key is found by identity
        queue = self._new_queue(topic, queue_id, files, self._new, _topic_part(topic, siblings))
        if self._repair is not None:
            files.repair = partial(_repair_block, self._repair, queue)
        if not is_new:
            queue.recover()
        siblings[queue_id] = queue
        return queue

    def __iter__(self) -> Iterator[ConsumeQueue]:
        """Iterates over a copy: queues may be removed meanwhile."""
        return iter([queue for queues in self.by_topic.values() for queue in queues.values()])

    def topics(self) -> list[str]:
        return list(self.by_topic)

    def of_topic(self, topic: str) -> Mapping[int, ConsumeQueue]:
        """The topic's queues by id; none when there is no such topic."""
        return self.by_topic.get(topic, _NO_QUEUES)

    # --- all of them ------------------------------------------------------------------------------------------------

    @property
    def dirty(self) -> set[ConsumeQueue]:
        """Queues with entries to write; read-only."""
        if self._new.packed:
            self._new.distribute()
        return self._new.dirty

    @property
    def entries_added(self) -> int:
        """Number of entries added since the store was opened."""
        return self._new.total

    @property
    def max_physical(self) -> int:
        """Up to where the log has been dispatched, according to the entries."""
        return max((queue.max_physical for queue in self), default=0)

    def write_dirty(self) -> None:
        """Writes every queue that has new entries. A failure of one does not stop the others; the first is raised."""
        run_sync(self.write_dirty_steps())

    def write_dirty_steps(self) -> IoSteps[None]:
        """As `write_dirty`, yielding to other tasks after every few queues. The set of queues is fixed at the start."""
        failures = []
        for number, queue in enumerate(tuple(self.dirty), 1):
            try:
                queue.write()
            except StoreError as error:
                failures.append(error)
            if number % _WRITES_PER_STEP == 0:
                yield None
        if failures:
            raise failures[0]

    def take_unsynced(self) -> list[Callable[[], None]]:
        """What a thread has to call so that everything written up to now is durable. OSError if the disk fails."""
        names = [PendingSync(self._disk, directory, is_directory=True) for directory in sorted(self._new_names)]
        self._new_names.clear()
        unsynced = [unsynced for queue in self for unsynced in queue.take_unsynced()] + names
        was_in_doubt, self._in_doubt = self._in_doubt, False
        if len(unsynced) <= SYNCED_EACH_MAX or self._file_system is None:
            return [pending.sync for pending in unsynced]
        # Writes of an earlier process may have been lost before this one opened the file system.
        return [partial(sync_together, self._file_system, unsynced, trust=not was_in_doubt)]

    def encoded_states(self) -> list[bytes]:
        """What each queue's files hold, for the next start. Only what changed since the last call is encoded anew."""
        states, changed = self._states, self._new.changed
        for queue in changed:
            state = queue.encoded_state()
            if state is None:
                states.pop(queue, None)
            else:
                states[queue] = state
        changed.clear()
        return list(states.values())

    @property
    def segment_bytes(self) -> int:
        """Size of a queue's file."""
        return self._segment_bytes

    def mark_unsynced_from(self, physical: int) -> None:
        """After a crash of the process: entries of records after `physical` may not be durable."""
        for queue in self:
            queue.mark_unsynced_from(physical)
        self._in_doubt = True
        root = self._layout.consume_queues
        self._new_names.update((root, *(root / topic for topic in self.by_topic)))

    def truncate(self, physical: int) -> None:
        """Drops the entries of records after `physical`, where the log ends now."""
        for queue in self:
            queue.truncate(physical)

    def drop_before(self, log_min: int) -> int:
        """Trims the queues to `log_min`, where the log begins now; returns the number of removed files."""
        return run_sync(self.drop_before_steps(log_min))

    def drop_before_steps(self, log_min: int) -> IoSteps[int]:
        """As `drop_before`, yielding to other tasks after every few queues."""
        files = 0
        for number, queue in enumerate(self, 1):
            files += yield from queue.drop_before_steps(log_min)
            if number % _QUEUES_PER_STEP == 0:
                yield None
        return files

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Deletes a queue with its files and its directory, if it exists."""
        queue = self.by_topic.get(topic, {}).pop(queue_id, None)
        if queue is not None:
            queue.destroy()
            queue.unregister()
            self._states.pop(queue, None)

    def end_of_topic(self, topic: str) -> int:
        """The end of the topic's last record in the log, 0 when it has none."""
        return max((queue.max_physical for queue in self.of_topic(topic).values()), default=0)

    def delete_topic(self, topic: str) -> None:
        """Deletes all queues of a topic, and their extensions if an Apache broker has written some."""
        for queue_id in tuple(self.of_topic(topic)):
            self.delete_queue(topic, queue_id)
        if self.by_topic.pop(topic, None) is not None:
            try:
                self._remove_extensions(self._layout.consume_queue_extensions / topic)
            except OSError as error:
                raise StoreError(f"the extensions of topic {topic} cannot be removed: {error.strerror}") from error
            with suppress(OSError):  # it holds files of others
                self._disk.remove_directory(self._layout.consume_queues / topic)

    def drop_deleted(self, deletions: Deletions) -> None:
        """Completes deletions that a crash interrupted: removes queues that have only deleted messages."""
        for topic, end in deletions.ends.items():
            for queue_id, queue in tuple(self.of_topic(topic).items()):
                if 0 < queue.max_physical <= end:
                    log.warning("queue of a deleted topic removed", extra={"topic": topic, "queue": queue_id})
                    self.delete_queue(topic, queue_id)

    def _remove_extensions(self, directory: Path) -> None:
        for queue in (directory / name for name in self._disk.names(directory)):
            for name in self._disk.names(queue):
                self._disk.remove(queue / name)
            self._disk.remove_directory(queue)
        with suppress(FileNotFoundError):
            self._disk.remove_directory(directory)

    def close(self) -> None:
        """Closes the files. What `write_dirty` did not write is recovered from the log."""
        self._open_files.close()
        self._forget_file_system()


def _repair_block(repair: BlockRepair, queue: ConsumeQueue, position: int, data: bytes) -> bytes:
    return repair(queue, position // ENTRY_BYTES, data)


def _topic_part(topic: str, siblings: Mapping[int, ConsumeQueue]) -> bytes:
    """The topic as in records; all queues of a topic share the object. Legal names are ASCII, and short."""
    sibling = next(iter(siblings.values()), None)
    return bytes([len(topic)]) + topic.encode() if sibling is None else sibling.topic_part


def _queue_id(name: str) -> int | None:
    """The queue id of a directory name; None when it is not in canonical form."""
    if not (name.isascii() and name.isdigit()):
        return None
    queue_id = int(name)
    return queue_id if str(queue_id) == name and queue_id <= _QUEUE_ID_MAX else None
