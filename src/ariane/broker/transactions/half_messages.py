"""Half messages: a transactional message while it waits for its outcome, and the messages made from it.

    what the producer sent            topic orders, queue 3
      half()         ->  RMQ_SYS_TRANS_HALF_TOPIC 0     REAL_TOPIC=orders REAL_QID=3, transaction bits cleared
      real()         ->  orders 3                       transaction bits 8, preparedTransactionOffset
      copy_of()      ->  RMQ_SYS_TRANS_HALF_TOPIC 0     TRANSACTION_CHECK_TIMES=n TRAN_PREPARED_QUEUE_OFFSET=first
      reopened()     ->  RMQ_SYS_TRANS_HALF_TOPIC 0     TRANSACTION_CHECK_TIMES=0
      given_up()     ->  TRANS_CHECK_MAX_TIME_TOPIC 0

Pure: messages in, messages out. Every transaction uses the first two, which make drafts from the property text as it
came: nothing is parsed and written again. The others are for the few without an outcome.

    producer's text                      TAGS=a KEYS=k TRAN_MSG=true PGROUP=payers
    half(), waits in the half queue      the same + what the broker adds to each one + REAL_TOPIC=orders REAL_QID=3
    real(), once it is committed         the very same bytes

The transaction bits are cleared because a record with the "prepared" bit gets no entry in its queue, and the queue is
how the broker finds what still waits.

An op message says that the half message at an offset of the half queue has ended:

    topic RMQ_SYS_TRANS_OP_HALF_TOPIC, queue 0, TAGS "d"
    body  4711            4.x, and this broker: the half message's queue offset in decimal
    body  4711,4712,      5.x collects several, each followed by a comma

This broker writes one offset a message: both releases read that, and a broker of the older one fails on a comma.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from ariane.broker.writer import DEFERRING, REAL_FORM, InboundMessage
from ariane.errors import RecordError
from ariane.model.ids import PhysicalOffset, QueueOffset
from ariane.model.message import Property, StoredMessage
from ariane.model.system_topics import TRANS_CHECK_MAX, TRANS_HALF, TRANS_OP
from ariane.store.append.draft import Appended, Draft
from ariane.wire.hashes import tags_code
from ariane.wire.host import encode_host
from ariane.wire.properties import CHECKSUM_PROPERTY, encode_properties, join_properties, keys_of
from ariane.wire.record.read import RecordView, decode, verify
from ariane.wire.sys_flag import SysFlag

# --- a half message in the log ----------------------------------------------------------------------------------------

_REAL_TOPIC, _REAL_QUEUE_ID = Property.REAL_TOPIC, Property.REAL_QUEUE_ID
_FIRST = Property.TRANSACTION_PREPARED_QUEUE_OFFSET
_PRODUCER_GROUP = Property.PRODUCER_GROUP

HALF_QUEUE = 0
"""Of RMQ_SYS_TRANS_HALF_TOPIC, which has no other."""

_QUEUE_ID_MAX = 2**31 - 1
_NUMBER_DIGITS_MAX = 18  # what fits 63 bits


class HalfRecord(msgspec.Struct, frozen=True, gc=False):
    """A half message in the log: what its outcome needs of it, and its body only for a commit."""

    view: RecordView
    properties: dict[str, str]
    real_topic: str
    real_queue_id: int
    first_offset: int
    """Queue offset of the message that the producer sent. All copies of it are one transaction."""
    record: memoryview

    @classmethod
    def of(cls, record: memoryview) -> "HalfRecord":
        """RecordError when it does not name its real topic and queue: bytes of a disk are not trusted."""
        view = verify(record, check_body_crc=False)
        if not isinstance(view, RecordView):
            raise RecordError(f"no half message: {getattr(view, 'reason', 'a blank record')}")
        properties, at = view.properties(), view.physical_offset
        first = first_offset(properties, view.queue_offset, at)
        return cls(view, properties, real_topic(properties, at), real_queue_id(properties, at), first, record)

    @property
    def producer_group(self) -> str:
        return self.properties.get(_PRODUCER_GROUP, "")

    def is_of_group(self, group: str) -> bool:
        return self.producer_group == group

    @property
    def is_deferred(self) -> bool:
        """Whether it has a delay, which begins with the commit."""
        return not DEFERRING.isdisjoint(self.properties)

    @property
    def physical_offset(self) -> int:
        return self.view.physical_offset

    @property
    def size(self) -> int:
        return self.view.size

    def real(self) -> Draft:
        return real(self)

    @property
    def body(self) -> bytes:
        return self.view.body(self.record)

    @property
    def property_text(self) -> bytes:
        """As stored, but without the checksum, which is that of this record."""
        if CHECKSUM_PROPERTY not in self.properties:
            return self.view.property_text
        return encode_properties({name: value for name, value in self.properties.items() if name != CHECKSUM_PROPERTY})


# --- properties of a half message; `at` is its physical offset, for the error -----------------------------------------


def real_topic(properties: Mapping[str, str], at: int) -> str:
    topic = properties.get(_REAL_TOPIC)
    if topic is None:
        raise RecordError(f"the message at offset {at} has no {_REAL_TOPIC}")
    return topic


def real_queue_id(properties: Mapping[str, str], at: int) -> int:
    queue_id = number(properties, _REAL_QUEUE_ID, None, at)
    if queue_id > _QUEUE_ID_MAX:
        raise RecordError(f"{_REAL_QUEUE_ID} of the message at {at} is {queue_id}")
    return queue_id


def first_offset(properties: Mapping[str, str], own_offset: int, at: int) -> int:
    return min(own_offset, number(properties, _FIRST, None, at)) if _FIRST in properties else own_offset


def number(properties: Mapping[str, str], name: str, default: int | None, at: int) -> int:
    text = properties.get(name)
    if text is None and default is not None:
        return default
    if text is None or not is_number(text):
        raise RecordError(f"property {name} of the message at offset {at} is {text!r}, no number")
    return int(text)


def is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX


# --- messages ---------------------------------------------------------------------------------------------------------

_TRANSACTION_BITS = int(SysFlag.TRANSACTION_TYPE)


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A half message as it is stored, or a later copy of one."""

    stored: StoredMessage

    @classmethod
    def of(cls, record: memoryview) -> "HalfMessage":
        """RecordError when its real topic or queue is missing or malformed: bytes of a disk are not trusted."""
        message = cls(decode(record))
        _ = message.real_topic, message.real_queue_id, message.first_offset, message.check_times
        return message

    @property
    def first_offset(self) -> int:
        """Queue offset of the message that the producer sent. All copies of it are one transaction."""
        return first_offset(self.stored.properties, self.stored.queue_offset, self.stored.physical_offset)

    @property
    def is_copy(self) -> bool:
        return self.first_offset != self.stored.queue_offset or self.check_times > 0

    @property
    def check_times(self) -> int:
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
        """Age before which the producer gets no check request: its own setting, or the broker's default."""
        seconds = self.stored.properties.get(Property.CHECK_IMMUNITY_TIME_IN_SECONDS, "")
        return int(seconds) * 1000 if is_number(seconds) else default_ms

    def age_ms(self, now_ms: int) -> int:
        """Since it was sent: by the broker's clock for the first record, by the producer's for a copy."""
        stored_ms = self.stored.store_timestamp_ms
        return now_ms - (min(self.stored.born_timestamp_ms, stored_ms) if self.is_copy else stored_ms)

    def moved(self, properties: dict[str, str], to: Appended) -> "HalfMessage":
        """The same message with the properties and offsets of its copy at `to`."""
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
        """As it will be once it is committed, but with its offsets of now: for a check request."""
        return replace(self.stored, topic=self.real_topic, queue_id=self.real_queue_id)


