"""Broker tables stored as JSON files (`config/topics.json`, `config/consumerOffset.json` and others), with autosave.

The file format is Apache's. A save replaces the file and its copy atomically, with a checksum
(store/config/table_file.py), so a crash during a save loses at most the last change, and damage is detected.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from threading import Lock

from ariane.clock import Clock
from ariane.errors import StoreError
from ariane.lifecycle import background, every
from ariane.store.config.table_file import load_config, save_config
from ariane.store.disk import Disk
from ariane.wire.json.body import JsonBody


class JsonTable:
    """One table file."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = path

    def load(self) -> object | None:
        """The parsed content; None if there never was a file. StoreCorrupt if neither it nor its copy is intact."""
        return load_config(self._disk, self.path)

    def save(self, content: JsonBody | bytes) -> None:
        """Blocks for two small syncs: a table changes rarely, and a change must be durable before its response."""
        save_config(self._disk, self.path, content if isinstance(content, bytes) else content.to_bytes())


# --- autosave ---

log = logging.getLogger(__name__)


class Autosave:
    """Saves a table immediately on request, every few seconds if it has changed, and when the broker stops.

    The periodic save must not block the event loop: the loop takes a snapshot, a thread encodes and writes it. At the
    stop such a thread may still be running, or not have started, while the loop writes the final state itself; the
    version number of each snapshot decides which one is newer. The file is replaced atomically, so a crash leaves a
    valid one.
    """

    def __init__(
        self, file: JsonTable | None, snapshot: Callable[[], JsonBody], saved: Callable[[], None] = lambda: None
    ) -> None:
        """`snapshot` returns the current table as immutable values; `saved` is called when it is durable.

        Without a file nothing is saved.
        """
        self._saved = saved
        self._file = file
        self._snapshot = snapshot
        self._changed = False
        self._versions = count(1)
        self._lock = Lock()
        self._written = 0

    def mark_changed(self) -> None:
        """Marks the table as changed, so that the next periodic save writes it."""
        self._changed = True

    def save(self) -> None:
        """Blocks until the table is durable. StoreError if it cannot be written."""
        self._write(next(self._versions), self._snapshot())
        self._changed = False
        self._saved()

    async def save_if_changed(self) -> None:
        """Does not block the event loop. A failure is logged, and the next call tries again."""
        if not self._changed:
            return
        self._changed = False
        try:
            await asyncio.to_thread(self._write, next(self._versions), self._snapshot())
            self._saved()
        except StoreError as error:
            self._changed = True
            log.error("table not saved", extra={"reason": str(error)})  # noqa: TRY400 - the reason says it all
        except asyncio.CancelledError:
            self._changed = True  # the result of the thread will not be known
            raise

    @asynccontextmanager
    async def run(self, clock: Clock, interval_s: float) -> AsyncIterator[None]:
        """Saves changes every `interval_s` while the body runs, and a last time when it ends."""
        try:
            async with background(partial(every, clock, interval_s, self.save_if_changed, interval_s)):
                yield
        finally:
            if self._changed:
                self.save()

    def _write(self, version: int, content: JsonBody) -> None:
        if self._file is None:
            return
        with self._lock:
            if version < self._written:
                return
            try:
                self._file.save(content)
            except OSError as error:
                raise StoreError(f"{self._file.path} cannot be saved: {error.strerror}") from error
            self._written = version
