"""Half messages: how a message waits for its outcome, and what becomes of it.

    what the producer sent            topic orders, queue 3
      half()         ->  RMQ_SYS_TRANS_HALF_TOPIC 0     REAL_TOPIC=orders REAL_QID=3, transaction bits cleared
      copy_of()      ->  RMQ_SYS_TRANS_HALF_TOPIC 0     TRANSACTION_CHECK_TIMES=n TRAN_PREPARED_QUEUE_OFFSET=first
      committed()    ->  orders 3                       transaction bits 8, preparedTransactionOffset
      reopened()     ->  RMQ_SYS_TRANS_HALF_TOPIC 0     TRANSACTION_CHECK_TIMES=0
      given_up()     ->  TRANS_CHECK_MAX_TIME_TOPIC 0

Pure: messages in, messages out. The bits are cleared because a record with the "prepared" bit gets no entry in its
queue, and the queue is how the broker finds what still waits.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from ariane.broker.incoming import SEAL, Incoming
from ariane.broker.system_topics import TRANS_CHECK_MAX, TRANS_HALF
from ariane.errors import RecordError
from ariane.model.ids import PhysicalOffset, QueueOffset
from ariane.model.message import Property, StoredMessage
from ariane.store.draft import Appended
from ariane.wire.host import encode_host
from ariane.wire.record_read import decode
from ariane.wire.sys_flag import SysFlag

HALF_QUEUE = 0

_TRANSACTION_BITS = int(SysFlag.TRANSACTION_TYPE)
_COMMIT_BITS = int(SysFlag.TRANSACTION_COMMIT)

# Only the broker's word counts here: with them a producer could pass its message off as a copy of somebody else's.
_NOT_FROM_PRODUCERS = (Property.TRANSACTION_PREPARED_QUEUE_OFFSET, Property.TRANSACTION_CHECK_TIMES)

_QUEUE_ID_MAX = 2**31 - 1
_NUMBER_DIGITS_MAX = 18  # what fits 63 bits


def half(message: Incoming) -> Incoming:
    """What a producer wants to send, as it waits for its outcome."""
    properties = {name: value for name, value in message.properties.items() if name not in _NOT_FROM_PRODUCERS}
    properties[Property.REAL_TOPIC] = message.topic
    properties[Property.REAL_QUEUE_ID] = str(message.queue_id)
    return replace(
        message,
        topic=TRANS_HALF,
        queue_id=HALF_QUEUE,
        properties=properties,
        sys_flag=message.sys_flag & ~_TRANSACTION_BITS,
        prepared_transaction_offset=0,
    )


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
        own = self.stored.queue_offset
        return min(own, _number(self.stored, Property.TRANSACTION_PREPARED_QUEUE_OFFSET, own))

    @property
    def is_copy(self) -> bool:
        return self.first_offset != self.stored.queue_offset or self.times_asked > 0

    @property
    def times_asked(self) -> int:
        return _number(self.stored, Property.TRANSACTION_CHECK_TIMES, 0)

    @property
    def producer_group(self) -> str:
        return self.stored.properties.get(Property.PRODUCER_GROUP, "")

    @property
    def unique_key(self) -> str | None:
        return self.stored.unique_key

    @property
    def real_topic(self) -> str:
        topic = self.stored.properties.get(Property.REAL_TOPIC)
        if topic is None:
            raise RecordError(f"the message at offset {self.stored.physical_offset} has no {Property.REAL_TOPIC}")
        return topic

    @property
    def real_queue_id(self) -> int:
        queue_id = _number(self.stored, Property.REAL_QUEUE_ID, None)
        if queue_id > _QUEUE_ID_MAX:
            raise RecordError(f"{Property.REAL_QUEUE_ID} of the message at {self.stored.physical_offset} is {queue_id}")
        return queue_id

    def immunity_ms(self, default_ms: int) -> int:
        """Age before which the producer is not asked: its own wish, or the broker's default."""
        seconds = self.stored.properties.get(Property.CHECK_IMMUNITY_TIME_IN_SECONDS, "")
        return int(seconds) * 1000 if _is_number(seconds) else default_ms

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


def committed(message: HalfMessage) -> Incoming:
    """The real message. REAL_TOPIC, REAL_QID and TRAN_MSG stay, as in Apache: Java consumers read the last."""
    stored = message.stored
    return _incoming(
        stored,
        topic=message.real_topic,
        queue_id=message.real_queue_id,
        properties=stored.properties,
        sys_flag=stored.sys_flag & ~_TRANSACTION_BITS | _COMMIT_BITS,
        prepared_transaction_offset=stored.physical_offset,
    )


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


def _incoming(
    stored: StoredMessage,
    *,
    topic: str,
    queue_id: int,
    properties: dict[str, str],
    sys_flag: int | None = None,
    prepared_transaction_offset: int = 0,
) -> Incoming:
    return Incoming(
        topic=topic,
        queue_id=queue_id,
        body=stored.body,
        properties={name: value for name, value in properties.items() if name != SEAL},
        born_timestamp_ms=stored.born_timestamp_ms,
        born_host=encode_host(stored.born_host),
        flag=stored.flag,
        sys_flag=stored.sys_flag & ~_TRANSACTION_BITS if sys_flag is None else sys_flag,
        reconsume_times=stored.reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX


def _number(stored: StoredMessage, name: str, default: int | None) -> int:
    text = stored.properties.get(name)
    if text is None and default is not None:
        return default
    if text is None or not _is_number(text):
        raise RecordError(f"property {name} of the message at offset {stored.physical_offset} is {text!r}, no number")
    return int(text)
