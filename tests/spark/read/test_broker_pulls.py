"""Pulls ahead of their answers: whatever a broker gives, every message comes once, in its order."""

from collections.abc import Iterator

import pytest

from ariane.model.route import MessageQueue
from ariane.spark.offsets import QueueRange
from ariane.spark.read.range_pull import PullSettings, RangePull
from ariane.wire.record.read import decode_all
from ariane.wire.requests.brokers import UpdateBrokerSettings
from tests.spark.cluster_fixture import Stage, cluster_in_thread

MESSAGES = 3000
FAR_BEHIND = {"memory_ratio": 0.0}


@pytest.fixture(scope="module")
def one_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with cluster_in_thread(tmp_path_factory.mktemp("pulls")) as stage:
        yield stage


@pytest.fixture
def set_limits(one_broker: Stage) -> Iterator[None]:
    """A broker that gives what it gives by default, again, at the end."""
    yield
    tell(one_broker, count=32, size=262_144)


def tell(stage: Stage, *, count: int, size: int) -> None:
    body = f"maxTransferCountOnMessageInMemory={count}\nmaxTransferBytesOnMessageInMemory={size}\n"
    stage.cluster.calls.call(stage.brokers["broker-a"], UpdateBrokerSettings(body=body))


def filled(stage: Stage, bodies: list[bytes]) -> MessageQueue:
    topic = stage.topic(queues=1)
    stage.send(topic, bodies)
    return MessageQueue(topic=topic, broker_name="broker-a", queue_id=0)


@pytest.fixture(scope="module")
def small(one_broker: Stage) -> MessageQueue:
    return filled(one_broker, [b"%d" % number for number in range(MESSAGES)])


def responses(stage: Stage, queue: MessageQueue, count: int = 256, first: int = 0, end: int = MESSAGES) -> list[int]:
    """How many messages each answer had, all of them checked."""
    pull = RangePull(stage.cluster, QueueRange(queue, first, end), PullSettings(group="g", count=count))
    given = [[message.queue_offset for message in decode_all(body)] for body in pull]
    assert [offset for offsets in given for offset in offsets] == list(range(first, end))
    return list(map(len, given))


@pytest.mark.parametrize(
    ("gives", "asked", "stride"), [(32, 256, 32), (128, 256, 128), (1, 256, 1), (500, 256, 256), (32, 5, 5)]
)
@pytest.mark.usefixtures("set_limits")
def test_pulls_take_as_much_as_the_broker_gives(
    one_broker: Stage, small: MessageQueue, gives: int, asked: int, stride: int
) -> None:
    tell(one_broker, count=gives, size=262_144)
    sizes = responses(one_broker, small, asked)
    assert set(sizes[:-1]) == {stride}
    assert sizes[-1] <= stride


def test_a_broker_that_reads_from_disk_gives_8_and_pulls_follow_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    with cluster_in_thread(tmp_path_factory.mktemp("far"), store=FAR_BEHIND) as stage:
        queue = filled(stage, [b"%d" % number for number in range(300)])
        assert responses(stage, queue, end=300) == [8] * 37 + [4]


@pytest.mark.usefixtures("set_limits")
def test_a_broker_that_changes_its_mind_is_followed_without_loss(one_broker: Stage, small: MessageQueue) -> None:
    pull = RangePull(one_broker.cluster, QueueRange(small, 0, MESSAGES), PullSettings(group="g"))
    seen: list[int] = []
    for number, body in enumerate(pull):
        seen += [message.queue_offset for message in decode_all(body)]
        tell(one_broker, count=1 + number * 13 % 70, size=262_144 if number % 3 else 900)
    assert seen == list(range(MESSAGES))


@pytest.mark.usefixtures("set_limits")
def test_a_broker_that_gives_more_after_a_while_is_asked_for_more(
    one_broker: Stage, small: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ariane.spark.read.range_pull._LEARN_AGAIN", 20)
    tell(one_broker, count=8, size=262_144)
    pull = RangePull(one_broker.cluster, QueueRange(small, 0, MESSAGES), PullSettings(group="g"))
    sizes = []
    for body in pull:
        sizes.append(len(decode_all(body)))
        tell(one_broker, count=64, size=262_144)
    assert sum(sizes) == MESSAGES
    assert sizes[:20] == [8] * 20
    assert max(sizes) == 64


@pytest.mark.parametrize("largest", [2_000, 30_000, 200_000])
def test_large_messages_of_all_sizes_come_once_each(one_broker: Stage, largest: int) -> None:
    queue = filled(one_broker, [bytes(1 + number * 7919 % largest) for number in range(150)])
    responses(one_broker, queue, first=3, end=149)
