"""A batch: several messages in one body, which become as many records, all or none.

They share the header's topic, queue, flags and times. What concerns a message alone is in its own properties, so these
go into the record as they came; the batch's own properties only say whether to wait (WAIT). As in Apache 4.x they get
no CLUSTER property.
"""

from ariane.broker.delay_rewrite import DEFERRING
from ariane.broker.incoming import keys_of
from ariane.broker.property_text import decoded, encoded, read_property_text
from ariane.errors import MessageRefused, RecordError
from ariane.model.ids import RETRY_PREFIX
from ariane.model.message import Property
from ariane.store.draft import Draft
from ariane.wire.batch import BatchItem, decode_batch
from ariane.wire.java_hash import tags_code
from ariane.wire.requests.send import Send
from ariane.wire.sys_flag import SysFlag

BATCH_COUNT_MAX = 65_536
"""More than 4 MiB hold of the smallest messages with a key."""

_TRANSACTION_BITS = int(SysFlag.TRANSACTION_TYPE)
_SINGLE_ONLY = DEFERRING | {Property.TRANSACTION_PREPARED}
_TAGS = Property.TAGS


def batch_drafts(ask: Send, queue_id: int, sys_flag: int, born_host: bytes) -> list[Draft]:
    """MessageRefused when the body is no batch, or holds what only a single message may be."""
    if ask.topic.startswith(RETRY_PREFIX):
        raise MessageRefused(f"a batch to {ask.topic}: messages are retried one by one")
    if sys_flag & _TRANSACTION_BITS:
        raise MessageRefused(f"a batch with sysFlag {sys_flag:#x}: a transaction is a single message")
    _check_single_only(read_property_text(ask.properties or "")[0])
    try:
        items = decode_batch(ask.body, count_max=BATCH_COUNT_MAX)
    except RecordError as error:
        raise MessageRefused(str(error)) from None
    return [_draft(ask, item, queue_id, sys_flag, born_host) for item in items]


def _draft(ask: Send, item: BatchItem, queue_id: int, sys_flag: int, born_host: bytes) -> Draft:
    if not item.body:
        raise MessageRefused("a message of the batch has an empty body: 4.x consumers fail on it, so send a byte")
    came = decoded(item.properties)
    properties, text = read_property_text(came)
    _check_single_only(properties)
    return Draft(
        topic=ask.topic,
        queue_id=queue_id,
        body=item.body,
        properties=item.properties if text is came else encoded(text),
        born_timestamp_ms=ask.born_timestamp,
        born_host=born_host,
        flag=item.flag,
        sys_flag=sys_flag,
        reconsume_times=ask.reconsume_times or 0,
        tags_code=tags_code(properties.get(_TAGS)),
        keys=keys_of(properties),
    )


def _check_single_only(properties: dict[str, str]) -> None:
    if _SINGLE_ONLY.isdisjoint(properties):
        return
    for name in _SINGLE_ONLY.intersection(properties):
        if name != Property.DELAY or properties[name] != "0":  # level 0 is what Java writes for "no delay"
            raise MessageRefused(f"a batch with property {name}: send delayed and transactional messages one by one")