def copy_of(message: HalfMessage, check_times: int) -> InboundMessage:
    """A copy at the end of the half queue, so that progress can move past the original."""
    properties = dict(message.stored.properties)
    properties[Property.TRANSACTION_CHECK_TIMES] = str(check_times)
    properties[Property.TRANSACTION_PREPARED_QUEUE_OFFSET] = str(message.first_offset)
    return _inbound(message.stored, topic=TRANS_HALF, queue_id=HALF_QUEUE, properties=properties)


def reopened(message: HalfMessage) -> InboundMessage:
    """A message that was given up, as if there had been no check request yet."""
    properties = dict(message.stored.properties)
    properties[Property.TRANSACTION_CHECK_TIMES] = "0"
    if message.stored.topic == TRANS_HALF:
        properties[Property.TRANSACTION_PREPARED_QUEUE_OFFSET] = str(message.first_offset)
    return _inbound(message.stored, topic=TRANS_HALF, queue_id=HALF_QUEUE, properties=properties)


def given_up(message: HalfMessage) -> InboundMessage:
    """A copy in the topic of given-up messages, for an administrator."""
    return replace(copy_of(message, message.check_times), topic=TRANS_CHECK_MAX, queue_id=0)


def _inbound(stored: StoredMessage, *, topic: str, queue_id: int, properties: dict[str, str]) -> InboundMessage:
    return InboundMessage(
        topic=topic,
        queue_id=queue_id,
        body=stored.body,
        properties={name: value for name, value in properties.items() if name != CHECKSUM_PROPERTY},
        born_timestamp_ms=stored.born_timestamp_ms,
        born_host=encode_host(stored.born_host),
        flag=stored.flag,
        sys_flag=stored.sys_flag & ~_TRANSACTION_BITS,
        reconsume_times=stored.reconsume_times,
    )


