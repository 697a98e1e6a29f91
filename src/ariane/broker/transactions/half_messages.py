"""Half messages: how a message waits for its outcome, and what becomes of it.

    what the producer sent            topic orders, queue 3
      half()         ->  RMQ_SYS_TRANS_HALF_TOPIC 0     REAL_TOPIC=orders REAL_QID=3, transaction bits cleared
      real()         ->  orders 3                       transaction bits 8, preparedTransactionOffset
      copy_of()      ->  RMQ_SYS_TRANS_HALF_TOPIC 0     TRANSACTION_CHECK_TIMES=n TRAN_PREPARED_QUEUE_OFFSET=first
      reopened()     ->  RMQ_SYS_TRANS_HALF_TOPIC 0     TRANSACTION_CHECK_TIMES=0
      given_up()     ->  TRANS_CHECK_MAX_TIME_TOPIC 0

Pure: messages in, messages out. The first two are what every transaction takes, and make drafts (half_drafts.py); the
others are for the few that nobody ended.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from ariane.broker.incoming import SEAL, Incoming
from ariane.broker.system_topics import TRANS_CHECK_MAX, TRANS_HALF
from ariane.broker.transactions.half_record import (
    HALF_QUEUE,
    first_offset,
    is_number,
    number,
    real_queue_id,
    real_topic,
)
from ariane.model.ids import PhysicalOffset, QueueOffset
from ariane.model.message import Property, StoredMessage
from ariane.store.draft import Appended
from ariane.wire.host import encode_host
from ariane.wire.record_read import decode
from ariane.wire.sys_flag import SysFlag

_TRANSACTION_BITS = int(SysFlag.TRANSACTION_TYPE)


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A half message as it is stored, or a later copy of one."""

    stored: StoredMessage

    @classmethod
    def of(cls, record: memoryview) -> "HalfMessage":
        """RecordError when its real topic and queue are not there or no number: bytes of a disk are not trusted."""
        message = cls(decode(record))
        _ = message.real_topic, message.real_queue_id, message.first_offset, message.times_asked
        return message

    @property
    def first_offset(self) -> int:
        """Queue offset of the message that the producer sent. All copies of it are one transaction."""
        return first_offset(self.stored.properties, self.stored.queue_offset, self.stored.physical_offset)

    @property
    def is_copy(self) -> bool:
        return self.first_offset != self.stored.queue_offset or self.times_asked > 0

    @property
    def times_asked(self) -> int:
        return number(self.stored.properties, Property.TRANSACTION_CHECK_TIMES, 0, self.stored.physical_offset)

    @property
    def producer_group(self) -> str:
        return self.stored.properties.get(Property.PRODUCER_GROUP, "")

    @property
    def unique_key(self) -> str | None:
        return self.stored.unique_key

    @property
    def real_topic(self) -> str:
        return real_topic(self.stored.properties, self.stored.physical_offset)

    @property
    def real_queue_id(self) -> int:
        return real_queue_id(self.stored.properties, self.stored.physical_offset)

    def immunity_ms(self, default_ms: int) -> int:
        """Age before which the producer is not asked: its own wish, or the broker's default."""
        seconds = self.stored.properties.get(Property.CHECK_IMMUNITY_TIME_IN_SECONDS, "")
        return int(seconds) * 1000 if is_number(seconds) else default_ms

    def age_ms(self, now_ms: int) -> int:
        """Since it was sent: by our clock for the first record; a copy still has the producer's time of birth."""
        stored_ms = self.stored.store_timestamp_ms
        return now_ms - (min(self.stored.born_timestamp_ms, stored_ms) if self.is_copy else stored_ms)

    def moved(self, properties: dict[str, str], to: Appended) -> "HalfMessage":
        """The same message as its copy at `to` has it."""
        return HalfMessage(
            replace(
                self.stored,
                properties=properties,
                queue_offset=QueueOffset(to.queue_offset),
                physical_offset=PhysicalOffset(to.physical_offset),
                store_timestamp_ms=to.store_timestamp_ms,
            )
        )

    def as_real(self) -> StoredMessage:
        """As it will be once it is committed, but where it is now: what a producer is shown."""
        return replace(self.stored, topic=self.real_topic, queue_id=self.real_queue_id)


def copy_of(message: HalfMessage, times_asked: int) -> Incoming:
    """The message once more at the end of the half queue, so that the queue's beginning can be forgotten."""
    properties = dict(message.stored.properties)
    properties[Property.TRANSACTION_CHECK_TIMES] = str(times_asked)
    properties[Property.TRANSACTION_PREPARED_QUEUE_OFFSET] = str(message.first_offset)
    return _incoming(message.stored, topic=TRANS_HALF, queue_id=HALF_QUEUE, properties=properties)


def reopened(message: HalfMessage) -> Incoming:
    """A message that was given up, as if it had never been asked about."""
    properties = dict(message.stored.properties)
    properties[Property.TRANSACTION_CHECK_TIMES] = "0"
    if message.stored.topic == TRANS_HALF:
        properties[Property.TRANSACTION_PREPARED_QUEUE_OFFSET] = str(message.first_offset)
    return _incoming(message.stored, topic=TRANS_HALF, queue_id=HALF_QUEUE, properties=properties)


def given_up(message: HalfMessage) -> Incoming:
    """The message where it waits for an administrator."""
    return replace(copy_of(message, message.times_asked), topic=TRANS_CHECK_MAX, queue_id=0)


def _incoming(stored: StoredMessage, *, topic: str, queue_id: int, properties: dict[str, str]) -> Incoming:
    return Incoming(
        topic=topic,
        queue_id=queue_id,
        body=stored.body,
        properties={name: value for name, value in properties.items() if name != SEAL},
        born_timestamp_ms=stored.born_timestamp_ms,
        born_host=encode_host(stored.born_host),
        flag=stored.flag,
        sys_flag=stored.sys_flag & ~_TRANSACTION_BITS,
        reconsume_times=stored.reconsume_times,
    )
