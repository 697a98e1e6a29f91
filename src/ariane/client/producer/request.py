"""What one attempt sends to a broker: a single message, a batch or a reply, as the request for a chosen queue."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from ariane.client.producer.message import PreparedMessage
from ariane.client.producer.settings import ProducerSettings
from ariane.errors import MessageRejected
from ariane.model.ids import RETRY_PREFIX
from ariane.model.message import Message, Property
from ariane.model.route import MessageQueue
from ariane.wire.record.batch import batch_pieces
from ariane.wire.requests.send import SendBatch, SendMessageV2, SendReplyV2, SendV2


class SendRequest(Protocol):
    @property
    def topic(self) -> str: ...

    @property
    def unique_keys(self) -> list[str]: ...

    def request(self, queue: MessageQueue, settings: ProducerSettings, now_ms: int) -> SendV2: ...


class Single(msgspec.Struct, frozen=True):
    envelope: PreparedMessage
    kind: type[SendV2] = SendMessageV2
    unit_mode: bool = False

    @property
    def topic(self) -> str:
        return self.envelope.message.topic

    @property
    def unique_keys(self) -> list[str]:
        return [self.envelope.unique_key]

    def request(self, queue: MessageQueue, settings: ProducerSettings, now_ms: int) -> SendV2:
        envelope = self.envelope
        return self.kind(
            producer_group=settings.group,
            topic=self.topic,
            default_topic=settings.template_topic,
            default_topic_queue_nums=settings.template_queues,
            queue_id=queue.queue_id,
            sys_flag=envelope.sys_flag,
            born_timestamp=now_ms,
            flag=envelope.message.flag,
            properties=envelope.properties,
            reconsume_times=0,
            unit_mode=self.unit_mode,
            batch=False,
            body=envelope.body,
        )


def reply_request(envelope: PreparedMessage) -> Single:
    return Single(envelope, SendReplyV2)


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
    def of(cls, envelopes: Sequence[PreparedMessage], *, unit_mode: bool = False) -> "Batch":
        return cls(
            topic=envelopes[0].message.topic,
            unique_keys=[envelope.unique_key for envelope in envelopes],
            bodies=[envelope.message.body for envelope in envelopes],
            texts=[envelope.properties.encode() for envelope in envelopes],
            flags=[envelope.message.flag for envelope in envelopes],
            wait_stored=envelopes[0].message.wait_stored,
            unit_mode=unit_mode,
        )

    def pieces(self) -> tuple[list[bytes], int]:
        """The body, to be joined, and how many bytes that will be."""
        return batch_pieces(self.bodies, self.texts, self.flags)

    def request(self, queue: MessageQueue, settings: ProducerSettings, now_ms: int) -> SendV2:
        return SendBatch(
            producer_group=settings.group,
            topic=self.topic,
            default_topic=settings.template_topic,
            default_topic_queue_nums=settings.template_queues,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=now_ms,
            flag=0,
            properties=f"{Property.WAIT}\x01{'true' if self.wait_stored else 'false'}\x02",
            reconsume_times=0,
            unit_mode=self.unit_mode,
            batch=True,
            body=b"".join(self.pieces()[0]),
        )


# --- batching ---
#
# Batches that a program sends as such: what may be in one, and where they are cut to what brokers take.

BATCH_COUNT_MAX = 500
"""The answer to a batch lists the ids of all its messages in one header field, at most 32 KiB with all its readers."""


def check_batch(messages: Sequence[Message]) -> None:
    """MessageRejected when these messages cannot share a request."""
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


def split(envelopes: Iterable[PreparedMessage], bytes_max: int) -> Iterator[list[PreparedMessage]]:
    """Runs of messages that fit one request each, in order."""
    run: list[PreparedMessage] = []
    run_bytes = 0
    for envelope in envelopes:
        size = envelope.batched_size
        if run and (run_bytes + size > bytes_max or len(run) == BATCH_COUNT_MAX):
            yield run
            run, run_bytes = [], 0
        run.append(envelope)
        run_bytes += size
    if run:
        yield run


def send_request_of(envelopes: list[PreparedMessage], *, unit_mode: bool = False) -> SendRequest:
    """A batch of one travels as a single message, which may be compressed."""
    return (
        Single(envelopes[0], unit_mode=unit_mode) if len(envelopes) == 1 else Batch.of(envelopes, unit_mode=unit_mode)
    )
