"""Half messages as drafts, made from the property text as it came: nothing is taken apart and written anew.

    producer's text                      TAGS=a KEYS=k TRAN_MSG=true PGROUP=payers
    half(), waits in the half queue      the same + what the broker adds to each message + REAL_TOPIC=orders REAL_QID=3
    real(), once it is committed         the very same bytes

The transaction bits are cleared because a record with the "prepared" bit gets no entry in its queue, and the queue is
how the broker finds what still waits.
"""

from ariane.broker.delay_rewrite import DEFERRING
from ariane.broker.incoming import SEAL, Incoming, keys_of
from ariane.broker.system_topics import TRANS_HALF
from ariane.broker.transactions.half_record import HALF_QUEUE, HalfRecord
from ariane.model.message import Property
from ariane.store.draft import Draft
from ariane.wire.java_hash import tags_code
from ariane.wire.sys_flag import SysFlag

_TRANSACTION_BITS = int(SysFlag.TRANSACTION_TYPE)
_COMMIT_BITS = int(SysFlag.TRANSACTION_COMMIT)
_TAGS = Property.TAGS

_REAL = f"{Property.REAL_TOPIC}\x01%b\x02{Property.REAL_QUEUE_ID}\x01%d\x02".encode()

_NOT_FROM_PRODUCERS = DEFERRING | {
    # Only the broker's word counts here: with these a producer could pass its message off as a copy of another's.
    Property.TRANSACTION_PREPARED_QUEUE_OFFSET,
    Property.TRANSACTION_CHECK_TIMES,
    # What the broker adds, and must not be there twice.
    Property.REAL_TOPIC,
    Property.REAL_QUEUE_ID,
    Property.CLUSTER,
    Property.MSG_REGION,
}
"""And no delay, which Java's producer takes away from its half messages, too: the commit is what they wait for."""


def producers_text(properties: dict[str, str], text: str) -> str:
    """A half message's property text without what its producer may not say: nearly always as it came."""
    if _NOT_FROM_PRODUCERS.isdisjoint(properties):
        return text
    allowed = [(name, value) for name, value in properties.items() if name not in _NOT_FROM_PRODUCERS]
    return "".join([f"{name}\x01{value}\x02" for name, value in allowed])


def half(draft: Draft) -> Draft:
    """The draft of what a producer wants to send, turned into one that waits for its outcome."""
    draft.properties += _REAL % (draft.topic.encode(), draft.queue_id)
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


def real_to_defer(waiting: HalfRecord) -> Incoming:
    """The same as a message, for one of the few that asks for a delay, which begins with its commit."""
    draft = real(waiting)
    return Incoming(
        topic=draft.topic,
        queue_id=draft.queue_id,
        body=draft.body,
        properties={name: value for name, value in waiting.properties.items() if name != SEAL},
        born_timestamp_ms=draft.born_timestamp_ms,
        born_host=draft.born_host,
        flag=draft.flag,
        sys_flag=draft.sys_flag,
        reconsume_times=draft.reconsume_times,
        prepared_transaction_offset=draft.prepared_transaction_offset,
    )
