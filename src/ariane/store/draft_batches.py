"""Several batches of one topic on their way into the log together: no object for a message, and in a table none for its
keys."""

from itertools import accumulate, pairwise
from typing import NamedTuple

import msgspec

from ariane.store.draft_batch import BatchKeys, DraftBatch
from ariane.store.item_table import Bytes2D, ItemTable
from ariane.store.key_hash import Int64s
from ariane.wire.batch import BatchColumns

_FEW = 256


class BatchPlan(NamedTuple):
    """One client's batch: how many of the messages are its own, and what they share."""

    messages: int
    queue_id: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: bytes
    """Of one length in all batches: records with an address of IPv6 are longer."""
    reconsume_times: int


class DraftBatches(msgspec.Struct, kw_only=True, gc=False):
    topic: str
    plans: list[BatchPlan]
    """At least one, in the order of their messages."""
    items: ItemTable | BatchColumns
    """The messages of all batches: a table when all have the same lengths."""
    properties_end: bytes = b""
    """What each property text still needs behind it: the last separator, if the client left it out."""
    tags_codes: int | Int64s
    """Of all messages, or one by one."""
    keys: list[Bytes2D] | BatchKeys
    """For the index. Of a table: a column of unique keys, then one of the users' keys, either may be missing; ASCII."""

    @property
    def are_few(self) -> bool:
        """Whether what numpy costs has too few messages to share it. Already two batches save more than that."""
        return len(self.plans) == 1 and len(self) < _FEW and not isinstance(self.items, ItemTable)

    def each(self) -> list[DraftBatch]:
        """Batch by batch, for who has to look at each."""
        columns, codes = self._columns(), self._tags_codes()
        if len(self.plans) == 1 and isinstance(self.keys, BatchKeys):
            return [self._batch(self.plans[0], columns, codes, self.keys)]
        keys, batches = self._keys(), list[DraftBatch]()
        ends = accumulate((plan.messages for plan in self.plans), initial=0)
        for plan, (first, end) in zip(self.plans, pairwise(ends), strict=True):
            mine = slice(first, end)
            own = BatchColumns(columns.bodies[mine], columns.properties[mine], columns.flags[mine])
            own_keys = BatchKeys([key for one in keys[mine] for key in one], [len(one) for one in keys[mine]])
            batches.append(self._batch(plan, own, codes[mine], own_keys))
        return batches

    def _batch(self, plan: BatchPlan, columns: BatchColumns, codes: list[int], keys: BatchKeys) -> DraftBatch:
        return DraftBatch(
            topic=self.topic,
            queue_id=plan.queue_id,
            bodies=columns.bodies,
            properties=columns.properties,
            properties_end=self.properties_end,
            flags=columns.flags,
            tags_codes=codes,
            keys=keys,
            born_timestamp_ms=plan.born_timestamp_ms,
            born_host=plan.born_host,
            sys_flag=plan.sys_flag,
            reconsume_times=plan.reconsume_times,
        )

    def __len__(self) -> int:
        """How many messages."""
        return len(self.items.rows) if isinstance(self.items, ItemTable) else len(self.items.bodies)

    def _columns(self) -> BatchColumns:
        if isinstance(self.items, ItemTable):
            rows = self.items.rows
            return BatchColumns(rows["body"].tolist(), rows["text"].tolist(), rows["flag"].tolist())
        return self.items

    def _tags_codes(self) -> list[int]:
        codes = self.tags_codes
        return [codes] * len(self) if isinstance(codes, int) else codes.tolist()

    def _keys(self) -> list[tuple[str, ...]]:
        if isinstance(self.keys, BatchKeys):
            return list(self.keys.of_messages(len(self)))
        columns = [[row.tobytes().decode() for row in column] for column in self.keys]
        return list(zip(*columns, strict=True)) if columns else [()] * len(self)
