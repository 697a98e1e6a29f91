"""Batches of one turn of the event loop, of all connections: stored together, and each told to whoever sent it.

    chunk of connection 1 ─┐                                                                     ┌─► one write to 1
    chunk of connection 2 ─┼─► runs of one topic and shape ──(the turn ends)──► an append each ──┼─► one write to 2
    chunk of connection 3 ─┘                                                                     └─► one write to 3

What numpy costs however long its arrays are is as much as hundreds of messages cost (docs/decisions/send-path.md). So
it is paid once a run, and a run is as long as the turn allows: with many connections that have few batches each, a read
brings too little to share it.

Only here it shows whether a batch can be read. One that cannot is refused as by the general way, and does not take with
it those that share its run: the run is halved until it stands alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ariane.broker.batch_answers import AskedBatch, BatchAnswers
from ariane.broker.batch_contents import Contents, ContentsReader
from ariane.broker.intake import Intake
from ariane.errors import MessageRefused
from ariane.store.draft_batch import AppendedBatch
from ariane.store.draft_batches import BatchPlan, DraftBatches
from ariane.store.item_table import ItemShape
from ariane.transport.connection import Connection
from ariane.wire.send_frames import SendFields

STAGED_BYTES_MAX = 512 * 1024
"""With more of them the turn does not wait for its end: larger runs would not be cheaper."""

Outcomes = Sequence[AppendedBatch | Exception]


class Kind(NamedTuple):
    """What the batches of a run share."""

    topic: str
    shape: ItemShape | None
    """Of the first items, if all may have it."""
    host_bytes: int


class StagedBatch(msgspec.Struct, gc=False):
    connection: Connection
    asked: AskedBatch
    fields: SendFields
    sys_flag: int
    born_host: bytes
    body: memoryview

    def plan(self, messages: int) -> BatchPlan:
        """How many there are shows when the body is read."""
        fields = self.fields
        times = fields.reconsume_times or 0
        return BatchPlan(messages, fields.queue_id, self.sys_flag, fields.born_timestamp, self.born_host, times)


class BatchStage:
    """For the event loop alone."""

    def __init__(self, intake: Intake, answers: BatchAnswers) -> None:
        self._intake = intake
        self._answers = answers
        self._contents = ContentsReader()
        self._runs: list[tuple[Kind, list[StagedBatch]]] = []
        self._bytes = 0

    def add(self, kind: Kind, batch: StagedBatch) -> None:
        if not self._runs:
            self._intake.stage(self.settle)
        if self._runs and self._runs[-1][0] == kind:
            self._runs[-1][1].append(batch)
        else:
            self._runs.append((kind, [batch]))
        self._bytes += len(batch.body)
        if self._bytes >= STAGED_BYTES_MAX:
            self.settle()

    def settle(self) -> None:
        """Stores all that is staged, and answers what need not wait for a sync."""
        if not self._runs:
            return
        runs, self._runs, self._bytes = self._runs, [], 0
        told: dict[Connection, list[tuple[AskedBatch, AppendedBatch | Exception]]] = {}
        for kind, batches in runs:
            for batch, outcome in zip(batches, self._store(kind, batches), strict=True):
                told.setdefault(batch.connection, []).append((batch.asked, outcome))
        for connection, outcomes in told.items():
            self._answers.tell(connection, outcomes)

    def _store(self, kind: Kind, batches: list[StagedBatch]) -> Outcomes:
        """What became of each batch, or the mistake of ours that kept it from having an outcome."""
        try:
            contents = self._contents.read([batch.body for batch in batches], kind.shape)
            return self._intake.take_batches(_drafts(kind, batches, contents))
        except MessageRefused as error:
            half = len(batches) // 2
            return [*self._store(kind, batches[:half]), *self._store(kind, batches[half:])] if half else [error]
        except Exception as error:  # those who wait are told, as by the dispatcher
            return [error] * len(batches)


def _drafts(kind: Kind, batches: list[StagedBatch], contents: Contents) -> DraftBatches:
    return DraftBatches(
        topic=kind.topic,
        plans=list(map(StagedBatch.plan, batches, contents.counts)),
        items=contents.items,
        properties_end=contents.properties_end,
        tags_codes=contents.tags_codes,
        keys=contents.keys,
    )
