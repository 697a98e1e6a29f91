"""The push consumer with a real broker: Ariane's, and Apache's if ARIANE_INTEROP=1."""

import asyncio
import threading
from typing import Any

import pytest

from ariane.client.consumer.invocation import Retry
from ariane.client.consumer.message import Received
from ariane.client.consumer.push import PushConsumer
from ariane.errors import ClientError, RequestFailed
from ariane.model.ids import DEAD_LETTER_PREFIX
from tests.client.cluster_fixture import LiveCluster, MessageCollector, fresh, until


def consumer_of(live_cluster: LiveCluster, **options: Any) -> PushConsumer:
    options = {"group": fresh("group"), "start": "earliest", **options}
    return PushConsumer(live_cluster.nameserver, **options)


async def test_every_message_reaches_the_handler_and_the_offsets_are_committed_at_the_end(
    live_cluster: LiveCluster,
) -> None:
    topic, collector = await live_cluster.topic(), MessageCollector()
    await live_cluster.send(topic, *(b"%d" % number for number in range(20)))
    consumer = consumer_of(live_cluster)

    @consumer.on(topic)
    async def handle(message: Received) -> None:
        collector.put(message)

    async with consumer:
        await collector.until_count(20)
    assert sorted(collector.bodies) == sorted(b"%d" % number for number in range(20))
    assert await live_cluster.committed(consumer.group, topic) == [5, 5, 5, 5]
    assert consumer.counts[topic].consumed == 20


async def test_messages_that_come_later_arrive_without_waiting_for_the_next_poll(live_cluster: LiveCluster) -> None:
    topic, collector = await live_cluster.topic(queues=1), MessageCollector()
    consumer = consumer_of(live_cluster, handler=collector.put)
    consumer.subscribe(topic)
    await live_cluster.send(topic, b"first")
    async with consumer:
        await collector.until_count(1)
        await live_cluster.send(topic, b"second")
        await collector.until_count(2)
    assert collector.bodies == [b"first", b"second"]


async def test_a_plain_function_runs_in_a_thread(live_cluster: LiveCluster) -> None:
    topic, collector, loop = await live_cluster.topic(), MessageCollector(), asyncio.get_running_loop()
    threads = set()

    def handle(message: Received) -> None:
        threads.add(threading.current_thread())
        collector.put_from_thread(loop, message)

    consumer = consumer_of(live_cluster, handler=handle)
    consumer.subscribe(topic)
    await live_cluster.send(topic, b"a", b"b")
    async with consumer:
        await collector.until_count(2)
    assert threading.main_thread() not in threads


async def test_only_subscribed_tags_are_delivered(live_cluster: LiveCluster) -> None:
    topic, collector = await live_cluster.topic(queues=1), MessageCollector()
    await live_cluster.send(topic, b"paid", TAGS="paid")
    await live_cluster.send(topic, b"open", TAGS="open")
    await live_cluster.send(topic, b"back", TAGS="refunded")
    await live_cluster.send(topic, b"untagged")
    consumer = consumer_of(live_cluster, handler=collector.put)
    consumer.subscribe(topic, "paid || refunded")
    async with consumer:
        await collector.until_count(2)
    assert collector.bodies == [b"paid", b"back"]
    assert await live_cluster.committed(consumer.group, topic) == [4]


async def test_a_tag_with_the_same_hash_is_filtered_by_the_client(live_cluster: LiveCluster) -> None:
    topic, collector = await live_cluster.topic(queues=1), MessageCollector()
    await live_cluster.send(topic, b"twin", TAGS="BB")  # "Aa" and "BB" have one hash in Java
    await live_cluster.send(topic, b"meant", TAGS="Aa")
    consumer = consumer_of(live_cluster, handler=collector.put)
    consumer.subscribe(topic, "Aa")
    async with consumer:
        await collector.until_count(1)
    assert collector.bodies == [b"meant"]


async def test_sql_filters_by_properties(live_cluster: LiveCluster) -> None:
    topic, collector = await live_cluster.topic(queues=1), MessageCollector()
    await live_cluster.send(topic, b"cheap", price="5")
    await live_cluster.send(topic, b"dear", price="500")
    consumer = consumer_of(live_cluster, handler=collector.put)
    consumer.subscribe(topic, sql="price > 100")
    async with consumer:
        await collector.until_count(1)
    assert collector.bodies == [b"dear"]


