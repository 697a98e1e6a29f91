"""The straight line for batches: from the bytes of a chunk to batches that are staged for one append.

    chunk ─► send_frames ─► checks of the topic ─► shape of the first item ─► staged with the others of its kind

A batch by itself spends most of its time on what is done once for it. So batches that came together are stored together
(staged_batches.py), and if all their items have one shape, numpy reads, checks and packs them as one table
(docs/decisions/send-path.md has the figures of each step).

As in the line for single sends (send_lane.py), whatever is not usual ends it: the general way takes that batch, tells
what is wrong with it, and the connection comes back here.
"""

from typing import NamedTuple

from ariane.broker.send.batch import check_no_single
from ariane.broker.send.checks import SendChecks, accepts_sends, born_host, read_property_text
from ariane.broker.send.coalescer import BatchCoalescer, BatchKind, BatchRequest, PendingBatch
from ariane.broker.send.fast_path import MULTI_TAGS, TRANSACTION_BITS
from ariane.broker.send.flow_control import FlowControl
from ariane.broker.send.responses import is_plain
from ariane.broker.writer import means_durable
from ariane.errors import MessageRefused
from ariane.model.ids import RETRY_PREFIX
from ariane.model.message import Property
from ariane.model.topic import TopicFilterType
from ariane.store.append.batch import uniform_sizes_of
from ariane.transport.connection import Connection
from ariane.wire.fast_frames import SendFields, begins_with_batch, send_frames
from ariane.wire.frame import FrameLimits


class _Place(NamedTuple):
    """What a batch to one topic needs to know."""

    queues: int
    sys_flag: int


class BatchFastPath:
    def __init__(self, checks: SendChecks, flow: FlowControl, stage: BatchCoalescer, limits: FrameLimits) -> None:
        self._checks = checks
        self._flow = flow
        self._stage = stage
        self._limits = limits
        self._places: dict[str, _Place] = {}
        self._last_wishes: tuple[str | None, tuple[str | None, bool]] = None, (None, True)
        checks.on_change(self._places.clear)

    def take(self, connection: Connection, data: bytes, position: int) -> int:
        """Stages the batches in `data` from `position` on; where the first frame begins that it leaves to others."""
        if not begins_with_batch(data, position) or not accepts_sends(self._flow, self._checks):
            return position
        host = born_host(connection.peer)
        view = memoryview(data)
        for end, opaque, fields, body_at in send_frames(data, position, self._limits, batches=True):
            topic = fields.topic
            place = self._places.get(topic) or self._place(topic)
            wishes = self._wishes(fields.properties)
            if place is None or wishes is None or body_at == end or not _is_usual(fields, place):
                break
            body = view[body_at:end]
            asked = BatchRequest(opaque, fields.queue_id, *wishes)
            batch = PendingBatch(connection, asked, fields, fields.sys_flag | place.sys_flag, host, body)
            self._stage.add(BatchKind(topic, uniform_sizes_of(body), len(host)), batch)
            position = end
        return position

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