# --- drafts -----------------------------------------------------------------------------------------------------------

_COMMIT_BITS = int(SysFlag.TRANSACTION_COMMIT)
_TAGS = Property.TAGS

NOT_FROM_PRODUCERS = DEFERRING | {
    # With these a producer could pass its message off as a copy of another.
    Property.TRANSACTION_PREPARED_QUEUE_OFFSET,
    Property.TRANSACTION_CHECK_TIMES,
    # What the broker adds, and must not be there twice.
    Property.REAL_TOPIC,
    Property.REAL_QUEUE_ID,
    Property.CLUSTER,
    Property.MSG_REGION,
}
"""Delays are left out, as Java's producer does for half messages: they wait for the commit."""


def producers_text(properties: dict[str, str], text: str) -> str:
    """A half message's property text without properties that its producer may not set: nearly always as it came."""
    if NOT_FROM_PRODUCERS.isdisjoint(properties):
        return text
    return join_properties((name, value) for name, value in properties.items() if name not in NOT_FROM_PRODUCERS)


def half(draft: Draft) -> Draft:
    """Turns the draft of a send into one that waits for its outcome."""
    draft.properties += REAL_FORM % (draft.topic.encode(), draft.queue_id)
    draft.topic, draft.queue_id = TRANS_HALF, HALF_QUEUE
    draft.sys_flag &= ~_TRANSACTION_BITS
    return draft


def real(waiting: HalfRecord) -> Draft:
    """The message as it is delivered. REAL_TOPIC, REAL_QID and TRAN_MSG stay, as in Apache: Java reads the last."""
    view, properties = waiting.view, waiting.properties
    return Draft(
        topic=waiting.real_topic,
        queue_id=waiting.real_queue_id,
        body=waiting.body,
        properties=waiting.property_text,
        born_timestamp_ms=view.born_timestamp_ms,
        born_host=view.born_host,
        flag=view.flag,
        sys_flag=view.sys_flag & ~_TRANSACTION_BITS | _COMMIT_BITS,
        reconsume_times=view.reconsume_times,
        prepared_transaction_offset=view.physical_offset,
        tags_code=tags_code(properties.get(_TAGS)),
        keys=keys_of(properties),
    )


def real_to_defer(waiting: HalfRecord) -> InboundMessage:
    """The same as a message, for one of the few with a delay, which begins with the commit."""
    draft = real(waiting)
    return InboundMessage(
        topic=draft.topic,
        queue_id=draft.queue_id,
        body=draft.body,
        properties={name: value for name, value in waiting.properties.items() if name != CHECKSUM_PROPERTY},
        born_timestamp_ms=draft.born_timestamp_ms,
        born_host=draft.born_host,
        flag=draft.flag,
        sys_flag=draft.sys_flag,
        reconsume_times=draft.reconsume_times,
        prepared_transaction_offset=draft.prepared_transaction_offset,
    )


# --- op messages ------------------------------------------------------------------------------------------------------

OP_QUEUE = 0
_ENDED = "d"
_PROPERTIES, _TAGS_CODE = encode_properties({Property.TAGS: _ENDED}), tags_code(_ENDED)
_DIGITS_MAX = 18  # what fits 63 bits


def op_message(half_offset: int, now_ms: int, own_host: bytes) -> Draft:
    """Says that the half message at `half_offset` of its queue has ended. `own_host` is this broker's address."""
    return Draft(
        topic=TRANS_OP,
        queue_id=OP_QUEUE,
        body=b"%d" % half_offset,
        properties=_PROPERTIES,
        born_timestamp_ms=now_ms,
        born_host=own_host,
        tags_code=_TAGS_CODE,
    )


def ended_offsets(view: RecordView, record: memoryview) -> list[int]:
    """The half messages that an op message ends. Anything that is not an offset is ignored."""
    if view.properties().get(Property.TAGS) != _ENDED:
        return []
    words = view.body(record).split(b",")
    return [int(word) for word in words if word.isdigit() and len(word) <= _DIGITS_MAX]
