"""Consumer offsets: held in memory, saved every 5 s and on close, and the start offset of a queue.

A group that shares its queues stores offsets at the brokers, so that the next owner of a queue continues where the last
one stopped. A broadcast consumer has its own offsets and stores them in a file.
"""

import asyncio
import logging
import os
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from ariane.client.core.instance import Instance
from ariane.client.core.queue_bounds import call_reader, to_timestamp_ms
from ariane.errors import ArianeError, ClientError, RequestFailed, StoreCorrupt, TransportError, WireError
from ariane.lifecycle import TaskSet
from ariane.model.group import ConsumeFromWhere
from ariane.model.ids import RETRY_PREFIX, QueueOffset
from ariane.model.route import MASTER_ID, MessageQueue
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.offsets import GetConsumerOffset, OffsetsByQueue, UpdateConsumerOffset

log = logging.getLogger(__name__)

_TIMEOUT_S = 5.0  # as in Apache's clients


class OffsetStore(Protocol):
    async def load(self, queue: MessageQueue) -> int | None:
        """The stored offset, None if there is none. A failed request raises: it must not be taken for "none"."""

    async def save(
        self, offsets: Mapping[MessageQueue, int], sought: Collection[MessageQueue] = ()
    ) -> set[MessageQueue]:
        """Returns the queues whose offset is now stored. In the queues of `sought`, the group may go back."""

    def is_elsewhere(self, queue: MessageQueue) -> bool:
        """Whether the next owner of the queue would ask for its offset where it was not saved last."""


