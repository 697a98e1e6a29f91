"""The straight line for batches: from the bytes of a chunk to one append for all batches of a topic that are in it.

    chunk ─► frames ─► run of one topic and shape ─► contents, read at once ─► one append ─► one write of answers

A batch by itself spends most of its time on what is done once for it: 100 us and more, and 3 us for each message. So
batches that came together are taken together, and if all their items have one shape, numpy reads, checks and packs them
as one table (docs/decisions/send-path.md has the figures of each step).

As in the line for single sends (send_lane.py), whatever is not usual ends it: the general way takes that batch, tells
what is wrong with it, and the connection comes back here.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ariane.broker.batch_answers import AskedBatch, BatchAnswers
from ariane.broker.batch_contents import Contents, ContentsReader
from ariane.broker.batch_properties import check_no_single
from ariane.broker.flow_control import FlowControl
from ariane.broker.intake import Intake, means_durable
from ariane.broker.property_text import read_property_text
from ariane.broker.send_answers import is_plain
from ariane.broker.send_checks import SendChecks, are_taken, born_host
from ariane.broker.send_lane import MULTI_TAGS, TRANSACTION_BITS
from ariane.errors import MessageRefused
from ariane.model.ids import RETRY_PREFIX
from ariane.model.message import Property
from ariane.model.topic import TopicFilterType
from ariane.store.draft_batch import AppendedBatch
from ariane.store.draft_batches import BatchPlan, DraftBatches
from ariane.store.item_table import ItemShape, shape_of
from ariane.transport.connection import Connection
from ariane.wire.frame import FrameLimits
from ariane.wire.send_frames import SendFields, begins_with_batch, send_frames

_TOGETHER_MAX = 1024
_ALONE_MAX = 64
"""Messages of one shape, from which on a batch alone is worth a table: 250 us whatever its size, then 1.4 each."""


class _Place(NamedTuple):
    """What a batch to one topic needs to know."""

    queues: int
    sys_flag: int


class _Run(msgspec.Struct, gc=False):
    """Batches of one topic whose first items have one shape, as they stand in the chunk."""

    topic: str
    shape: ItemShape | None
    sys_flag: int
    end: int = 0
    fields: list[SendFields] = []
    bodies: list[bytes] = []
    asked: list[AskedBatch] = []


class BatchLane:
    def __init__(
        self, checks: SendChecks, flow: FlowControl, intake: Intake, answers: BatchAnswers, limits: FrameLimits
    ) -> None:
        self._checks = checks
        self._flow = flow
        self._intake = intake
        self._answers = answers
        self._limits = limits
        self._places: dict[str, _Place] = {}
        self._contents = ContentsReader()
        self._last_wishes: tuple[str | None, tuple[str | None, bool]] = None, (None, True)
        self._together = _TOGETHER_MAX
        checks.on_change(self._places.clear)

    def take(self, connection: Connection, data: bytes, position: int) -> int:
        """Stores the batches in `data` from `position` on; where the first frame begins that it leaves to others."""
        while begins_with_batch(data, position) and are_taken(self._flow, self._checks):
            run = self._gather(data, position)
            if run is not None and _is_alone(run):
                self._together = min(2 * self._together, _TOGETHER_MAX)
                break
            contents = self._contents.read(run.bodies, run.shape) if run is not None else None
            if run is None or contents is None:
                self._together = 1  # so that odd batches do not spoil the run of the others again and again
                break
            self._together = min(2 * self._together, _TOGETHER_MAX)
            outcomes = self._append(_drafts(run, contents, born_host(connection.peer)))
            self._answers.tell(connection, run.asked, outcomes)
            position = run.end
        return position

    def _append(self, drafts: DraftBatches) -> Sequence[AppendedBatch | Exception]:
        """What became of each batch, or the mistake of ours that kept it from having an outcome."""
        try:
            return self._intake.take_batches(drafts)
        except Exception as error:  # those who wait are told, as by the dispatcher
            return [error] * len(drafts.plans)

    # --- from frames to a run ---------------------------------------------------------------------------------------

    def _gather(self, data: bytes, position: int) -> _Run | None:
        """The usual batches that come next, as far as they can go together; None when the first is not usual."""
        run: _Run | None = None
        for end, opaque, fields, body_at in send_frames(data, position, self._limits, batches=True):
            topic = fields.topic
            place = self._places.get(topic) or self._place(topic)
            wishes = self._wishes(fields.properties)
            if place is None or wishes is None or not _is_usual(fields, place):
                break
            body = data[body_at:end]
            shape = shape_of(body)
            if run is None:
                run = _Run(topic, shape, place.sys_flag)
            elif topic != run.topic or shape != run.shape or len(run.asked) >= self._together:
                break
            run.fields.append(fields)
            run.bodies.append(body)
            run.asked.append(AskedBatch(opaque, fields.queue_id, *wishes))
            run.end = end
        return run

    def _place(self, topic: str) -> _Place | None:
        """None for a topic that has not passed its checks yet, and for retries, which come one by one."""
        config = self._checks.passed(topic)
        if config is None or topic.startswith(RETRY_PREFIX):
            return None
        sys_flag = 0 if config.topic_filter_type is TopicFilterType.SINGLE_TAG else MULTI_TAGS
        place = self._places[topic] = _Place(max(config.write_queue_nums, config.read_queue_nums), sys_flag)
        return place

    def _wishes(self, text: str | None) -> tuple[str | None, bool] | None:
        """Unique key and WAIT of a batch, not of its messages; mostly the same as of the last one.

        None when they cannot be read, or ask for what a batch cannot have.
        """
        known, wishes = self._last_wishes
        if text == known:
            return wishes
        try:
            properties, _ = read_property_text(text or "")
            check_no_single(properties)
        except MessageRefused:
            return None
        unique_key = properties.get(Property.UNIQUE_KEY)
        if not is_plain(unique_key):
            return None
        wishes = unique_key, means_durable(properties.get(Property.WAIT))
        self._last_wishes = text, wishes
        return wishes


def _is_usual(fields: SendFields, place: _Place) -> bool:
    return fields.batch is True and 0 <= fields.queue_id < place.queues and not fields.sys_flag & TRANSACTION_BITS


def _is_alone(run: _Run) -> bool:
    """Whether it is a small batch that has nobody to share with: the general way is as cheap then, or cheaper."""
    return len(run.bodies) == 1 and (run.shape is None or len(run.bodies[0]) < _ALONE_MAX * run.shape.size)


def _drafts(run: _Run, contents: Contents, host: bytes) -> DraftBatches:
    plans = [
        BatchPlan(
            messages,
            fields.queue_id,
            fields.sys_flag | run.sys_flag,
            fields.born_timestamp,
            fields.reconsume_times or 0,
        )
        for messages, fields in zip(contents.counts, run.fields, strict=True)
    ]
    return DraftBatches(
        topic=run.topic,
        born_host=host,
        plans=plans,
        items=contents.items,
        properties_end=contents.properties_end,
        tags_codes=contents.tags_codes,
        keys=contents.keys,
    )
