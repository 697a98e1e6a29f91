"""The Spark job `replay`: sends the messages of an archive, or the stored messages of a topic, to a topic again.

A task sends the queues that it has one after the other, or with `speed` all at a time, each message when it is due.
Messages of a queue keep their order. Progress is saved after the acknowledgement, so a run that was killed can be
repeated: it continues there, and sends at most a few messages twice, under the same unique keys.
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

# --- stored messages as messages to send ---

_KEPT = frozenset({Property.KEYS, Property.TAGS, Property.SHARDING_KEY, Property.UNIQUE_KEY})
_DROPPED = (RESERVED_PROPERTIES - _KEPT) | {
    # What 5.x and Ariane's broker add besides: a delay that is over must not start again, and the checksum of the old
    # record would be wrong.
    "__CRC32#", "BORN_HOST", "BORN_TIMESTAMP", "DLQ_ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_TOPIC", "FIRST_POP_TIME",
    "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "INNER_NUM", "POP_CK", "TIMER_DEL_UNIQKEY", "TIMER_DEQUEUE_MS",
    "TIMER_ENQUEUE_MS", "TIMER_OUT_MS", "TIMER_ROLL_TIMES", "__STARTDELIVERTIME",
}  # fmt: skip


class Pending(NamedTuple):
    source: ReplayQueue
    offset: int
    stored_us: int
    message: OutboundMessage


class QueueMessages:
    """Makes the messages to send from those stored: what users set stays, what brokers and clients added goes.

    Messages with a sharding key go to the queue of the key, as before; the others of a source queue all go to `target`.
    """

    def __init__(self, topic: str, to_topic: str, source: ReplayQueue, target: MessageQueue) -> None:
        self._topic = topic
        self._to_topic = to_topic
        self._source = source
        self._target = target

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
            yield Pending(self._source, offset, stored_us or 0, self._outbound(offset, body, dict(properties)))

    def _outbound(self, offset: int, body: bytes, properties: dict[str, str]) -> OutboundMessage:
        kept = {name: value for name, value in properties.items() if name not in _DROPPED}
        kept.setdefault(Property.UNIQUE_KEY, self._unique_key(offset))
        kept[Property.WAIT] = "true"
        sharding_key = kept.get(Property.SHARDING_KEY)
        fixed = None if sharding_key is not None else self._target
        return OutboundMessage(
            self._to_topic,
            body,
            encode_properties(kept),
            sharding_key,
            None if fixed is None else fixed.queue_id,
            None if fixed is None else fixed.broker_name,
            is_unbatched=False,
        )

    def _unique_key(self, offset: int) -> str:
        """For a message without one: the same in each run, so that consumers recognise a message that is sent again."""
        position = "\x00".join((self._topic, self._source.broker or "", str(self._source.queue_id), str(offset)))
        digest = hashlib.sha256(position.encode()).hexdigest().upper()
        return f"{digest[:20]}00000000{digest[20:24]}"


# --- on the driver ---

_SEND_COUNT_MAX = 2000
_SEND_BYTES_MAX = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Tempo:
    """Maps message time to wall time. All tasks count from the time of the same message, but each starts its clock at
    its own first message: a cluster that starts slowly must not send a burst to catch up."""

    origin_us: int
    pace: float

    def due_s(self, stored_us: int, began_s: float) -> float:
        return began_s + (stored_us - self.origin_us) / 1e6 / self.pace


@dataclass(frozen=True, slots=True)
class QueueReplayTask:
    source: QueueSource
    target: MessageQueue
    """Where its messages without a sharding key go."""


def run(spark: SparkSession, options: Mapping[str, str], progress: Progress) -> dict[str, object]:
    """Returns the number of `rows` that this run sent, of queues (`lanes`), and of rows `skipped` because earlier runs
    had sent them."""
    config = read_options(ReplayOptions, options)
    saved = ReplayProgress(config.progress_path)
    replay = saved.begun(config)
    if replay is None:
        replay = plan_replay(config)
        saved.begin(replay)
    targets = _target_queues(config)
    tasks = [
        QueueReplayTask(source, targets[source.queue.number % len(targets)])
        for source in queue_sources(config, replay)
        if saved.of(source.queue).next < source.queue.end
    ]
    before = sum(saved.of(queue).sent for queue in replay.queues)

    def report() -> None:
        progress({"rows": sum(saved.of(queue).sent for queue in replay.queues) - before})

    tempo = _tempo(config, tasks, saved)
    sent = run_tasks(spark, partial(replay_queues, config, tempo), _groups(tasks, cores(spark)), report)
    done = {"rows": sum(sent), "lanes": len(replay.queues), "skipped": before}
    progress({"rows": done["rows"]})
    return dict(done)


def _target_queues(options: ReplayOptions) -> list[MessageQueue]:
    queues = publish_queues(
        options.to_topic, cluster_for(options.client_settings()).route(options.to_topic, fresh=True)
    )
    if not queues:
        raise NoRoute(f"topic {options.to_topic} has no queue that takes messages: give it permission 6")
    return queues


def _groups(tasks: Sequence[QueueReplayTask], number: int) -> list[list[QueueReplayTask]]:
    """One Spark task for each core: with a tempo all must run at the same time, and without it more gain nothing."""
    return [list(tasks[start::number]) for start in range(min(number, len(tasks)))]


def _tempo(options: ReplayOptions, tasks: Sequence[QueueReplayTask], saved: ReplayProgress) -> Tempo | None:
    """The first message that is not sent yet is due now, the others as much later as they were stored later."""
    if options.pace is None:
        return None
    firsts = [_first_us(task, saved) for task in tasks]
    return Tempo(min((first for first in firsts if first is not None), default=0), options.pace)


def _first_us(task: QueueReplayTask, saved: ReplayProgress) -> int | None:
    batches = task.source.batches(saved.of(task.source.queue).next)
    batch = next(iter(batches), None)
    return None if batch is None else int(batch.column("storeTimestamp")[0].value or 0)


# --- in a task -------------------------------------------------------------------------------------------------------


def replay_queues(options: ReplayOptions, tempo: Tempo | None, tasks: list[QueueReplayTask]) -> int:
    """Returns how many messages were sent and acknowledged."""
    writing = options.writing()
    sender = TaskSender(cluster_for(writing.client_settings()), writing, turn=0)
    return _Replayer(sender, ReplayProgress(options.progress_path), tempo).run(tasks)


class _Replayer:
    def __init__(self, sender: TaskSender, saved: ReplayProgress, tempo: Tempo | None) -> None:
        self._sender = sender
        self._saved = saved
        self._tempo = tempo
        self._began_s: float | None = None
        self._progress: dict[ReplayQueue, QueueProgress] = {}
        self._waiting: list[Pending] = []
        self._waiting_bytes = 0

    def run(self, tasks: list[QueueReplayTask]) -> int:
        each = [self._messages(task) for task in tasks]
        for pending in chain(*each) if self._tempo is None else heapq.merge(*each, key=_stored):
            self._wait_for(pending)
            self._waiting.append(pending)
            self._waiting_bytes += pending.message.size
            if len(self._waiting) >= _SEND_COUNT_MAX or self._waiting_bytes >= _SEND_BYTES_MAX:
                self._send()
        self._send()
        for task in tasks:
            queue = task.source.queue
            self._save(queue, queue.end)  # the last messages may not have passed a filter
        return self._sender.sent

    def _messages(self, task: QueueReplayTask) -> Iterator[Pending]:
        source = task.source
        self._progress[source.queue] = self._saved.of(source.queue)
        make = QueueMessages(source.options.topic, source.options.to_topic, source.queue, task.target)
        for batch in source.batches(self._progress[source.queue].next):
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
        """Sends the waiting messages and, when all are acknowledged, saves the progress."""
        if not self._waiting:
            return
        self._sender.send(pending.message for pending in self._waiting)
        counts: dict[ReplayQueue, tuple[int, int]] = {}
        for pending in self._waiting:
            counts[pending.source] = pending.offset + 1, counts.get(pending.source, (0, 0))[1] + 1
        for queue, (next_offset, count) in counts.items():
            self._save(queue, next_offset, count)
        self._waiting, self._waiting_bytes = [], 0

    def _save(self, queue: ReplayQueue, next_offset: int, count: int = 0) -> None:
        self._progress[queue] = QueueProgress(next_offset, self._progress[queue].sent + count)
        self._saved.save(queue, self._progress[queue])


def _stored(pending: Pending) -> int:
    return pending.stored_us