async def test_an_invalid_sql_expression_fails_the_start_with_the_brokers_error(live_cluster: LiveCluster) -> None:
    topic = await live_cluster.topic()
    consumer = consumer_of(live_cluster, handler=print)
    consumer.subscribe(topic, sql="price >")
    with pytest.raises(RequestFailed):
        await consumer.start()
    await consumer.close()


async def test_a_failed_message_is_redelivered_under_its_own_topic_and_on_error_is_called(
    live_cluster: LiveCluster,
) -> None:
    topic, collector = await live_cluster.topic(), MessageCollector()
    errors: list[tuple[str, str]] = []

    async def handle(message: Received) -> None:
        collector.put(message)
        if message.attempt == 1:
            raise ValueError("not now")

    consumer = consumer_of(
        live_cluster, handler=handle, on_error=lambda message, error: errors.append((message.message_id, str(error)))
    )
    consumer.subscribe(topic)
    await live_cluster.send(topic, b"tricky", UNIQ_KEY="7F0000010001A426A6474DA91BEE0003")
    async with consumer:
        await collector.until_count(2)
    first, second = collector.messages
    assert (second.attempt, second.topic, second.body) == (2, topic, b"tricky")
    assert second.queue.topic == f"%RETRY%{consumer.group}"
    assert first.message_id == second.message_id == errors[0][0]
    assert errors == [(first.message_id, "not now")]
    assert consumer.counts[topic].failed == 1


async def test_after_the_last_attempt_a_message_is_a_dead_letter(live_cluster: LiveCluster) -> None:
    topic, collector, letters = await live_cluster.topic(), MessageCollector(), MessageCollector()

    async def refuse(message: Received) -> bool:
        collector.put(message)
        return False

    consumer = consumer_of(live_cluster, handler=refuse, max_reconsume=1)
    consumer.subscribe(topic)
    await live_cluster.send(topic, b"hopeless")
    reader = consumer_of(live_cluster, handler=letters.put)
    reader.subscribe(f"{DEAD_LETTER_PREFIX}{consumer.group}")
    async with consumer:
        await collector.until_count(2)
        async with reader:
            await letters.until_count(1)
    assert letters.bodies == [b"hopeless"]
    assert len(collector.messages) == 2


async def test_a_handler_may_request_a_dead_letter_immediately(live_cluster: LiveCluster) -> None:
    topic, collector, letters = await live_cluster.topic(), MessageCollector(), MessageCollector()

    async def refuse(message: Received) -> Retry:
        collector.put(message)
        return Retry(delay_level=-1)

    consumer = consumer_of(live_cluster, handler=refuse)
    consumer.subscribe(topic)
    await live_cluster.send(topic, b"hopeless")
    reader = consumer_of(live_cluster, handler=letters.put)
    reader.subscribe(f"{DEAD_LETTER_PREFIX}{consumer.group}")
    async with consumer, reader:
        await letters.until_count(1)
    assert len(collector.messages) == 1


async def test_a_batch_handler_gets_lists_and_may_consume_a_part(live_cluster: LiveCluster) -> None:
    topic, collector = await live_cluster.topic(queues=1), MessageCollector()
    batches: list[int] = []

    async def handle(messages: list[Received]) -> Retry | None:
        batches.append(len(messages))
        for message in messages:
            collector.put(message)
        return Retry(done=3) if messages[0].attempt == 1 else None

    consumer = consumer_of(live_cluster, handler=handle, batch=4)
    consumer.subscribe(topic)
    await live_cluster.send(topic, b"a", b"b", b"c", b"d")
    async with consumer:
        await collector.until_count(5)
    assert batches == [4, 1]
    assert (collector.messages[-1].body, collector.messages[-1].attempt) == (b"d", 2)


