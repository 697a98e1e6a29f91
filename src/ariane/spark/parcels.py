"""Requests to be: messages for one queue, packed as they will travel."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from time import time

from ariane.model.route import MessageQueue
from ariane.model.topic import AUTO_CREATE_TEMPLATE
from ariane.spark.encoded_rows import EncodedRows
from ariane.spark.outgoing import Outgoing
from ariane.spark.queue_choice import QueueChoice
from ariane.spark.write_options import WriteOptions
from ariane.wire.batch import BatchItem, encode_batch
from ariane.wire.requests.send import SendBatch, SendByLetters, SendMessageV2

_BATCH_PROPERTIES = "WAIT\x01true\x02"
_ROUND_BYTES_MAX = 8 * 1024 * 1024


@dataclass(slots=True)
class Parcel:
    """`fixed` when it may go to no other queue."""

    queue: MessageQueue
    fixed: bool
    messages: list[Outgoing] = field(default_factory=list)
    size: int = 0
    encoded: bytes | None = None
    """In place of `messages`, of which there are `count`."""
    count: int = 0

    def add(self, message: Outgoing) -> None:
        self.messages.append(message)
        self.size += message.size
        self.count += 1

    def request(self, group: str) -> SendByLetters:
        single = self.messages[0] if len(self.messages) == 1 else None
        kind = SendBatch if single is None else SendMessageV2
        return kind(
            producer_group=group,
            topic=self.queue.topic,
            default_topic=AUTO_CREATE_TEMPLATE,
            default_topic_queue_nums=4,
            queue_id=self.queue.queue_id,
            sys_flag=0,
            born_timestamp=int(time() * 1000),
            flag=0,
            properties=_BATCH_PROPERTIES if single is None else single.properties.decode(),
            reconsume_times=0,
            unit_mode=False,
            batch=single is None,
            body=self._body() if single is None else single.body,
        )

    def _body(self) -> bytes:
        if self.encoded is not None:
            return self.encoded
        return encode_batch(BatchItem(one.body, one.properties) for one in self.messages)


class Rounds:
    """A round holds at most one parcel for each queue."""

    def __init__(self, options: WriteOptions, choice: QueueChoice) -> None:
        self._options = options
        self._choice = choice

    def of_messages(self, messages: Iterable[Outgoing]) -> Iterator[list[Parcel]]:
        """A round ends when a message does not fit the parcel of its queue any more."""
        parcels: dict[MessageQueue, Parcel] = {}
        size = 0
        for message in messages:
            queue, fixed = self._queue_for(message, parcels)
            parcel = parcels.get(queue)
            if (parcel is not None and not self._fits(parcel, message, fixed)) or size > _ROUND_BYTES_MAX:
                yield list(parcels.values())
                parcels, size, parcel = {}, 0, None
            if parcel is None:
                parcel = parcels[queue] = Parcel(queue, fixed)
            parcel.add(message)
            size += message.size
        if parcels:
            yield list(parcels.values())

    def of_rows(self, topic: str, rows: EncodedRows) -> Iterator[list[Parcel]]:
        """One parcel for each queue in turn."""
        parcels: list[Parcel] = []
        for count, data in rows.pieces(self._options.batch_count, self._options.batch_bytes):
            parcels.append(Parcel(self._choice.next(topic), fixed=False, size=len(data), encoded=data, count=count))
            if (
                len(parcels) == len(self._choice.queues_of(topic))
                or sum(one.size for one in parcels) > _ROUND_BYTES_MAX
            ):
                yield parcels
                parcels = []
        if parcels:
            yield parcels

    def _queue_for(self, message: Outgoing, parcels: dict[MessageQueue, Parcel]) -> tuple[MessageQueue, bool]:
        fixed = self._choice.fixed(message)
        if fixed is not None:
            return fixed, True
        queue = self._choice.current(message.topic)
        parcel = parcels.get(queue)
        if parcel is not None and not self._fits(parcel, message, fixed=False):
            queue = self._choice.next(message.topic)  # and a new round when every queue has its parcel
        return queue, False

    def _fits(self, parcel: Parcel, message: Outgoing, fixed: bool) -> bool:
        return (
            parcel.fixed == fixed
            and not message.travels_alone
            and not parcel.messages[0].travels_alone
            and len(parcel.messages) < self._options.batch_count
            and parcel.size + message.size <= self._options.batch_bytes
        )
