"""Broker tables stored as JSON files (`config/topics.json`, `config/consumerOffset.json` and others), with autosave.

The file format is Apache's. A save replaces the file and its copy atomically, with a checksum
(store/config/table_file.py), so a crash during a save loses at most the last change, and damage is detected.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, TypeVar

from ariane.clock import Clock
from ariane.errors import StoreError
from ariane.lifecycle import TaskSet, background, every
from ariane.store.config.table_file import load_config, save_config
from ariane.store.disk import Disk

T = TypeVar("T")


class Encodable(Protocol):
    """The content of a table, for example a `JsonBody`."""

    def to_bytes(self) -> bytes:
        """May take long: a thread calls it."""


class JsonTable:
    """One table file."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = path

    def load(self) -> object | None:
        """The parsed content; None if there never was a file. StoreCorrupt if neither it nor its copy is intact."""
        return load_config(self._disk, self.path)

    def save(self, content: Encodable | bytes) -> None:
        """Blocks for the encoding and two syncs."""
        save_config(self._disk, self.path, content if isinstance(content, bytes) else content.to_bytes())


# --- autosave ---

log = logging.getLogger(__name__)


class Autosave:
    """Saves a table when someone waits for it, every few seconds if it has changed, and when the broker stops.

    A save never blocks the event loop: the loop takes a snapshot, a thread encodes and writes it. One save covers all
    changes up to its snapshot, so thousands of changes that arrive during one save share the next.

        changes    1 2 3         4 5 6 7              8
        saves          [ 1..3 ]  wait  [ 4..7 ]       [ 8 ]

    At the stop a thread may still be running, or not have started, while the loop writes the final state itself; the
    number of each snapshot decides which one is newer. The file is replaced atomically, so a crash leaves a valid one.
    """

    def __init__(
        self, file: JsonTable | None, snapshot: Callable[[], Encodable], saved: Callable[[], None] = lambda: None
    ) -> None:
        """`snapshot` returns the current table, which a thread can encode; `saved` is called when it is durable.

        Without a file nothing is saved.
        """
        self._saved = saved
        self._file = file
        self._snapshot = snapshot
        self._snapshots = count(1)
        self._file_lock = Lock()
        self._written = 0
        self._saving = asyncio.Lock()
        self._waiting: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self._runner = TaskSet()
        self._between = TaskSet()
        self.changes = 0
        """The number of changes so far."""
        self.saved_changes = 0
        """How many of them, from the first on, are durable."""

    def mark_changed(self) -> None:
        """Marks the table as changed, so that the next save writes it."""
        self.changes += 1

    @property
    def is_saved(self) -> bool:
        return self._file is None or self.saved_changes == self.changes

    def save(self) -> None:
        """Blocks until the table is durable, for the stop of a broker. StoreError if it cannot be written."""
        changes = self.changes
        self._write(next(self._snapshots), self._snapshot())
        self._on_saved(changes)

    async def saved(self) -> None:
        """Waits until all changes so far are durable. StoreError if they cannot be written.

        The first of those who wait saves for all.
        """
        changes = self.changes
        async with self._saving:
            if self.saved_changes < changes:
                await self._save_in_thread()

    def when_saved(self, action: Callable[[], T]) -> "asyncio.Future[T]":
        """Calls `action` when all changes so far are durable, in the order of these calls, and returns its result.

        It is called also if the result is not awaited any more: what a client sent is stored although it hangs up.
        """
        result = asyncio.get_running_loop().create_future()
        self._waiting.append((action, result))
        if not self._runner:
            self._runner.spawn(self._run_waiting())
        return result

    @property
    def has_waiting(self) -> bool:
        """Whether there are actions that were not called yet: later ones must come after them."""
        return bool(self._waiting)

    async def between_saves(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of `work()`, while nothing is saved: what it makes durable comes before what it changes here.

        It runs to its end also if the caller is cancelled. It must not wait for a save.
        """
        return await self._between.finish(self._while_not_saving(work))

    async def _while_not_saving(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async with self._saving:
            return await work()

    async def _run_waiting(self) -> None:
        while self._waiting:
            failure: StoreError | None = None
            try:
                await self.saved()
            except StoreError as error:
                failure = error
            waiting, self._waiting = self._waiting, []
            for action, result in waiting:
                _settle(result, action, failure)

    async def save_if_changed(self) -> None:
        """As `saved`, but a failure is logged, and the next call tries again."""
        try:
            await self.saved()
        except StoreError as error:
            log.error("table not saved", extra={"reason": str(error)})  # noqa: TRY400 - the reason says it all

    @asynccontextmanager
    async def run(self, clock: Clock, interval_s: float) -> AsyncIterator[None]:
        """Saves changes every `interval_s` while the body runs, and a last time when it ends."""
        try:
            async with background(partial(every, clock, interval_s, self.save_if_changed, interval_s)):
                yield
        finally:
            await self._between.wait()
            await self._runner.wait()
            if self.saved_changes < self.changes:
                self.save()

    async def _save_in_thread(self) -> None:
        """If the waiter is cancelled, the thread goes on, and the next save writes the same changes again."""
        changes = self.changes
        await asyncio.to_thread(self._write, next(self._snapshots), self._snapshot())
        self._on_saved(changes)

    def _on_saved(self, changes: int) -> None:
        self.saved_changes = max(self.saved_changes, changes)
        self._saved()

    def _write(self, number: int, content: Encodable) -> None:
        if self._file is None:
            return
        with self._file_lock:
            if number < self._written:
                return
            try:
                self._file.save(content)
            except OSError as error:
                raise StoreError(
                    f"{self._file.path} cannot be saved ({error.strerror}): the change holds until a restart, and is "
                    "saved as soon as possible; free disk space, or check the permissions of the directory"
                ) from error
            self._written = number


def _settle(result: "asyncio.Future[T]", action: Callable[[], T], failure: StoreError | None) -> None:
    """Nobody waits for a result that is done already: it was cancelled."""
    try:
        if failure is not None:
            raise failure
        outcome = action()
    except Exception as error:
        if not result.done():
            result.set_exception(error)
        else:
            log.warning("not done after a save, and the client is gone", extra={"reason": str(error)})
    else:
        if not result.done():
            result.set_result(outcome)
        elif isinstance(outcome, Coroutine):
            outcome.close()
