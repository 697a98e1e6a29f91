"""Op messages: "the half message at this offset of the half queue is over".

    topic RMQ_SYS_TRANS_OP_HALF_TOPIC, queue 0, TAGS "d"
    body  4711            4.x, and ours: the half message's queue offset in decimal
    body  4711,4712,      5.x gathers several, each followed by a comma

We write one offset a message: both releases read that, and a broker of the older one fails on a comma.
"""

from ariane.broker.system_topics import TRANS_OP
from ariane.model.message import Property
from ariane.store.draft import Draft
from ariane.wire.java_hash import tags_code
from ariane.wire.properties import encode_properties
from ariane.wire.record_view import RecordView

OP_QUEUE = 0
_ENDED = "d"
_PROPERTIES, _TAGS_CODE = encode_properties({Property.TAGS: _ENDED}), tags_code(_ENDED)
_DIGITS_MAX = 18  # what fits 63 bits


def op_message(half_offset: int, now_ms: int, own_host: bytes) -> Draft:
    """Says that the half message at `half_offset` of its queue is over. `own_host` is this broker, who says so."""
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
    """The half messages that an op message ends. What is no offset is passed over: it ends nothing."""
    if view.properties().get(Property.TAGS) != _ENDED:
        return []
    words = view.body(record).split(b",")
    return [int(word) for word in words if word.isdigit() and len(word) <= _DIGITS_MAX]
