"""A batch: several messages in one body, which become as many records, all or none.

They share the header's topic, queue, flags and times. What concerns a message alone is in its own properties, so these
go into the record as they came; the batch's own properties only say whether to wait (WAIT). As in Apache 4.x they get
no CLUSTER property.
"""

from ariane.broker.batch_properties import BatchProperties, check_no_single
from ariane.broker.property_text import read_property_text
from ariane.errors import MessageRefused, RecordError
from ariane.model.ids import RETRY_PREFIX
from ariane.store.draft_batch import DraftBatch
from ariane.wire.batch import BatchColumns, split_batch
from ariane.wire.requests.send import Send
from ariane.wire.sys_flag import SysFlag

BATCH_COUNT_MAX = 65_536
"""More than 4 MiB hold of the smallest messages with a key."""

_TRANSACTION_BITS = int(SysFlag.TRANSACTION_TYPE)


def draft_batch(ask: Send, queue_id: int, sys_flag: int, born_host: bytes) -> DraftBatch:
    """MessageRefused when the body is no batch, or holds what only a single message may be."""
    if ask.topic.startswith(RETRY_PREFIX):
        raise MessageRefused(f"a batch to {ask.topic}: messages are retried one by one")
    if sys_flag & _TRANSACTION_BITS:
        raise MessageRefused(f"a batch with sysFlag {sys_flag:#x}: a transaction is a single message")
    check_no_single(read_property_text(ask.properties or "")[0])
    bodies, texts, flags = items_of(ask.body)
    properties = BatchProperties(texts)
    return DraftBatch(
        topic=ask.topic,
        queue_id=queue_id,
        bodies=bodies,
        properties=properties.texts,
        properties_end=properties.texts_end,
        flags=flags,
        tags_codes=properties.tags_codes,
        keys=properties.keys,
        born_timestamp_ms=ask.born_timestamp,
        born_host=born_host,
        sys_flag=sys_flag,
        reconsume_times=ask.reconsume_times or 0,
    )


def items_of(body: bytes) -> BatchColumns:
    """MessageRefused when the body is no batch, or when one of its messages has no body."""
    try:
        items = split_batch(body, count_max=BATCH_COUNT_MAX)
    except RecordError as error:
        raise MessageRefused(str(error)) from None
    if not items.bodies or not all(items.bodies):
        raise MessageRefused("a message of the batch has an empty body: 4.x consumers fail on it, so send a byte")
    return items