async def test_two_members_share_the_queues_and_the_remaining_one_gets_all(live_cluster: LiveCluster) -> None:
    topic, group = await live_cluster.topic(), fresh("group")
    first_collector, second_collector = MessageCollector(), MessageCollector()
    first = consumer_of(live_cluster, group=group, handler=first_collector.put)
    second = consumer_of(live_cluster, group=group, handler=second_collector.put)
    for consumer in (first, second):
        consumer.subscribe(topic)
    async with first:
        await until(lambda: _mine(first, topic) == 4)
        async with second:
            await until(lambda: _mine(first, topic) == _mine(second, topic) == 2)
            await live_cluster.send(topic, *(b"%d" % number for number in range(8)))
            await first_collector.until_count(4)
            await second_collector.until_count(4)
        await until(lambda: _mine(first, topic) == 4)
        await live_cluster.send(topic, *(b"%d" % number for number in range(8, 12)))
        await first_collector.until_count(8)
    assert sorted(first_collector.bodies + second_collector.bodies) == sorted(b"%d" % number for number in range(12))


async def test_close_waits_for_a_running_handler(live_cluster: LiveCluster) -> None:
    topic, collector = await live_cluster.topic(queues=1), MessageCollector()
    may_finish = asyncio.Event()

    async def handle(message: Received) -> None:
        collector.put(message)
        await may_finish.wait()

    consumer = consumer_of(live_cluster, handler=handle)
    consumer.subscribe(topic)
    await live_cluster.send(topic, b"slow")
    await consumer.start()
    await collector.until_count(1)
    closing = asyncio.ensure_future(consumer.close())
    await asyncio.sleep(0)
    may_finish.set()
    await closing
    assert await live_cluster.committed(consumer.group, topic) == [1]


async def test_close_abandons_a_handler_that_never_ends_and_commits_nothing_of_it(live_cluster: LiveCluster) -> None:
    topic, collector = await live_cluster.topic(queues=1), MessageCollector()

    async def handle(message: Received) -> None:
        collector.put(message)
        if message.body == b"stuck":
            await asyncio.Event().wait()

    consumer = consumer_of(live_cluster, handler=handle, close_timeout_s=0.2)
    consumer.subscribe(topic)
    await live_cluster.send(topic, b"quick", b"stuck", b"behind")
    async with consumer:
        await collector.until_count(3)
    assert await live_cluster.committed(consumer.group, topic) == [1]


async def test_a_handler_that_takes_too_long_counts_as_failed(live_cluster: LiveCluster) -> None:
    topic, collector = await live_cluster.topic(queues=1), MessageCollector()
    errors: list[BaseException] = []

    async def handle(message: Received) -> None:
        collector.put(message)
        if message.attempt == 1:
            await asyncio.Event().wait()

    consumer = consumer_of(
        live_cluster, handler=handle, consume_timeout_s=0.2, on_error=lambda _message, error: errors.append(error)
    )
    consumer.subscribe(topic)
    await live_cluster.send(topic, b"slow")
    async with consumer:
        await collector.until_count(2)
    assert isinstance(errors[0], TimeoutError)


async def test_a_topic_may_be_subscribed_to_while_the_consumer_runs(live_cluster: LiveCluster) -> None:
    topic, later, collector = await live_cluster.topic(), await live_cluster.topic(), MessageCollector()
    consumer = consumer_of(live_cluster, handler=collector.put)
    consumer.subscribe(topic)
    await live_cluster.send(later, b"from the later topic")
    async with consumer:
        consumer.subscribe(later)
        await collector.until_count(1)
        consumer.unsubscribe(topic)
        await until(lambda: _mine(consumer, topic) == 0)
    assert collector.bodies == [b"from the later topic"]


async def test_a_topic_that_does_not_exist_yet_is_waited_for(live_cluster: LiveCluster) -> None:
    collector = MessageCollector()
    existing = await live_cluster.topic()
    consumer = consumer_of(live_cluster, handler=collector.put)
    consumer.subscribe(existing)
    consumer.subscribe(fresh("missing"))
    await live_cluster.send(existing, b"here")
    async with consumer:
        await collector.until_count(1)


async def test_a_consumer_needs_a_subscription_and_a_handler(live_cluster: LiveCluster) -> None:
    with pytest.raises(ClientError, match="no subscription"):
        await consumer_of(live_cluster, handler=print).start()
    idle = consumer_of(live_cluster)
    idle.subscribe("orders")
    with pytest.raises(ClientError, match="no handler for orders"):
        await idle.start()
    with pytest.raises(ClientError, match="group name"):
        PushConsumer(live_cluster.nameserver, group="bad group")


def _mine(consumer: PushConsumer, topic: str) -> int:
    return len([queue for queue in consumer.queues if queue.topic == topic])
