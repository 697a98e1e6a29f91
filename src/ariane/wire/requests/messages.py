"""Finding stored messages: by key, by id, by place in a queue."""

from msgspec import field

from ariane.model.group import Subscription
from ariane.wire.codes import RequestCode
from ariane.wire.exchange import ServedBy, request
from ariane.wire.fields import Int32, Int64, PhysicalOffset64, Request, Response
from ariane.wire.json.body import JsonBody


class QueryResponse(Response, frozen=True, kw_only=True):
    index_last_update_timestamp: Int64
    index_last_update_phyoffset: PhysicalOffset64
    body: bytes = b""
    """Stored messages back to back. The index knows hashes only: the caller compares the keys itself."""


@request(RequestCode.QUERY_MESSAGE, served_by=ServedBy.BROKER)
class QueryMessages(Request[QueryResponse], frozen=True, kw_only=True):
    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    unique_key_query: bool = field(name="_UNIQUE_KEY_QUERY", default=False)
    """`key` is a client's message id."""


class MessageResponse(Response, frozen=True):
    body: bytes = b""
    """One stored message."""


@request(RequestCode.VIEW_MESSAGE_BY_ID, served_by=ServedBy.BROKER)
class ViewMessage(Request[MessageResponse], frozen=True):
    offset: PhysicalOffset64


class ConsumeQueueEntry(JsonBody, frozen=True):
    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    """Whether the filter of the asked group lets it pass."""
    msg: str | None = None


class ConsumeQueuePage(JsonBody, frozen=True):
    subscription_data: Subscription | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueEntry] = []
    max_queue_index: int = 0
    min_queue_index: int = 0


class ConsumeQueueResponse(Response, frozen=True):
    body: ConsumeQueuePage = ConsumeQueuePage()


@request(RequestCode.QUERY_CONSUME_QUEUE, served_by=ServedBy.BROKER)
class QueryConsumeQueue(Request[ConsumeQueueResponse], frozen=True):
    """Entries of one queue's index, as they are: for looking into a fault."""

    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None
