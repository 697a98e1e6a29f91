"""Where a group begins in a queue: at its stored offset, and without one where `start=` says."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple, Protocol

from ariane.client.queue_ends import to_timestamp_ms
from ariane.errors import ClientError
from ariane.model.group import ConsumeFromWhere
from ariane.model.ids import RETRY_PREFIX
from ariane.model.route import MessageQueue

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
