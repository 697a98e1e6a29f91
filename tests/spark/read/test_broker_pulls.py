"""Pipelined pulls: however many messages a broker returns, every message comes once and in order."""

from collections.abc import Iterator

import pytest

from ariane.model.route import MessageQueue
from ariane.spark.offsets import QueueRange
from ariane.spark.read.range_pull import PullSettings, RangePull
from ariane.wire.record.read import decode_all
from ariane.wire.requests.brokers import UpdateBrokerSettings
from tests.spark.cluster_fixture import ClusterFixture, cluster_in_thread

MESSAGES = 3000
COLD = {"memory_ratio": 0.0}


@pytest.fixture(scope="module")
def one_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterFixture]:
    with cluster_in_thread(tmp_path_factory.mktemp("pulls")) as cluster:
        yield cluster


@pytest.fixture
def default_limits(one_broker: ClusterFixture) -> Iterator[None]:
    """Restores the default limits of the broker at the end."""
    yield
    set_broker_limits(one_broker, count=32, size=262_144)


def set_broker_limits(cluster: ClusterFixture, *, count: int, size: int) -> None:
    body = f"maxTransferCountOnMessageInMemory={count}\nmaxTransferBytesOnMessageInMemory={size}\n"
    cluster.client.calls.call(cluster.brokers["broker-a"], UpdateBrokerSettings(body=body))


def filled(cluster: ClusterFixture, bodies: list[bytes]) -> MessageQueue:
    topic = cluster.topic(queues=1)
    cluster.send(topic, bodies)
    return MessageQueue(topic=topic, broker_name="broker-a", queue_id=0)


@pytest.fixture(scope="module")
def small(one_broker: ClusterFixture) -> MessageQueue:
    return filled(one_broker, [b"%d" % number for number in range(MESSAGES)])


def response_sizes(
    cluster: ClusterFixture, queue: MessageQueue, count: int = 256, first: int = 0, end: int = MESSAGES
) -> list[int]:
    """How many messages each response had, after a check of their offsets."""
    pull = RangePull(cluster.client, QueueRange(queue, first, end), PullSettings(group="g", count=count))
    received = [[message.queue_offset for message in decode_all(body)] for body in pull]
    assert [offset for offsets in received for offset in offsets] == list(range(first, end))
    return list(map(len, received))


@pytest.mark.parametrize(
    ("limit", "requested", "stride"), [(32, 256, 32), (128, 256, 128), (1, 256, 1), (500, 256, 256), (32, 5, 5)]
)
@pytest.mark.usefixtures("default_limits")
def test_pulls_request_as_much_as_the_broker_returns(
    one_broker: ClusterFixture, small: MessageQueue, limit: int, requested: int, stride: int
) -> None:
    set_broker_limits(one_broker, count=limit, size=262_144)
    sizes = response_sizes(one_broker, small, requested)
    assert set(sizes[:-1]) == {stride}
    assert sizes[-1] <= stride


def test_a_broker_that_reads_from_disk_returns_8_and_pulls_adapt(tmp_path_factory: pytest.TempPathFactory) -> None:
    with cluster_in_thread(tmp_path_factory.mktemp("far"), store=COLD) as cluster:
        queue = filled(cluster, [b"%d" % number for number in range(300)])
        assert response_sizes(cluster, queue, end=300) == [8] * 37 + [4]


@pytest.mark.usefixtures("default_limits")
def test_pulls_adapt_to_changing_limits_without_loss(one_broker: ClusterFixture, small: MessageQueue) -> None:
    pull = RangePull(one_broker.client, QueueRange(small, 0, MESSAGES), PullSettings(group="g"))
    seen: list[int] = []
    for number, body in enumerate(pull):
        seen += [message.queue_offset for message in decode_all(body)]
        set_broker_limits(one_broker, count=1 + number * 13 % 70, size=262_144 if number % 3 else 900)
    assert seen == list(range(MESSAGES))


@pytest.mark.usefixtures("default_limits")
def test_pulls_request_more_when_the_broker_returns_more(
    one_broker: ClusterFixture, small: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ariane.spark.read.range_pull._LEARN_AGAIN", 20)
    set_broker_limits(one_broker, count=8, size=262_144)
    pull = RangePull(one_broker.client, QueueRange(small, 0, MESSAGES), PullSettings(group="g"))
    sizes = []
    for body in pull:
        sizes.append(len(decode_all(body)))
        set_broker_limits(one_broker, count=64, size=262_144)
    assert sum(sizes) == MESSAGES
    assert sizes[:20] == [8] * 20
    assert max(sizes) == 64


@pytest.mark.parametrize("largest", [2_000, 30_000, 200_000])
def test_large_messages_of_all_sizes_come_once_each(one_broker: ClusterFixture, largest: int) -> None:
    queue = filled(one_broker, [bytes(1 + number * 7919 % largest) for number in range(150)])
    response_sizes(one_broker, queue, first=3, end=149)
