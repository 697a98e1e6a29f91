"""How the coalescer stores and answers sends: single messages by one append, batches by one append for each run.

A run is batches of one kind - the same topic, the same sizes - that came one after the other. What numpy costs however
long its arrays are is as much as hundreds of messages cost (docs/decisions/send-path.md). So it is paid once a run, and
a run may be as long as the event-loop iteration: with many connections that have few batches each, a single read brings
too little to share it.

Only when a run is stored does it show whether a batch can be read. One that cannot is refused with the words of the
general path, and does not take with it those that share its run: the run is halved until that batch stands alone.
"""

from collections.abc import Iterable, Sequence
from itertools import compress, repeat
from typing import Any, NamedTuple

import msgspec

from ariane.broker.coalescer import Sink
from ariane.broker.send.batch import Contents, ContentsReader
from ariane.broker.send.drafts import PendingSend
from ariane.broker.send.responses import SendResponses, batch_command, send_command
from ariane.broker.writer import MessageWriter, means_durable
from ariane.errors import MessageRefused
from ariane.rpc.handlers import encode_result
from ariane.store.append.batch import AppendedBatch, DraftBatchGroup
from ariane.store.append.draft import Appended, Draft
from ariane.wire.codes import ResponseCode
from ariane.wire.fast.fields import Opaque
from ariane.wire.frame import Command
from ariane.wire.record.uniform_batch import BatchPlan, UniformSizes
from ariane.wire.requests.send import Send

SEND_BYTES_MAX = 1024 * 1024
BATCH_BYTES_MAX = 512 * 1024


class SendSink(Sink[PendingSend, Appended]):
    bytes_max = SEND_BYTES_MAX
    result_types = frozenset({Appended})

    def __init__(self, writer: MessageWriter, responses: SendResponses) -> None:
        super().__init__(writer)
        self._responses = responses

    def write(self, key: Any, items: list[PendingSend]) -> Sequence[Appended | Exception]:
        drafts = [item[4] for item in items]
        results = self.writer.store.append(drafts)
        self._count(drafts, results)
        for number, when_stored in [(number, item[5]) for number, item in enumerate(items) if item[5]]:
            result = results[number]
            if type(result) is Appended and when_stored is not None:
                when_stored(drafts[number], result)
        return results

    def count_ordered(self, draft: Draft, appended: Appended) -> None:
        """What is to be done with a message that has a sharding key."""
        self.writer.counters.put_ordered(draft.topic, appended.size)

    def _count(self, drafts: list[Draft], results: Sequence[Any]) -> None:
        counters = self.writer.counters
        count = list(map(type, results)).count(Appended)
        if count:
            is_stored = [type(result) is Appended for result in results] if count < len(drafts) else repeat(True)
            topics = [draft.topic for draft in compress(drafts, is_stored)]
            sizes = [appended.size for appended in compress(results, is_stored)]
            counters.put_all(topics, sizes, self.writer.store.append_s)

    def command_of(self, item: PendingSend) -> Command:
        return send_command(item[0])

    def wants_durable(self, item: PendingSend) -> bool:
        return means_durable(item[2])

    def appended(self, result: Appended) -> Sequence[Appended]:
        return (result,)

    def stored(self, stored: Iterable[tuple[PendingSend, Appended]]) -> bytes:
        return self._responses.stored(stored)

    def stored_with(self, code: ResponseCode, item: PendingSend, result: Appended) -> bytes | None:
        return self._responses.encoded(code, item, result)


# --- batches ----------------------------------------------------------------------------------------------------------


class BatchKind(NamedTuple):
    """What the batches of a run share."""

    topic: str
    sizes: UniformSizes | None
    """Of the first items, if all may have them."""
    host_bytes: int


class PendingBatch(msgspec.Struct, gc=False):
    opaque: Opaque
    unique_key: str | None
    """Of the batch, not of its messages; it can stand in JSON as it is."""
    wait: bool
    """Whether the producer waits for durability."""
    fields: Send
    sys_flag: int
    born_host: bytes
    body: memoryview

    def plan(self, messages: int) -> BatchPlan:
        """How many messages there are is known when the body is read."""
        fields = self.fields
        times = fields.reconsume_times or 0
        return BatchPlan(messages, fields.queue_id, self.sys_flag, fields.born_timestamp, self.born_host, times)


class BatchSink(Sink[PendingBatch, AppendedBatch]):
    bytes_max = BATCH_BYTES_MAX
    result_types = frozenset({AppendedBatch})

    def __init__(self, writer: MessageWriter, responses: SendResponses) -> None:
        super().__init__(writer)
        self._responses = responses
        self._contents = ContentsReader()

    def write(self, key: BatchKind, items: list[PendingBatch]) -> Sequence[AppendedBatch | Exception]:
        try:
            contents = self._contents.read([batch.body for batch in items], key.sizes)
            return self.writer.append_batches(_drafts(key, items, contents))
        except MessageRefused as error:
            half = len(items) // 2
            return [*self.write(key, items[:half]), *self.write(key, items[half:])] if half else [error]
        except Exception as error:  # of these batches alone: the other half of the run may be stored
            return [error] * len(items)

    def command_of(self, item: PendingBatch) -> Command:
        return batch_command(item.opaque)

    def wants_durable(self, item: PendingBatch) -> bool:
        return item.wait

    def appended(self, result: AppendedBatch) -> Sequence[Appended]:
        return result

    def stored(self, stored: Iterable[tuple[PendingBatch, AppendedBatch]]) -> bytes:
        respond = self._responses.batch_stored
        return b"".join(
            [respond(batch.opaque, batch.unique_key, batch.fields.queue_id, result) for batch, result in stored]
        )

    def stored_with(self, code: ResponseCode, item: PendingBatch, result: AppendedBatch) -> bytes | None:
        response = self._responses.response(code, result, item.fields.queue_id, item.unique_key)
        return encode_result(self.command_of(item), response)


def _drafts(kind: BatchKind, batches: list[PendingBatch], contents: Contents) -> DraftBatchGroup:
    return DraftBatchGroup(
        topic=kind.topic,
        plans=list(map(PendingBatch.plan, batches, contents.counts)),
        items=contents.items,
        properties_end=contents.properties_end,
        tags_codes=contents.tags_codes,
        keys=contents.keys,
    )
