"""Offsets of a broadcast consumer, in a file of Apache's form: `{"offsetTable":{{queue}:offset,...}}`.

Written aside and renamed, with the edition before kept as `.bak`: a crash in the middle of writing costs one interval.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from ariane.errors import StoreCorrupt, WireError
from ariane.model.ids import QueueOffset
from ariane.model.route import MessageQueue
from ariane.wire.requests.resets import OffsetsByQueue

log = logging.getLogger(__name__)


def offsets_file(client_id: str, group: str, root: Path | None = None) -> Path:
    """Where Apache's client keeps them, unless `root` says otherwise."""
    return (root or Path.home() / ".rocketmq_offsets") / client_id / group / "offsets.json"


class LocalOffsets:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: dict[MessageQueue, int] | None = None
        self._file = asyncio.Lock()
        """Queues that are given up together all read and save at the same time."""

    async def load(self, queue: MessageQueue) -> int | None:
        return (await self._known()).get(queue)

    async def save(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        known = await self._known()
        known.update(offsets)
        try:
            async with self._file:
                table = OffsetsByQueue(offset_table={queue: QueueOffset(offset) for queue, offset in known.items()})
                await asyncio.to_thread(self._write, table.to_bytes())
        except OSError as error:
            log.warning("offsets not saved", extra={"file": str(self._path), "reason": str(error)})
            return set()
        return set(offsets)

    async def _known(self) -> dict[MessageQueue, int]:
        async with self._file:
            if self._table is None:
                self._table = dict(await asyncio.to_thread(self._read))
            return self._table

    def _read(self) -> Mapping[MessageQueue, int]:
        is_there = False
        for path in (self._path, self._path.with_suffix(".json.bak")):
            try:
                return OffsetsByQueue.from_bytes(path.read_bytes()).offset_table
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (WireError, OSError) as error:
                is_there = True
                log.warning("offsets not readable", extra={"file": str(path), "reason": str(error)})
        if is_there:
            raise StoreCorrupt(
                f"{self._path}: neither this file nor its .bak can be read; delete it to begin as a new consumer"
            )
        return {}

    def _write(self, content: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        aside = self._path.with_suffix(".json.tmp")
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if self._path.exists():
            self._path.replace(self._path.with_suffix(".json.bak"))
        aside.replace(self._path)
