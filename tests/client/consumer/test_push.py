"""The push consumer against a real broker: ours, and Apache's when ARIANE_INTEROP=1."""

import asyncio
import threading
from typing import Any

import pytest

from ariane.client.consumer.invocation import Retry
from ariane.client.consumer.message import Received
from ariane.client.consumer.push import PushConsumer
from ariane.errors import ClientError, RequestFailed
from ariane.model.ids import DEAD_LETTER_PREFIX
from tests.client.cluster_fixture import Basket, Ground, fresh, until


def consumer_of(ground: Ground, **options: Any) -> PushConsumer:
    options = {"group": fresh("group"), "start": "earliest", **options}
    return PushConsumer(ground.nameserver, **options)


async def test_every_message_reaches_the_handler_and_the_offsets_are_committed_at_the_end(ground: Ground) -> None:
    topic, basket = await ground.topic(), Basket()
    await ground.send(topic, *(b"%d" % number for number in range(20)))
    consumer = consumer_of(ground)

    @consumer.on(topic)
    async def handle(message: Received) -> None:
        basket.put(message)

    async with consumer:
        await basket.until_count(20)
    assert sorted(basket.bodies) == sorted(b"%d" % number for number in range(20))
    assert await ground.committed(consumer.group, topic) == [5, 5, 5, 5]
    assert consumer.counts[topic].consumed == 20


async def test_messages_that_come_later_arrive_without_waiting_for_the_next_poll(ground: Ground) -> None:
    topic, basket = await ground.topic(queues=1), Basket()
    consumer = consumer_of(ground, handler=basket.put)
    consumer.subscribe(topic)
    await ground.send(topic, b"first")
    async with consumer:
        await basket.until_count(1)
        await ground.send(topic, b"second")
        await basket.until_count(2)
    assert basket.bodies == [b"first", b"second"]


async def test_a_plain_function_runs_in_a_thread(ground: Ground) -> None:
    topic, basket, loop = await ground.topic(), Basket(), asyncio.get_running_loop()
    threads = set()

    def handle(message: Received) -> None:
        threads.add(threading.current_thread())
        basket.put_from_thread(loop, message)

    consumer = consumer_of(ground, handler=handle)
    consumer.subscribe(topic)
    await ground.send(topic, b"a", b"b")
    async with consumer:
        await basket.until_count(2)
    assert threading.main_thread() not in threads


async def test_only_the_tags_subscribed_to_arrive(ground: Ground) -> None:
    topic, basket = await ground.topic(queues=1), Basket()
    await ground.send(topic, b"paid", TAGS="paid")
    await ground.send(topic, b"open", TAGS="open")
    await ground.send(topic, b"back", TAGS="refunded")
    await ground.send(topic, b"untagged")
    consumer = consumer_of(ground, handler=basket.put)
    consumer.subscribe(topic, "paid || refunded")
    async with consumer:
        await basket.until_count(2)
    assert basket.bodies == [b"paid", b"back"]
    assert await ground.committed(consumer.group, topic) == [4]


async def test_a_tag_with_the_same_hash_is_left_out_by_the_client(ground: Ground) -> None:
    topic, basket = await ground.topic(queues=1), Basket()
    await ground.send(topic, b"twin", TAGS="BB")  # "Aa" and "BB" have one hash in Java
    await ground.send(topic, b"meant", TAGS="Aa")
    consumer = consumer_of(ground, handler=basket.put)
    consumer.subscribe(topic, "Aa")
    async with consumer:
        await basket.until_count(1)
    assert basket.bodies == [b"meant"]


async def test_sql_chooses_by_properties(ground: Ground) -> None:
    topic, basket = await ground.topic(queues=1), Basket()
    await ground.send(topic, b"cheap", price="5")
    await ground.send(topic, b"dear", price="500")
    consumer = consumer_of(ground, handler=basket.put)
    consumer.subscribe(topic, sql="price > 100")
    async with consumer:
        await basket.until_count(1)
    assert basket.bodies == [b"dear"]


