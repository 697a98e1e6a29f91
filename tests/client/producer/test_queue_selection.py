"""Queue selection: order of queues, round robin, sharding keys."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ariane.client.producer.queue_selection import (
    QueueSelection,
    RoundRobin,
    by_sharding_key,
    publish_queues,
    template_route,
)
from ariane.model.route import BrokerData, MessageQueue, QueueData, TopicRoute


def queue(broker: str, queue_id: int) -> MessageQueue:
    return MessageQueue(topic="T", broker_name=broker, queue_id=queue_id)


def route(*, a: int = 2, b: int = 1, perm_b: int = 6, masters: str = "ab", order: str | None = None) -> TopicRoute:
    return TopicRoute(
        queue_datas=[
            QueueData(broker_name="b", read_queue_nums=9, write_queue_nums=b, perm=perm_b),
            QueueData(broker_name="a", read_queue_nums=9, write_queue_nums=a, perm=6),
        ],
        broker_datas=[
            BrokerData(cluster="c", broker_name=name, broker_addrs={0 if name in masters else 1: f"{name}:1"})
            for name in "ab"
        ],
        order_topic_conf=order,
    )


QUEUES = [queue("a", 0), queue("a", 1), queue("b", 0)]


def test_queues_are_in_the_order_of_java_producers() -> None:
    assert publish_queues("T", route()) == QUEUES


def test_brokers_without_write_permission_or_master_are_left_out() -> None:
    assert publish_queues("T", route(perm_b=4)) == QUEUES[:2]
    assert publish_queues("T", route(masters="b")) == QUEUES[2:]


def test_an_ordered_topic_has_exactly_the_queues_of_its_order() -> None:
    assert publish_queues("T", route(order="b:2;a:1", masters="b")) == [queue("b", 0), queue("b", 1), queue("a", 0)]
    assert publish_queues("T", route(order="b:x;a;:1")) == [queue("", 0)]


def test_a_new_topic_gets_the_requested_queues_up_to_those_of_the_template() -> None:
    assert [data.write_queue_nums for data in template_route(route(), 4).queue_datas] == [4, 4]
    assert [data.write_queue_nums for data in template_route(route(), 20).queue_datas] == [9, 9]


def test_round_robin_takes_each_queue_in_turn() -> None:
    turn = RoundRobin(0)
    assert [turn.pick(QUEUES) for _ in range(4)] == [*QUEUES, QUEUES[0]]


def test_a_retry_goes_to_another_broker() -> None:
    turn = RoundRobin(0)
    assert turn.pick(QUEUES, avoid="a") == queue("b", 0)
    assert turn.pick(QUEUES[:2], avoid="a") is None
    assert turn.pick(QUEUES, usable=lambda broker: broker == "b") == queue("b", 0)


def test_a_retry_goes_to_the_broker_that_failed_if_there_is_no_other() -> None:
    selection = QueueSelection(lambda: 0.0, latency_fault=False)
    assert {selection.choose(QUEUES, last_broker="a") for _ in range(6)} == {queue("b", 0)}
    assert {selection.choose(QUEUES[:2], last_broker="a") for _ in range(4)} == set(QUEUES[:2])


def test_each_topic_has_its_own_round_robin() -> None:
    selection = QueueSelection(lambda: 0.0, latency_fault=False)
    others = [MessageQueue(topic="U", broker_name="a", queue_id=number) for number in range(2)]
    chosen = [selection.choose(queues) for _ in range(3) for queues in (QUEUES, others)]
    assert set(chosen[::2]) == set(QUEUES)
    assert chosen[1] == chosen[5] != chosen[3]


@given(st.integers(1, 20), st.integers(0, 2**16))
def test_round_robin_is_fair(count: int, start: int) -> None:
    queues = [queue("a", number) for number in range(count)]
    turn = RoundRobin(start)
    assert set(Counter(turn.pick(queues) for _ in range(3 * count)).values()) == {3}


@given(st.text(), st.integers(1, 20))
def test_a_sharding_key_always_has_the_same_queue(key: str, count: int) -> None:
    queues = [queue("a", number) for number in range(count)]
    assert by_sharding_key(queues, key) == by_sharding_key(queues, key)


def test_sharding_keys_map_to_the_same_queues_as_in_java() -> None:
    queues = [queue("a", number) for number in range(7)]
    # The hash of "polygenelubricants" is Integer.MIN_VALUE, whose absolute value has no int in Java.
    assert by_sharding_key(queues, "a").queue_id == 97 % 7
    assert by_sharding_key(queues, "polygenelubricants").queue_id == 2**31 % 7
