"""Messages of an archive, or of a topic's past, sent to a topic: in their order, and if wanted in their time.

Each queue of the source is a lane. A task sends one lane after the other, or with `speed` all of its lanes side by
side, each message when its time has come. What is acknowledged is noted; a run that was killed is run again and goes
on, with some messages twice at most, under the same unique keys.
"""

import hashlib
import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from time import sleep, time
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from ariane.client.producer.queue_selection import publish_queues
from ariane.errors import NoRoute
from ariane.model.message import RESERVED_PROPERTIES, Property
from ariane.model.route import MessageQueue
from ariane.spark.cluster import cluster_for
from ariane.spark.jobs.replay_source import (
    QueueProgress,
    QueueSource,
    ReplayProgress,
    ReplayQueue,
    plan_replay,
    queue_sources,
)
from ariane.spark.jobs.tasks import Progress, cores, run_tasks
from ariane.spark.options.base import read_options
from ariane.spark.options.jobs import ReplayOptions
from ariane.spark.write.rows import OutboundMessage
from ariane.spark.write.sender import TaskSender
from ariane.wire.properties import encode_properties

# --- replay_messages ---
#
# Stored messages as messages to send: what the user gave them stays, what brokers and clients added goes.

_KEPT = frozenset({Property.KEYS, Property.TAGS, Property.SHARDING_KEY, Property.UNIQUE_KEY})
_DROPPED = (RESERVED_PROPERTIES - _KEPT) | {
    # What 5.x and our own broker add besides: a delay that is over must not begin again, a seal would not fit.
    "__CRC32#", "BORN_HOST", "BORN_TIMESTAMP", "DLQ_ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_TOPIC", "FIRST_POP_TIME",
    "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "INNER_NUM", "POP_CK", "TIMER_DEL_UNIQKEY", "TIMER_DEQUEUE_MS",
    "TIMER_ENQUEUE_MS", "TIMER_OUT_MS", "TIMER_ROLL_TIMES", "__STARTDELIVERTIME",
}  # fmt: skip


class Pending(NamedTuple):
    lane: ReplayQueue
    offset: int
    stored_us: int
    message: OutboundMessage


class QueueMessages:
    """Messages with a sharding key go where the key says, as before; the others of a lane go to one queue."""

    def __init__(self, topic: str, to_topic: str, lane: ReplayQueue, queue: MessageQueue) -> None:
        self._topic = topic
        self._to_topic = to_topic
        self._lane = lane
        self._queue = queue

    def of(self, batch: pa.RecordBatch) -> Iterator[Pending]:
        times = batch.column("storeTimestamp").cast(pa.int64()).to_pylist()
        rows = zip(
            batch.column("queueOffset").to_pylist(),
            times,
            batch.column("body").to_pylist(),
            batch.column("properties").to_pylist(),
            strict=True,
        )
        for offset, stored_us, body, properties in rows:
            yield Pending(self._lane, offset, stored_us or 0, self._outgoing(offset, body, dict(properties)))

    def _outgoing(self, offset: int, body: bytes, properties: dict[str, str]) -> OutboundMessage:
        kept = {name: value for name, value in properties.items() if name not in _DROPPED}
        kept.setdefault(Property.UNIQUE_KEY, self._unique_key(offset))
        kept[Property.WAIT] = "true"
        sharding_key = kept.get(Property.SHARDING_KEY)
        fixed = None if sharding_key is not None else self._queue
        return OutboundMessage(
            self._to_topic,
            body,
            encode_properties(kept),
            sharding_key,
            None if fixed is None else fixed.queue_id,
            None if fixed is None else fixed.broker_name,
            travels_alone=False,
        )

    def _unique_key(self, offset: int) -> str:
        """For a message that has none: the same each time, so that what is sent again can be told."""
        place = "\x00".join((self._topic, self._lane.broker or "", str(self._lane.queue_id), str(offset)))
        digest = hashlib.sha256(place.encode()).hexdigest().upper()
        return f"{digest[:20]}00000000{digest[20:24]}"


# ---

_SENT_AT_ONCE = 2000
_ROUND_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Tempo:
    """Message time to wall time. All tasks count from one message, each from when it has its first: a cluster that
    starts slowly must not send a burst to catch up."""

    origin_us: int
    pace: float

    def due_s(self, stored_us: int, began_s: float) -> float:
        return began_s + (stored_us - self.origin_us) / 1e6 / self.pace


@dataclass(frozen=True, slots=True)
class QueueReplayTask:
    source: QueueSource
    queue: MessageQueue
    """Where its messages without a sharding key go."""


