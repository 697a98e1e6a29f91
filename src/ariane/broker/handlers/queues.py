"""Where a queue begins and ends, and what lies at a time. As in Apache, a queue that does not exist is an empty one."""

from dataclasses import dataclass

from ariane.errors import RequestFailed
from ariane.model.ids import QueueOffset
from ariane.rpc.handlers import Call, handles
from ariane.store.message_store import MessageStore
from ariane.store.steps import off_the_loop
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.offsets import (
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetAnswer,
    SearchOffset,
    StoreTimeAnswer,
)

_TIME_MAX_MS = 2**63 - 1


@dataclass(frozen=True)
class QueueHandlers:
    store: MessageStore

    @handles(GetMaxOffset)
    def max_offset(self, ask: GetMaxOffset, call: Call) -> OffsetAnswer:
        queue = self.store.parts.queues.get(ask.topic, ask.queue_id)
        return OffsetAnswer(offset=QueueOffset(0 if queue is None else queue.max_offset))

    @handles(GetMinOffset)
    def min_offset(self, ask: GetMinOffset, call: Call) -> OffsetAnswer:
        queue = self.store.parts.queues.get(ask.topic, ask.queue_id)
        return OffsetAnswer(offset=QueueOffset(0 if queue is None else queue.min_offset))

    @handles(SearchOffset)
    async def search(self, ask: SearchOffset, call: Call) -> OffsetAnswer:
        """LOWER: the first message that is not earlier. UPPER: the last that is not later."""
        boundary = (ask.boundary_type or "LOWER").upper()
        if boundary == "LOWER":
            return OffsetAnswer(offset=QueueOffset(await self._not_before(ask, ask.timestamp)))
        if boundary != "UPPER":
            raise RequestFailed(
                ResponseCode.INVALID_PARAMETER, f"boundaryType {boundary[:40]!r} is unknown: LOWER or UPPER expected"
            )
        queue = self.store.parts.queues.get(ask.topic, ask.queue_id)
        later = await self._not_before(ask, min(ask.timestamp, _TIME_MAX_MS - 1) + 1)
        return OffsetAnswer(offset=QueueOffset(0 if queue is None else max(later - 1, queue.min_offset)))

    async def _not_before(self, ask: SearchOffset, timestamp_ms: int) -> int:
        return await off_the_loop(self.store.lookup.searching_by_time(ask.topic, ask.queue_id, timestamp_ms))

    @handles(GetEarliestStoreTime)
    async def earliest_store_time(self, ask: GetEarliestStoreTime, call: Call) -> StoreTimeAnswer:
        found = self.store.lookup.finding_earliest_store_time(ask.topic, ask.queue_id)
        return StoreTimeAnswer(timestamp=await off_the_loop(found))
