"""One table of the broker as a file: `config/topics.json`, `config/consumerOffset.json` and their like.

The bytes are what Apache's broker writes and reads. A save replaces the file atomically and keeps the one before it as
`.bak` (store/config_file.py), so a crash in the middle of a save costs at most the last change.
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
from ariane.store.config_file import load_config, save_config
from ariane.store.disk import Disk
from ariane.wire.json.body import JsonBody


class JsonTable:
    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = path

    def load(self) -> object | None:
        """The parsed content; None when there is no file. StoreCorrupt when neither it nor its backup can be read."""
        return load_config(self._disk, self.path)

    def save(self, content: JsonBody | bytes) -> None:
        """Blocks for two small syncs: a table changes rarely, and its change must outlive the answer that tells it."""
        save_config(self._disk, self.path, content if isinstance(content, bytes) else content.to_bytes())


# --- saving ---
#
# Keeping a table in its file: at once, or every few seconds when it has changed, and when the broker stops.
#
# Autosave every few seconds must not hold up the event loop: the loop takes a snapshot, a thread encodes and writes it.
# At a stop such a thread may still be at work, or not have begun, while the loop writes the last state itself; the
# number that each snapshot gets settles which of them is newer. The file is replaced atomically, so a crash leaves a
# good one.

log = logging.getLogger(__name__)


class Autosave:
    def __init__(
        self, file: JsonTable | None, snapshot: Callable[[], JsonBody], saved: Callable[[], None] = lambda: None
    ) -> None:
        """`snapshot` gives the table as it is, in values that change no more; `saved` is told when it is durable.

        Without a file nothing is kept.
        """
        self._saved = saved
        self._file = file
        self._snapshot = snapshot
        self._changed = False
        self._versions = count(1)
        self._lock = Lock()
        self._written = 0

    def mark_changed(self) -> None:
        """There is something to save."""
        self._changed = True

    def save(self) -> None:
        """Blocks until the table is durable. StoreError when the disk does not take it."""
        self._write(next(self._versions), self._snapshot())
        self._changed = False
        self._saved()

    async def save_if_changed(self) -> None:
        """Does not block. A disk that fails is reported, and tried again the next time."""
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
            self._changed = True  # nobody will learn whether the thread came through
            raise

    @asynccontextmanager
    async def run(self, clock: Clock, interval_s: float) -> AsyncIterator[None]:
        """Saves every `interval_s` while the body runs, and a last time when it ends."""
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
