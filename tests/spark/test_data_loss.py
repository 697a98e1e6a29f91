"""Messages that retention removed, or a disk damaged, before they were read."""

import os
from pathlib import Path
from threading import Event
from time import sleep

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ariane.errors import StoreError
from ariane.model.route import MessageQueue
from ariane.spark.offsets import QueueRange
from ariane.spark.read.range_pull import PullSettings, RangePull
from ariane.wire.record.read import decode_all
from ariane.wire.requests.brokers import DeleteExpiredCommitLog
from tests.spark.cluster_fixture import ClusterFixture, cluster_in_thread
from tests.spark.read.test_stream import PATIENCE_S, Rows, available, running, until

_MESSAGES = 500
_SMALL = {"segment_bytes": 1024 * 1024}


def filled(root: Path) -> str:
    """A topic with more messages than a file of the log holds."""
    with cluster_in_thread(root, store=_SMALL) as cluster:
        topic = cluster.topic(queues=1, name="loss")
        cluster.send(topic, [b"%d" % number + b" " * 4000 for number in range(_MESSAGES)])
    return topic


def lose_the_oldest(root: Path) -> None:
    """What retention does, at once."""
    min((root / "broker-a" / "store" / "commitlog").iterdir()).unlink()


def numbers(bodies: list[bytes]) -> list[int]:
    return sorted(int(body) for body in bodies)


def checked(cluster: ClusterFixture, offsets: QueueRange, *, fail: bool) -> list[int]:
    pull = RangePull(cluster.client, offsets, PullSettings(group="g", fail_on_data_loss=fail))
    return [message.queue_offset for body in pull for message in decode_all(body)]


def test_gone_messages_stop_a_pull_or_are_left_out_by_option(tmp_path: Path) -> None:
    topic = filled(tmp_path)
    lose_the_oldest(tmp_path)
    queue = MessageQueue(topic=topic, broker_name="broker-a", queue_id=0)
    with cluster_in_thread(tmp_path, store=_SMALL) as cluster:
        first = cluster.client.ends(topic, "broker-a")[queue].first
        assert 10 < first < _MESSAGES
        whole = QueueRange(queue, 0, _MESSAGES)
        with pytest.raises(StoreError, match=rf"messages 0 to {first - 1} are gone, {first} in number"):
            checked(cluster, whole, fail=True)
        assert checked(cluster, whole, fail=False) == list(range(first, _MESSAGES))
        beyond = QueueRange(queue, _MESSAGES - 1, _MESSAGES + 5)
        with pytest.raises(StoreError, match=rf"messages {_MESSAGES} to {_MESSAGES + 4} are gone"):
            checked(cluster, beyond, fail=True)
        assert checked(cluster, beyond, fail=False) == [_MESSAGES - 1]


class FirstOnly(Rows):
    """A sink that takes one micro-batch and then breaks."""

    def take(self, frame: DataFrame, number: int) -> None:
        if number > 0:
            raise RuntimeError("the sink broke")
        super().take(frame, number)


def test_a_stream_whose_next_messages_are_gone_stops_or_continues_by_option(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic = filled(tmp_path)
    rows = FirstOnly()
    with cluster_in_thread(tmp_path, store=_SMALL) as cluster:
        frame = cluster.stream(spark, topic, startingOffsets="earliest", maxOffsetsPerTrigger=10).load()
        with pytest.raises(PySparkException, match="the sink broke"):
            available(frame, tmp_path / "checkpoint", rows)
    lose_the_oldest(tmp_path)
    later = Rows()
    with cluster_in_thread(tmp_path, store=_SMALL) as cluster:
        queue = MessageQueue(topic=topic, broker_name="broker-a", queue_id=0)
        first = cluster.client.ends(topic, "broker-a")[queue].first
        with pytest.raises(PySparkException, match="messages 10 to 19 are gone"):
            available(cluster.stream(spark, topic, startingOffsets="earliest").load(), tmp_path / "checkpoint", later)
        tolerant = cluster.stream(spark, topic, startingOffsets="earliest", failOnDataLoss="false").load()
        available(tolerant, tmp_path / "checkpoint", later)
    assert numbers(rows.bodies) == list(range(10))
    assert numbers(later.bodies) == list(range(first, _MESSAGES))


class Held(Rows):
    """A sink that keeps its first micro-batch until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.has_first, self.goes_on = Event(), Event()

    def take(self, frame: DataFrame, number: int) -> None:
        super().take(frame, number)
        self.has_first.set()
        assert self.goes_on.wait(PATIENCE_S)


def delete_by_retention(cluster: ClusterFixture, queue: MessageQueue) -> int:
    """The broker removes its first file, which has become old. Where the queue begins then."""
    os.utime(min((cluster.stores[queue.broker_name] / "commitlog").iterdir()), (0, 0))
    while (first := cluster.client.ends(queue.topic, queue.broker_name)[queue].first) == 0:
        cluster.client.calls.call(cluster.brokers[queue.broker_name], DeleteExpiredCommitLog())
        sleep(0.05)  # files go when the broker has noted that their messages are indexed, once a second
    return first


@pytest.mark.long
@pytest.mark.parametrize("fails", [True, False])
def test_retention_under_a_running_stream_stops_it_or_is_left_out(
    spark: SparkSession, tmp_path: Path, fails: bool
) -> None:
    rows, options = Held(), {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 100, "failOnDataLoss": fails}
    with cluster_in_thread(tmp_path, store=_SMALL) as cluster:
        topic = cluster.topic(queues=1, name="loss")
        cluster.send(topic, [b"%d" % number + b" " * 4000 for number in range(_MESSAGES)])
        queue = MessageQueue(topic=topic, broker_name="broker-a", queue_id=0)
        with running(cluster.stream(spark, topic, **options).load(), tmp_path / "checkpoint", rows) as query:
            assert rows.has_first.wait(PATIENCE_S)
            first = delete_by_retention(cluster, queue)
            rows.goes_on.set()
            if fails:
                gone = rf"messages 100 to 199 are gone, 100 in number \(the queue now has {first} to {_MESSAGES}\)"
                with pytest.raises(PySparkException, match=rf"(?s){gone}.*set it to false to continue without"):
                    query.awaitTermination(PATIENCE_S)
            else:
                until(lambda: numbers(rows.bodies)[-1] == _MESSAGES - 1, query)
    left = [] if fails else list(range(max(first, 100), _MESSAGES))
    assert 100 < first < _MESSAGES
    assert numbers(rows.bodies) == list(range(100)) + left
