"""Records that hold a whole batch: 5.x keeps one so for topics with batch queues, and its consumers take it apart.

one record, sysFlag with INNER_BATCH and NEEDS_UNWRAP      a record for each item
queueOffset 40, body = item item item                  ->  queueOffset 40, 41, 42, each with its own body,
                                                           flag and properties; the other fields are shared
"""

import numpy as np

from ariane.arrow.rows import Rows
from ariane.wire.batch import decode_batch
from ariane.wire.compression import decompress
from ariane.wire.record import pack_record
from ariane.wire.record_view import RecordView, verify
from ariane.wire.sys_flag import SysFlag, with_compression

_WRAPPED = int(SysFlag.INNER_BATCH | SysFlag.NEEDS_UNWRAP)


def first_wrapped(rows: Rows) -> int:
    """The number of the first row that holds a batch; how many rows there are when none does."""
    if rows.flags & _WRAPPED != _WRAPPED:
        return len(rows)
    return int(np.argmax(np.append(rows.sys_flag & _WRAPPED == _WRAPPED, True)))


def unwrap(rows: Rows, number: int, body_bytes_max: int) -> bytes:
    """The records of the messages in one row; RecordError when its body cannot be read."""
    view = verify(rows.source.view, int(rows.position[number]), check_body_crc=False)
    assert isinstance(view, RecordView), "rows are checked"
    body = decompress(view.body(rows.source.view), view.sys_flag, body_bytes_max)
    items = decode_batch(body, count_max=max(1, len(body) // 22))
    sys_flag = with_compression(view.sys_flag & ~_WRAPPED, None)
    return b"".join(
        pack_record(
            topic=view.topic.encode(),
            body=item.body,
            properties=item.properties,
            queue_id=view.queue_id,
            flag=item.flag,
            queue_offset=view.queue_offset + place,
            physical_offset=view.physical_offset,
            sys_flag=sys_flag,
            born_timestamp_ms=view.born_timestamp_ms,
            born_host=view.born_host,
            store_timestamp_ms=view.store_timestamp_ms,
            store_host=view.store_host,
            reconsume_times=view.reconsume_times,
            prepared_transaction_offset=view.prepared_transaction_offset,
        )
        for place, item in enumerate(items)
    )
