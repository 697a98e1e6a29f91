"""Requests that query stored messages: by key, by id, by position in a queue."""

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
    """Concatenated stored messages. The index contains only hashes, so the caller must compare the keys."""


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
    """Whether it matches the filter of the group in the request."""
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
    """The raw entries of one consume queue, for diagnosis."""

    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None