class RemoteBrokerOffsetStore:
    """Offsets at the brokers. Each broker gets one request at a time.

    While the master does not respond they are stored at a slave, and count as not saved: the master gets them when it
    is back, since a slave never passes them on. One that the master had may not have been copied to its slave when the
    master died: it is stored there once more.

    Apache's brokers handle the requests of a connection concurrently. Of two offsets of one queue the older might then
    be stored last, and of the first two of a group one might be lost.
    """

    def __init__(self, instance: Instance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._saved_at: dict[MessageQueue, int] = {}
        """The id of the broker."""

    async def load(self, queue: MessageQueue) -> int | None:
        request = GetConsumerOffset(self._group, queue.topic, queue.queue_id)
        try:
            return (await call_reader(self._instance, queue, request, _TIMEOUT_S))[0].offset
        except RequestFailed as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def save(
        self, offsets: Mapping[MessageQueue, int], sought: Collection[MessageQueue] = ()
    ) -> set[MessageQueue]:
        saved: set[MessageQueue] = set()
        brokers = TaskSet()
        for broker in sorted({queue.broker_name for queue in offsets}):
            at_broker = {queue: offset for queue, offset in offsets.items() if queue.broker_name == broker}
            brokers.spawn(self._save_at(broker, at_broker, sought, saved))
        try:
            await brokers.wait()
        finally:
            brokers.cancel()
        return saved

    async def _save_at(
        self,
        broker: str,
        offsets: dict[MessageQueue, int],
        sought: Collection[MessageQueue],
        saved: set[MessageQueue],
    ) -> None:
        async with self._locks[broker]:
            for queue, offset in offsets.items():
                try:
                    is_at_master = await self._save_one(queue, offset, seek=queue in sought)
                except ArianeError as error:
                    log.warning("offset not saved", extra={"queue": queue, "offset": offset, "reason": str(error)})
                    if isinstance(error, TransportError):
                        return  # requests for its other queues would fail, too, after the same timeout
                else:
                    if is_at_master:
                        saved.add(queue)

    async def _save_one(self, queue: MessageQueue, offset: int, *, seek: bool) -> bool:
        """Whether the master has it now. Waits for the response: Apache's client sends this one-way and does not notice
        when it is lost. A master that turns out to be dead leaves it to a slave: this may be the last save."""
        request = UpdateConsumerOffset(self._group, queue.topic, queue.queue_id, QueueOffset(offset), seek)
        _, broker_id = await call_reader(self._instance, queue, request, _TIMEOUT_S)
        self._saved_at[queue] = broker_id
        return broker_id == MASTER_ID

    def is_elsewhere(self, queue: MessageQueue) -> bool:
        saved_at = self._saved_at.get(queue)
        reader = self._instance.routes.address_of(queue.broker_name, MASTER_ID)
        return saved_at is not None and reader is not None and reader[1] != saved_at


class OffsetTable:
    """The offsets in memory, in front of one store."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self._offsets: dict[MessageQueue, int] = {}
        self._unsaved: set[MessageQueue] = set()
        self._sought: set[MessageQueue] = set()

    def get(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def of(self, topic: str) -> dict[MessageQueue, int]:
        return {queue: offset for queue, offset in self._offsets.items() if queue.topic == topic}

    async def load(self, queue: MessageQueue) -> int | None:
        return await self._store.load(queue)

    def advance(self, queue: MessageQueue, offset: int) -> None:
        """Only forward: handlers that finish late report smaller offsets."""
        if offset > self._offsets.get(queue, -1):
            self.correct(queue, offset)

    def correct(self, queue: MessageQueue, offset: int) -> None:
        """In either direction, but the group's stored offset does not go back."""
        self._offsets[queue] = offset
        self._unsaved.add(queue)

    def move(self, queue: MessageQueue, offset: int) -> None:
        """In either direction, with the group: for resets and seeks."""
        self.sought(queue)
        self.correct(queue, offset)

    def sought(self, queue: MessageQueue) -> None:
        """The next offset of this queue that is saved may be a lower one."""
        self._sought.add(queue)

    async def save(self, queues: Collection[MessageQueue] | None = None) -> None:
        """Saves changed offsets, and those that are read elsewhere now. One that could not be saved is tried again with
        the next call."""
        elsewhere = {queue for queue in self._offsets if self._store.is_elsewhere(queue)}
        due = {queue: self._offsets[queue] for queue in self._unsaved | elsewhere if queues is None or queue in queues}
        if not due:
            return
        sought = self._sought & due.keys()
        for queue in await self._store.save(due, sought):
            now = self._offsets.get(queue, due[queue])
            if now >= due[queue]:  # not if another seek came meanwhile
                self._sought.discard(queue)
            if now == due[queue]:
                self._unsaved.discard(queue)

    def forget(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)
        self._unsaved.discard(queue)
        self._sought.discard(queue)


# --- offsets in a file ---


def offsets_file(client_id: str, group: str, root: Path | None = None) -> Path:
    """The path that Apache's client uses, unless `root` is set."""
    return (root or Path.home() / ".rocketmq_offsets") / client_id / group / "offsets.json"


class LocalFileOffsetStore:
    """Offsets of a broadcast consumer, in a file of Apache's format: `{"offsetTable":{{queue}:offset,...}}`.

    Written to a temporary file and renamed, with the previous version kept as `.bak`: a crash while writing loses the
    changes of one interval.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: dict[MessageQueue, int] | None = None
        self._file = asyncio.Lock()
        """Serialises access: queues that are revoked together read and save concurrently."""

    async def load(self, queue: MessageQueue) -> int | None:
        return (await self._loaded()).get(queue)

    async def save(
        self, offsets: Mapping[MessageQueue, int], sought: Collection[MessageQueue] = ()
    ) -> set[MessageQueue]:
        table = await self._loaded()
        table.update(offsets)
        try:
            async with self._file:
                body = OffsetsByQueue(offset_table={queue: QueueOffset(offset) for queue, offset in table.items()})
                await asyncio.to_thread(self._write, body.to_bytes())
        except OSError as error:
            log.warning("offsets not saved", extra={"file": str(self._path), "reason": str(error)})
            return set()
        return set(offsets)

    def is_elsewhere(self, queue: MessageQueue) -> bool:
        return False

    async def _loaded(self) -> dict[MessageQueue, int]:
        async with self._file:
            if self._table is None:
                self._table = dict(await asyncio.to_thread(self._read))
            return self._table

    def _read(self) -> Mapping[MessageQueue, int]:
        exists = False
        for path in (self._path, self._path.with_suffix(".json.bak")):
            try:
                return OffsetsByQueue.from_bytes(path.read_bytes()).offset_table
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (WireError, OSError) as error:
                exists = True
                log.warning("offsets not readable", extra={"file": str(path), "reason": str(error)})
        if exists:
            raise StoreCorrupt(
                f"{self._path}: neither this file nor its .bak can be read; delete both to start as a new consumer"
            )
        return {}

    def _write(self, content: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".json.tmp")
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if self._path.exists():
            self._path.replace(self._path.with_suffix(".json.bak"))
        temporary.replace(self._path)


# --- start offset: the stored offset of the group, or what `start=` says if it has none ---

StartWord = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class Start:
    """Where a group without a stored offset starts."""

    where: ConsumeFromWhere
    timestamp_ms: int = 0

    @classmethod
    def of(cls, value: "Start | StartWord | datetime | int") -> "Start":
        """`earliest`, `latest`, a datetime, or milliseconds since 1970."""
        match value:
            case Start():
                return value
            case "earliest":
                return cls(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
            case "latest":
                return cls(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)
            case datetime() | int():
                return cls(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, to_timestamp_ms(value))
            case _:
                raise ClientError(f"start={value!r}: use 'earliest', 'latest', a datetime, or milliseconds since 1970")


class StartOffset(NamedTuple):
    """The offset to start at, and the reason, for the log."""

    offset: int
    reason: str


class OffsetBounds(Protocol):
    async def min_offset(self, queue: MessageQueue) -> int: ...
    async def max_offset(self, queue: MessageQueue) -> int: ...
    async def search_offset(self, queue: MessageQueue, moment: datetime | int) -> int: ...


async def find_start_offset(queue: MessageQueue, stored: int | None, start: Start, bounds: OffsetBounds) -> StartOffset:
    """The offset to start at, with the reason for the log: it answers "why did it skip my messages?"."""
    if stored == 0:
        # Brokers return 0 for a group without an offset while the queue still begins at 0, so that a group that starts
        # at the latest message loses nothing of a queue that was just added. The two cases cannot be distinguished.
        return StartOffset(
            0, "the broker returned 0: the group's offset, or a queue from which nothing has expired yet"
        )
    if stored is not None:
        return StartOffset(stored, "the group's stored offset")
    if queue.topic.startswith(RETRY_PREFIX):
        return StartOffset(await bounds.min_offset(queue), "no stored offset; retries are never skipped")
    match start.where:
        case ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            return StartOffset(await bounds.min_offset(queue), "no stored offset; start=earliest")
        case ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            moment = datetime.fromtimestamp(start.timestamp_ms / 1000, UTC).isoformat()
            offset = await bounds.search_offset(queue, start.timestamp_ms)
            return StartOffset(offset, f"no stored offset; start={moment}")
        case _:
            return StartOffset(await bounds.max_offset(queue), "no stored offset; start=latest")
