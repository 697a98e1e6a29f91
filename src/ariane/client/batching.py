"""Batches that a program sends as such: what may be in one, and where they are cut to what brokers take."""

from collections.abc import Iterable, Iterator, Sequence

from ariane.client.envelope import Envelope
from ariane.client.parcel import Batch, Parcel, Single
from ariane.errors import MessageRejected
from ariane.model.ids import RETRY_PREFIX
from ariane.model.message import Message

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


def split(envelopes: Iterable[Envelope], bytes_max: int) -> Iterator[list[Envelope]]:
    """Runs of messages that fit one request each, in order."""
    run: list[Envelope] = []
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


def parcel_of(envelopes: list[Envelope], *, unit_mode: bool = False) -> Parcel:
    """A batch of one travels as a single message, which may be compressed."""
    return (
        Single(envelopes[0], unit_mode=unit_mode) if len(envelopes) == 1 else Batch.of(envelopes, unit_mode=unit_mode)
    )
