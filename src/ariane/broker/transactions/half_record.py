"""A half message where it lies in the log: what its outcome needs of it, and its body only when that is a commit."""

from collections.abc import Mapping

import msgspec

from ariane.broker.incoming import SEAL
from ariane.errors import RecordError
from ariane.model.message import Property
from ariane.wire.properties import encode_properties
from ariane.wire.record_view import RecordView, verify

_REAL_TOPIC, _REAL_QUEUE_ID = Property.REAL_TOPIC, Property.REAL_QUEUE_ID
_FIRST = Property.TRANSACTION_PREPARED_QUEUE_OFFSET
_PRODUCER_GROUP = Property.PRODUCER_GROUP

HALF_QUEUE = 0
"""Of RMQ_SYS_TRANS_HALF_TOPIC, which has no other."""

_QUEUE_ID_MAX = 2**31 - 1
_NUMBER_DIGITS_MAX = 18  # what fits 63 bits


class HalfRecord(msgspec.Struct, frozen=True, gc=False):
    view: RecordView
    properties: dict[str, str]
    real_topic: str
    real_queue_id: int
    first_offset: int
    """Queue offset of the message that the producer sent. All copies of it are one transaction."""
    record: memoryview

    @classmethod
    def of(cls, record: memoryview) -> "HalfRecord":
        """RecordError when it does not say where the message belongs: bytes of a disk are not trusted."""
        view = verify(record, check_body_crc=False)
        if not isinstance(view, RecordView):
            raise RecordError(f"no half message: {getattr(view, 'reason', 'a blank record')}")
        properties, at = view.properties(), view.physical_offset
        first = first_offset(properties, view.queue_offset, at)
        return cls(view, properties, real_topic(properties, at), real_queue_id(properties, at), first, record)

    @property
    def producer_group(self) -> str:
        return self.properties.get(_PRODUCER_GROUP, "")

    @property
    def body(self) -> bytes:
        return self.view.body(self.record)

    @property
    def property_text(self) -> bytes:
        """As it stands there, but without the seal, which is that of this record."""
        if SEAL not in self.properties:
            return self.view.property_text
        return encode_properties({name: value for name, value in self.properties.items() if name != SEAL})


# --- what the properties of a half message say; `at` is its place in the log, for the error ---------------------------


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
