"""Send requests: a single message, a batch or a reply, encoded for the queue of each attempt; splitting of batches."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from ariane.client.producer.message import PreparedMessage
from ariane.client.producer.settings import ProducerSettings
from ariane.errors import MessageRejected
from ariane.model.ids import RETRY_PREFIX
from ariane.model.message import Message
from ariane.model.route import MessageQueue
from ariane.wire.properties import WAIT_FALSE, WAIT_TRUE
from ariane.wire.record.batch import batch_pieces
from ariane.wire.requests.send import SendBatch, SendMessageV2, SendReplyV2, SendV2


class SendRequest(Protocol):
    """One or more messages of one topic that are sent in one request."""

    @property
    def topic(self) -> str: ...

    @property
    def unique_keys(self) -> list[str]: ...

    def wire_request(self, queue: MessageQueue, settings: ProducerSettings, now_ms: int) -> SendV2: ...


class Single(msgspec.Struct, frozen=True):
    """A request with one message."""

    prepared: PreparedMessage
    kind: type[SendV2] = SendMessageV2
    unit_mode: bool = False

    @property
    def topic(self) -> str:
        return self.prepared.message.topic

    @property
    def unique_keys(self) -> list[str]:
        return [self.prepared.unique_key]

    def wire_request(self, queue: MessageQueue, settings: ProducerSettings, now_ms: int) -> SendV2:
        prepared = self.prepared
        return self.kind(
            producer_group=settings.group,
            topic=self.topic,
            default_topic=settings.template_topic,
            default_topic_queue_nums=settings.template_queues,
            queue_id=queue.queue_id,
            sys_flag=prepared.sys_flag,
            born_timestamp=now_ms,
            flag=prepared.message.flag,
            properties=prepared.properties,
            reconsume_times=0,
            unit_mode=self.unit_mode,
            batch=False,
            body=prepared.body,
        )


def reply_request(prepared: PreparedMessage) -> Single:
    return Single(prepared, SendReplyV2)


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one topic that are stored together, in order, in one queue. Never compressed, as in 4.7.1."""

    topic: str
    unique_keys: list[str]
    bodies: Sequence[bytes]
    texts: Sequence[bytes]
    """The property texts."""
    flags: Sequence[int]
    wait_stored: bool = True
    unit_mode: bool = False

    @classmethod
    def of(cls, messages: Sequence[PreparedMessage], *, unit_mode: bool = False) -> "Batch":
        return cls(
            topic=messages[0].message.topic,
            unique_keys=[prepared.unique_key for prepared in messages],
            bodies=[prepared.message.body for prepared in messages],
            texts=[prepared.properties.encode() for prepared in messages],
            flags=[prepared.message.flag for prepared in messages],
            wait_stored=messages[0].message.wait_stored,
            unit_mode=unit_mode,
        )

    def pieces(self) -> tuple[list[bytes], int]:
        """The pieces of the request body, and their total size."""
        return batch_pieces(self.bodies, self.texts, self.flags)

    def wire_request(self, queue: MessageQueue, settings: ProducerSettings, now_ms: int) -> SendV2:
        return SendBatch(
            producer_group=settings.group,
            topic=self.topic,
            default_topic=settings.template_topic,
            default_topic_queue_nums=settings.template_queues,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=now_ms,
            flag=0,
            properties=WAIT_TRUE if self.wait_stored else WAIT_FALSE,
            reconsume_times=0,
            unit_mode=self.unit_mode,
            batch=True,
            body=b"".join(self.pieces()[0]),
        )


# --- batches of `send_batch` ---

BATCH_COUNT_MAX = 500
"""The response to a batch lists the ids of all messages in one header field, which may have 32 KiB for all readers."""


def check_batch(messages: Sequence[Message]) -> None:
    """MessageRejected if these messages cannot be sent in one batch."""
    if not messages:
        raise MessageRejected("the batch is empty: give it at least one message")
    first = messages[0]
    for message in messages:
        if message.topic != first.topic:
            raise MessageRejected(f"a batch has one topic, not {first.topic} and {message.topic}: send two batches")
        if message.wait_stored != first.wait_stored:
            raise MessageRejected("messages of a batch must agree on wait_stored: send two batches")
        if not can_be_batched(message):
            raise MessageRejected("a delayed message or one for a retry topic cannot be in a batch: send it alone")


def can_be_batched(message: Message) -> bool:
    return not message.delay_level and message.deliver_at is None and not message.topic.startswith(RETRY_PREFIX)


def split(messages: Iterable[PreparedMessage], bytes_max: int) -> Iterator[list[PreparedMessage]]:
    """Splits messages into runs that fit one request each, in order."""
    run: list[PreparedMessage] = []
    run_bytes = 0
    for prepared in messages:
        size = prepared.batched_size
        if run and (run_bytes + size > bytes_max or len(run) == BATCH_COUNT_MAX):
            yield run
            run, run_bytes = [], 0
        run.append(prepared)
        run_bytes += size
    if run:
        yield run


def send_request_of(messages: list[PreparedMessage], *, unit_mode: bool = False) -> SendRequest:
    """One message is sent alone, so that it may be compressed."""
    return Single(messages[0], unit_mode=unit_mode) if len(messages) == 1 else Batch.of(messages, unit_mode=unit_mode)
