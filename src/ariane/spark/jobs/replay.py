"""Messages of an archive, or of a topic's past, sent to a topic: in their order, and if wanted in their time.

Each queue of the source is a lane. A task sends one lane after the other, or with `speed` all of its lanes side by
side, each message when its time has come. What is acknowledged is noted; a run that was killed is run again and goes
on, with some messages twice at most, under the same unique keys.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from time import sleep, time

from pyspark.sql import SparkSession

from ariane.client.selection import publish_queues
from ariane.errors import NoRoute
from ariane.model.route import MessageQueue
from ariane.spark.cluster import cluster_for
from ariane.spark.jobs.replay_messages import LaneMessages, Pending
from ariane.spark.jobs.replay_options import ReplayOptions
from ariane.spark.jobs.replay_progress import Lane, LaneProgress, ReplayProgress
from ariane.spark.jobs.replay_source import LaneSource, lane_sources, plan_replay
from ariane.spark.jobs.tasks import Progress, cores, run_tasks
from ariane.spark.option_values import read_options
from ariane.spark.sending import TaskSender

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
class LaneWork:
    source: LaneSource
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
        LaneWork(source, queues[source.lane.number % len(queues)])
        for source in lane_sources(wanted, replay)
        if kept.of(source.lane).next < source.lane.end
    ]
    before = sum(kept.of(lane).sent for lane in replay.lanes)

    def tell() -> None:
        progress({"rows": sum(kept.of(lane).sent for lane in replay.lanes) - before})

    tempo = _tempo(wanted, lanes, kept)
    sent = run_tasks(spark, partial(replay_lanes, wanted, tempo), _groups(lanes, cores(spark)), tell)
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


def _groups(lanes: Sequence[LaneWork], number: int) -> list[list[LaneWork]]:
    """One task for each core: with a tempo all must run at once, and without it they are as good as more."""
    return [list(lanes[start::number]) for start in range(min(number, len(lanes)))]


def _tempo(options: ReplayOptions, lanes: Sequence[LaneWork], kept: ReplayProgress) -> Tempo | None:
    """The first message that is still to be sent goes now, the others as much later as they were stored later."""
    if options.pace is None:
        return None
    firsts = [_first_us(work, kept) for work in lanes]
    return Tempo(min((first for first in firsts if first is not None), default=0), options.pace)


def _first_us(work: LaneWork, kept: ReplayProgress) -> int | None:
    batches = work.source.batches(kept.of(work.source.lane).next)
    batch = next(iter(batches), None)
    return None if batch is None else int(batch.column("storeTimestamp")[0].value or 0)


# --- in a task -------------------------------------------------------------------------------------------------------


def replay_lanes(options: ReplayOptions, tempo: Tempo | None, lanes: list[LaneWork]) -> int:
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
        self._reached: dict[Lane, LaneProgress] = {}
        self._waiting: list[Pending] = []
        self._waiting_bytes = 0

    def run(self, lanes: list[LaneWork]) -> int:
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

    def _messages(self, work: LaneWork) -> Iterator[Pending]:
        source = work.source
        self._reached[source.lane] = self._kept.of(source.lane)
        make = LaneMessages(source.options.topic, source.options.to_topic, source.lane, work.queue)
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
        counts: dict[Lane, tuple[int, int]] = {}
        for pending in self._waiting:
            counts[pending.lane] = pending.offset + 1, counts.get(pending.lane, (0, 0))[1] + 1
        for lane, (following, count) in counts.items():
            self._note(lane, following, count)
        self._waiting, self._waiting_bytes = [], 0

    def _note(self, lane: Lane, following: int, count: int = 0) -> None:
        self._reached[lane] = LaneProgress(following, self._reached[lane].sent + count)
        self._kept.note(lane, self._reached[lane])


def _stored(pending: Pending) -> int:
    return pending.stored_us