async def test_a_bad_sql_expression_ends_the_start_with_the_brokers_words(ground: Ground) -> None:
    topic = await ground.topic()
    consumer = consumer_of(ground, handler=print)
    consumer.subscribe(topic, sql="price >")
    with pytest.raises(RequestFailed):
        await consumer.start()
    await consumer.close()


async def test_what_fails_comes_again_under_its_own_topic_and_on_error_is_told(ground: Ground) -> None:
    topic, basket = await ground.topic(), Basket()
    errors: list[tuple[str, str]] = []

    async def handle(message: Received) -> None:
        basket.put(message)
        if message.attempt == 1:
            raise ValueError("not now")

    consumer = consumer_of(
        ground, handler=handle, on_error=lambda message, error: errors.append((message.message_id, str(error)))
    )
    consumer.subscribe(topic)
    await ground.send(topic, b"tricky", UNIQ_KEY="7F0000010001A426A6474DA91BEE0003")
    async with consumer:
        await basket.until_count(2)
    first, second = basket.messages
    assert (second.attempt, second.topic, second.body) == (2, topic, b"tricky")
    assert second.queue.topic == f"%RETRY%{consumer.group}"
    assert first.message_id == second.message_id == errors[0][0]
    assert errors == [(first.message_id, "not now")]
    assert consumer.counts[topic].failed == 1


async def test_after_the_last_attempt_a_message_is_a_dead_letter(ground: Ground) -> None:
    topic, basket, letters = await ground.topic(), Basket(), Basket()

    async def refuse(message: Received) -> bool:
        basket.put(message)
        return False

    consumer = consumer_of(ground, handler=refuse, max_reconsume=1)
    consumer.subscribe(topic)
    await ground.send(topic, b"hopeless")
    reader = consumer_of(ground, handler=letters.put)
    reader.subscribe(f"{DEAD_LETTER_PREFIX}{consumer.group}")
    async with consumer:
        await basket.until_count(2)
        async with reader:
            await letters.until_count(1)
    assert letters.bodies == [b"hopeless"]
    assert len(basket.messages) == 2


async def test_a_handler_may_ask_for_a_dead_letter_at_once(ground: Ground) -> None:
    topic, basket, letters = await ground.topic(), Basket(), Basket()

    async def refuse(message: Received) -> Retry:
        basket.put(message)
        return Retry(delay_level=-1)

    consumer = consumer_of(ground, handler=refuse)
    consumer.subscribe(topic)
    await ground.send(topic, b"hopeless")
    reader = consumer_of(ground, handler=letters.put)
    reader.subscribe(f"{DEAD_LETTER_PREFIX}{consumer.group}")
    async with consumer, reader:
        await letters.until_count(1)
    assert len(basket.messages) == 1


async def test_a_batch_handler_gets_lists_and_may_have_consumed_a_part(ground: Ground) -> None:
    topic, basket = await ground.topic(queues=1), Basket()
    batches: list[int] = []

    async def handle(messages: list[Received]) -> Retry | None:
        batches.append(len(messages))
        for message in messages:
            basket.put(message)
        return Retry(done=3) if messages[0].attempt == 1 else None

    consumer = consumer_of(ground, handler=handle, batch=4)
    consumer.subscribe(topic)
    await ground.send(topic, b"a", b"b", b"c", b"d")
    async with consumer:
        await basket.until_count(5)
    assert batches == [4, 1]
    assert (basket.messages[-1].body, basket.messages[-1].attempt) == (b"d", 2)


