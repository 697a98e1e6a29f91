"""How far a consumer has come in each queue: kept here, saved every 5 s and at the end.

A group that shares its queues keeps offsets at the brokers, so that whoever takes a queue over goes on where the last
owner was. A broadcast consumer is alone with its offsets and keeps them in a file.
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
from ariane.client.core.queue_bounds import broker_of, to_timestamp_ms
from ariane.errors import ArianeError, ClientError, RequestFailed, StoreCorrupt, TransportError, WireError
from ariane.lifecycle import TaskSet
from ariane.model.group import ConsumeFromWhere
from ariane.model.ids import RETRY_PREFIX, QueueOffset
from ariane.model.route import MessageQueue
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.offsets import GetConsumerOffset, OffsetsByQueue, UpdateConsumerOffset

log = logging.getLogger(__name__)

_TIMEOUT_S = 5.0  # as in Apache's clients


class OffsetStore(Protocol):
    async def load(self, queue: MessageQueue) -> int | None:
        """The stored offset, None when there is none. A failure to find out is an error: it must not mean "none"."""

    async def save(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        """The queues whose offset is now stored."""


class GroupOffsets:
    """At the brokers, each of which is told one offset at a time.

    Apache's brokers work on the requests of a connection side by side. Of two offsets of one queue the older may then
    be stored last, and of the first two of a group one may be lost.
    """

    def __init__(self, instance: Instance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def load(self, queue: MessageQueue) -> int | None:
        address = await broker_of(self._instance, queue)
        request = GetConsumerOffset(self._group, queue.topic, queue.queue_id)
        try:
            return (await self._instance.call(address, request, _TIMEOUT_S)).offset
        except RequestFailed as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def save(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        saved: set[MessageQueue] = set()
        brokers = TaskSet()
        for broker in sorted({queue.broker_name for queue in offsets}):
            theirs = {queue: offset for queue, offset in offsets.items() if queue.broker_name == broker}
            brokers.spawn(self._save_at(broker, theirs, saved))
        try:
            await brokers.wait()
        finally:
            brokers.cancel()
        return saved

    async def _save_at(self, broker: str, offsets: dict[MessageQueue, int], saved: set[MessageQueue]) -> None:
        async with self._turns[broker]:
            for queue, offset in offsets.items():
                try:
                    await self._save_one(queue, offset)
                except ArianeError as error:
                    log.warning("offset not saved", extra={"queue": queue, "offset": offset, "reason": str(error)})
                    if isinstance(error, TransportError):
                        return  # the others would wait for it as long and as vainly
                else:
                    saved.add(queue)

    async def _save_one(self, queue: MessageQueue, offset: int) -> None:
        """Apache's client sends this one-way and never learns that it was lost."""
        address = await broker_of(self._instance, queue)
        request = UpdateConsumerOffset(self._group, queue.topic, queue.queue_id, QueueOffset(offset))
        await self._instance.call(address, request, _TIMEOUT_S)


class OffsetTable:
    """The offsets in memory, in front of one store."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self._offsets: dict[MessageQueue, int] = {}
        self._unsaved: set[MessageQueue] = set()

    def get(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def of(self, topic: str) -> dict[MessageQueue, int]:
        return {queue: offset for queue, offset in self._offsets.items() if queue.topic == topic}

    async def load(self, queue: MessageQueue) -> int | None:
        return await self._store.load(queue)

    def advance(self, queue: MessageQueue, offset: int) -> None:
        """Only ever forward: handlers that finish late report smaller numbers."""
        if offset > self._offsets.get(queue, -1):
            self.move(queue, offset)

    def move(self, queue: MessageQueue, offset: int) -> None:
        """In either direction, because somebody said so."""
        self._offsets[queue] = offset
        self._unsaved.add(queue)

    async def save(self, queues: Collection[MessageQueue] | None = None) -> None:
        """Saves what changed. What could not be saved stays due."""
        due = {queue: self._offsets[queue] for queue in self._unsaved if queues is None or queue in queues}
        if not due:
            return
        for queue in await self._store.save(due):
            if self._offsets.get(queue) == due[queue]:
                self._unsaved.discard(queue)

    def forget(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)
        self._unsaved.discard(queue)


# --- local_offsets ---
#
# Offsets of a broadcast consumer, in a file of Apache's form: `{"offsetTable":{{queue}:offset,...}}`.
#
# Written aside and renamed, with the edition before kept as `.bak`: a crash in the middle of writing costs one
# interval.


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


# --- start_offset ---
#
# Where a group begins in a queue: at its stored offset, and without one where `start=` says.

StartWord = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class Start:
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


class Beginning(NamedTuple):
    offset: int
    reason: str


class Ends(Protocol):
    async def min_offset(self, queue: MessageQueue) -> int: ...
    async def max_offset(self, queue: MessageQueue) -> int: ...
    async def search_offset(self, queue: MessageQueue, moment: datetime | int) -> int: ...


async def find_beginning(queue: MessageQueue, stored: int | None, start: Start, ends: Ends) -> Beginning:
    """The offset to begin at, and why, for the log: "why did it skip my messages" is asked of every consumer."""
    if stored == 0:
        # Brokers answer 0 for a group without an offset while the queue still begins at 0. So a queue that was added
        # a moment ago loses nothing to a group that starts at the latest message; we cannot tell the two apart.
        return Beginning(0, "the broker answers 0: the group's offset, or a queue from which nothing has expired yet")
    if stored is not None:
        return Beginning(stored, "the group's stored offset")
    if queue.topic.startswith(RETRY_PREFIX):
        return Beginning(await ends.min_offset(queue), "no stored offset; retries are never skipped")
    match start.where:
        case ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            return Beginning(await ends.min_offset(queue), "no stored offset; start=earliest")
        case ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            moment = datetime.fromtimestamp(start.timestamp_ms / 1000, UTC).isoformat()
            offset = await ends.search_offset(queue, start.timestamp_ms)
            return Beginning(offset, f"no stored offset; start={moment}")
        case _:
            return Beginning(await ends.max_offset(queue), "no stored offset; start=latest")
