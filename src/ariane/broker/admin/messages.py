"""Admin requests that find messages: by key, by offset, and the raw entries of a consume queue."""

from collections.abc import Sequence
from dataclasses import dataclass

from ariane.broker.acl.rights import RightsOf, all_rights
from ariane.broker.groups.members import Clients
from ariane.broker.pull.filters import MessageFilter, filter_of
from ariane.broker.settings import BrokerSettings
from ariane.errors import ExpressionError, RequestFailed
from ariane.model.group import Subscription
from ariane.model.ids import PhysicalOffset
from ariane.rpc.handlers import Call, handles
from ariane.store.blocking_io import IoSteps
from ariane.store.consume_queue.entry import ENTRY
from ariane.store.consume_queue.queue import ConsumeQueue
from ariane.store.read.lookup import QUERY_MAX
from ariane.store.service import StoreService
from ariane.wire.codes import ResponseCode
from ariane.wire.record.read import RecordView, verify
from ariane.wire.requests.messages import (
    ConsumeQueueEntry,
    ConsumeQueuePage,
    ConsumeQueueResponse,
    MessageResponse,
    QueryConsumeQueue,
    QueryMessages,
    QueryResponse,
    ViewMessage,
)

UNIQUE_KEY_COUNT = 32
"""The maximum for a query by unique key, as in Apache: a message, its retries and copies."""

ENTRIES_MAX = 1_000
BODY_BYTES_MAX = 8 * 1024 * 1024
"""Half a frame. One message always fits; a longer response omits the oldest messages."""


@dataclass(frozen=True)
class MessageHandlers:
    settings: BrokerSettings
    service: StoreService
    clients: Clients
    rights_of: RightsOf = all_rights

    # --- by key and by id -------------------------------------------------------------------------------------------

    @handles(QueryMessages)
    async def query(self, request: QueryMessages, call: Call) -> QueryResponse:
        count_max = UNIQUE_KEY_COUNT if request.unique_key_query else min(request.max_num, QUERY_MAX)
        records = await self.service.by_key(
            request.topic, request.key, max(1, count_max), request.begin_timestamp, request.end_timestamp
        )
        if not records:
            raise RequestFailed(
                ResponseCode.QUERY_NOT_FOUND,
                f"no message of topic {request.topic[:255]} with key {request.key[:255]!r} was stored between "
                f"{request.begin_timestamp} and {request.end_timestamp}",
            )
        timestamp_ms, physical = await self._index_end()
        return QueryResponse(
            index_last_update_timestamp=timestamp_ms,
            index_last_update_phyoffset=PhysicalOffset(physical),
            body=b"".join(_limit_bytes(records)),
        )

    async def _index_end(self) -> tuple[int, int]:
        """Store time and offset of the last indexed message: the response covers messages up to there."""
        index = self.service.store.components.index
        physical = -1 if index is None else min(index.end_physical, self.service.store.lookup.visible_to)
        record = await self._record(physical)
        view = None if record is None else verify(record, 0, check_body_crc=False)
        return (view.store_timestamp_ms if isinstance(view, RecordView) else 0), max(physical, 0)

    @handles(ViewMessage)
    async def view(self, request: ViewMessage, call: Call) -> MessageResponse:
        record = await self._record(request.offset)
        view = None if record is None else verify(record, 0, check_body_crc=False)
        if record is None or not isinstance(view, RecordView):
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"no message starts at offset {request.offset}: it was deleted, or the id belongs to another broker",
            )
        self.rights_of(call).require_read_of_message(view.topic)
        return MessageResponse(body=bytes(record))

    async def _record(self, physical: int) -> memoryview | None:
        return await self.service.run(self.service.store.lookup.record_at_steps(physical)) if physical >= 0 else None

    # --- entries ----------------------------------------------------------------------------------------------------

    @handles(QueryConsumeQueue)
    async def consume_queue(self, request: QueryConsumeQueue, call: Call) -> ConsumeQueueResponse:
        where = f"queue {request.queue_id} of topic {request.topic[:255]}"
        queue = self.service.store.components.queues.get(request.topic, request.queue_id)
        if queue is None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, f"{where} does not exist")
        message_filter, subscription, note = self._filter(request)
        entries = await self.service.run(self._entries(queue, request, message_filter))
        if not entries:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"{where} has no entry {request.index}: it holds {queue.min_offset} to {queue.visible_end - 1}",
            )
        return ConsumeQueueResponse(
            body=ConsumeQueuePage(
                subscription_data=subscription,
                filter_data=note,
                queue_data=[
                    ConsumeQueueEntry(
                        physic_offset=physical,
                        physic_size=size,
                        tags_code=code,
                        eval=self._passes(message_filter, code, physical, size),
                    )
                    for physical, size, code in ENTRY.iter_unpack(entries)
                ],
                max_queue_index=queue.visible_end,
                min_queue_index=queue.min_offset,
            )
        )

    def _entries(
        self, queue: ConsumeQueue, request: QueryConsumeQueue, message_filter: MessageFilter | None
    ) -> IoSteps[bytes]:
        """Reads the entries, and loads their records into memory if the filter needs them."""
        count = min(max(1, request.count), ENTRIES_MAX)
        yield from queue.warm(request.index, count)
        entries = queue.entries(request.index, count)
        if message_filter is not None and message_filter.record_match is not None:
            ranges = [(physical, size) for physical, size, _ in ENTRY.iter_unpack(entries)]
            yield from self.service.store.components.commit_log.warm(ranges)
        return entries

    def _filter(self, request: QueryConsumeQueue) -> tuple[MessageFilter | None, Subscription | None, str | None]:
        """The group's filter and subscription, and a note if there is no filter."""
        if not request.consumer_group:
            return None, None, None
        group = self.clients.group(request.consumer_group)
        subscription = None if group is None else group.subscriptions.get(request.topic)
        if subscription is None:
            return None, None, f"{request.consumer_group}@{request.topic} is not online!"
        try:
            return filter_of(subscription, property_filter=True), subscription, None
        except ExpressionError as error:
            return None, subscription, str(error)

    def _passes(self, message_filter: MessageFilter | None, tags_code: int, physical: int, size: int) -> bool:
        if message_filter is None:
            return False
        record = (
            None
            if message_filter.record_match is None
            else self.service.store.components.commit_log.read(physical, size)
        )
        return message_filter.matches(tags_code, record)


def _limit_bytes(records: Sequence[memoryview]) -> list[memoryview]:
    """As many records as fit into a response, at least one."""
    fitting: list[memoryview] = []
    size = 0
    for record in records:
        size += len(record)
        if fitting and size > BODY_BYTES_MAX:
            break
        fitting.append(record)
    return fitting