async def test_two_members_share_the_queues_and_the_one_left_takes_them_all(ground: Ground) -> None:
    topic, group = await ground.topic(), fresh("group")
    one, other = Basket(), Basket()
    first = consumer_of(ground, group=group, handler=one.put)
    second = consumer_of(ground, group=group, handler=other.put)
    for consumer in (first, second):
        consumer.subscribe(topic)
    async with first:
        await until(lambda: _mine(first, topic) == 4)
        async with second:
            await until(lambda: _mine(first, topic) == _mine(second, topic) == 2)
            await ground.send(topic, *(b"%d" % number for number in range(8)))
            await one.until_count(4)
            await other.until_count(4)
        await until(lambda: _mine(first, topic) == 4)
        await ground.send(topic, *(b"%d" % number for number in range(8, 12)))
        await one.until_count(8)
    assert sorted(one.bodies + other.bodies) == sorted(b"%d" % number for number in range(12))


async def test_close_waits_for_the_handler_at_work(ground: Ground) -> None:
    topic, basket = await ground.topic(queues=1), Basket()
    may_finish = asyncio.Event()

    async def handle(message: Received) -> None:
        basket.put(message)
        await may_finish.wait()

    consumer = consumer_of(ground, handler=handle)
    consumer.subscribe(topic)
    await ground.send(topic, b"slow")
    await consumer.start()
    await basket.until_count(1)
    closing = asyncio.ensure_future(consumer.close())
    await asyncio.sleep(0)
    may_finish.set()
    await closing
    assert await ground.committed(consumer.group, topic) == [1]


async def test_close_gives_up_on_a_handler_that_never_ends_and_commits_nothing_of_it(ground: Ground) -> None:
    topic, basket = await ground.topic(queues=1), Basket()

    async def handle(message: Received) -> None:
        basket.put(message)
        if message.body == b"stuck":
            await asyncio.Event().wait()

    consumer = consumer_of(ground, handler=handle, close_timeout_s=0.2)
    consumer.subscribe(topic)
    await ground.send(topic, b"quick", b"stuck", b"behind")
    async with consumer:
        await basket.until_count(3)
    assert await ground.committed(consumer.group, topic) == [1]


async def test_a_handler_that_takes_too_long_counts_as_failed(ground: Ground) -> None:
    topic, basket = await ground.topic(queues=1), Basket()
    errors: list[BaseException] = []

    async def handle(message: Received) -> None:
        basket.put(message)
        if message.attempt == 1:
            await asyncio.Event().wait()

    consumer = consumer_of(
        ground, handler=handle, consume_timeout_s=0.2, on_error=lambda _message, error: errors.append(error)
    )
    consumer.subscribe(topic)
    await ground.send(topic, b"slow")
    async with consumer:
        await basket.until_count(2)
    assert isinstance(errors[0], TimeoutError)


async def test_a_topic_may_be_subscribed_to_while_the_consumer_runs(ground: Ground) -> None:
    topic, later, basket = await ground.topic(), await ground.topic(), Basket()
    consumer = consumer_of(ground, handler=basket.put)
    consumer.subscribe(topic)
    await ground.send(later, b"from the later topic")
    async with consumer:
        consumer.subscribe(later)
        await basket.until_count(1)
        consumer.unsubscribe(topic)
        await until(lambda: _mine(consumer, topic) == 0)
    assert basket.bodies == [b"from the later topic"]


async def test_a_topic_that_does_not_exist_yet_is_waited_for(ground: Ground) -> None:
    basket = Basket()
    existing = await ground.topic()
    consumer = consumer_of(ground, handler=basket.put)
    consumer.subscribe(existing)
    consumer.subscribe(fresh("missing"))
    await ground.send(existing, b"here")
    async with consumer:
        await basket.until_count(1)


async def test_a_consumer_needs_a_subscription_and_a_handler(ground: Ground) -> None:
    with pytest.raises(ClientError, match="no subscription"):
        await consumer_of(ground, handler=print).start()
    idle = consumer_of(ground)
    idle.subscribe("orders")
    with pytest.raises(ClientError, match="no handler for orders"):
        await idle.start()
    with pytest.raises(ClientError, match="group name"):
        PushConsumer(ground.nameserver, group="bad group")


def _mine(consumer: PushConsumer, topic: str) -> int:
    return len([queue for queue in consumer.queues if queue.topic == topic])