def run(spark: SparkSession, options: Mapping[str, str], progress: Progress) -> dict[str, object]:
    """`rows` that this run has sent, `lanes` there are, and `skipped`: rows that earlier runs had sent."""
    wanted = read_options(ReplayOptions, options)
    kept = ReplayProgress(wanted.progress_path)
    replay = kept.begun(wanted)
    if replay is None:
        replay = plan_replay(wanted)
        kept.begin(replay)
    queues = _target_queues(wanted)
    lanes = [
        QueueReplayTask(source, queues[source.lane.number % len(queues)])
        for source in queue_sources(wanted, replay)
        if kept.of(source.lane).next < source.lane.end
    ]
    before = sum(kept.of(lane).sent for lane in replay.lanes)

    def tell() -> None:
        progress({"rows": sum(kept.of(lane).sent for lane in replay.lanes) - before})

    tempo = _tempo(wanted, lanes, kept)
    sent = run_tasks(spark, partial(replay_queues, wanted, tempo), _groups(lanes, cores(spark)), tell)
    done = {"rows": sum(sent), "lanes": len(replay.lanes), "skipped": before}
    progress({"rows": done["rows"]})
    return dict(done)


def _target_queues(options: ReplayOptions) -> list[MessageQueue]:
    queues = publish_queues(
        options.to_topic, cluster_for(options.client_settings()).route(options.to_topic, fresh=True)
    )
    if not queues:
        raise NoRoute(f"topic {options.to_topic} has no queue that takes messages: give it permission 6")
    return queues


def _groups(lanes: Sequence[QueueReplayTask], number: int) -> list[list[QueueReplayTask]]:
    """One task for each core: with a tempo all must run at once, and without it they are as good as more."""
    return [list(lanes[start::number]) for start in range(min(number, len(lanes)))]


def _tempo(options: ReplayOptions, lanes: Sequence[QueueReplayTask], kept: ReplayProgress) -> Tempo | None:
    """The first message that is still to be sent goes now, the others as much later as they were stored later."""
    if options.pace is None:
        return None
    firsts = [_first_us(work, kept) for work in lanes]
    return Tempo(min((first for first in firsts if first is not None), default=0), options.pace)


def _first_us(work: QueueReplayTask, kept: ReplayProgress) -> int | None:
    batches = work.source.batches(kept.of(work.source.lane).next)
    batch = next(iter(batches), None)
    return None if batch is None else int(batch.column("storeTimestamp")[0].value or 0)


# --- in a task -------------------------------------------------------------------------------------------------------


def replay_queues(options: ReplayOptions, tempo: Tempo | None, lanes: list[QueueReplayTask]) -> int:
    """How many messages were sent and acknowledged."""
    writing = options.writing()
    sender = TaskSender(cluster_for(writing.client_settings()), writing, turn=0)
    return _Replayer(sender, ReplayProgress(options.progress_path), tempo).run(lanes)


class _Replayer:
    def __init__(self, sender: TaskSender, kept: ReplayProgress, tempo: Tempo | None) -> None:
        self._sender = sender
        self._kept = kept
        self._tempo = tempo
        self._began_s: float | None = None
        self._reached: dict[ReplayQueue, QueueProgress] = {}
        self._waiting: list[Pending] = []
        self._waiting_bytes = 0

    def run(self, lanes: list[QueueReplayTask]) -> int:
        each = [self._messages(work) for work in lanes]
        for pending in chain(*each) if self._tempo is None else heapq.merge(*each, key=_stored):
            self._wait_for(pending)
            self._waiting.append(pending)
            self._waiting_bytes += pending.message.size
            if len(self._waiting) >= _SENT_AT_ONCE or self._waiting_bytes >= _ROUND_BYTES:
                self._send()
        self._send()
        for work in lanes:
            lane = work.source.lane
            self._note(lane, lane.end)  # the last ones may not have passed a filter
        return self._sender.sent

    def _messages(self, work: QueueReplayTask) -> Iterator[Pending]:
        source = work.source
        self._reached[source.lane] = self._kept.of(source.lane)
        make = QueueMessages(source.options.topic, source.options.to_topic, source.lane, work.queue)
        for batch in source.batches(self._reached[source.lane].next):
            yield from make.of(batch)

    def _wait_for(self, pending: Pending) -> None:
        if self._tempo is None:
            return
        self._began_s = time() if self._began_s is None else self._began_s
        due_s = self._tempo.due_s(pending.stored_us, self._began_s)
        if due_s > time():
            self._send()
            sleep(max(0.0, due_s - time()))

    def _send(self) -> None:
        """Returns when all are acknowledged, and then notes them."""
        if not self._waiting:
            return
        self._sender.send(pending.message for pending in self._waiting)
        counts: dict[ReplayQueue, tuple[int, int]] = {}
        for pending in self._waiting:
            counts[pending.lane] = pending.offset + 1, counts.get(pending.lane, (0, 0))[1] + 1
        for lane, (following, count) in counts.items():
            self._note(lane, following, count)
        self._waiting, self._waiting_bytes = [], 0

    def _note(self, lane: ReplayQueue, following: int, count: int = 0) -> None:
        self._reached[lane] = QueueProgress(following, self._reached[lane].sent + count)
        self._kept.note(lane, self._reached[lane])


def _stored(pending: Pending) -> int:
    return pending.stored_us
