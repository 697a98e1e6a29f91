"""What consumers get wrong: subscriptions and offsets, through the public client and real servers."""

import asyncio
import logging

import pytest

from ariane.client.consumer.lite_pull import LitePullConsumer
from ariane.client.consumer.pull import PullConsumer
from ariane.client.consumer.pull_request import PullStatus
from ariane.client.consumer.push import PushConsumer
from ariane.client.producer.producer import Producer
from ariane.errors import ClientError, RequestFailed
from ariane.wire.codes import ResponseCode
from tests.client.cluster_fixture import Ground, fresh
from tests.cluster.error_fixtures import bodies_of, refused

# --- subscriptions ----------------------------------------------------------------------------------------------------


async def test_bad_sql_ends_the_start_of_a_consumer_with_the_position_of_the_fault(ground: Ground) -> None:
    topic = await ground.topic()
    await ground.send(topic, b"kept")
    consumer = PushConsumer(ground.nameserver, group=fresh("group"), handler=print)
    consumer.subscribe(topic, sql="price >> 10")
    words = ("SUBSCRIPTION_PARSE_FAILED", "expected, found '>' at position 8")
    error = await refused(consumer.start(), RequestFailed, *words, retriable=False, exit_status=4)
    assert error.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert await bodies_of(ground.nameserver, topic, 1) == [b"kept"]


async def test_bad_sql_in_a_pull_is_refused_and_leaves_the_offset_where_it_was(ground: Ground) -> None:
    topic = await ground.topic(queues=1)
    await ground.send(topic, b"kept")
    (queue,) = await ground.queues(topic)
    async with PullConsumer(ground.nameserver, group=fresh("group")) as consumer:
        pull = consumer.pull(queue, 0, sql="price = ")
        words = ("cannot be read", "at position")
        await refused(pull, RequestFailed, *words, retriable=False, exit_status=4)
        assert len((await consumer.pull(queue, 0)).messages) == 1


async def test_tags_and_sql_together_or_no_tag_at_all_are_refused_at_once(ground: Ground) -> None:
    consumer = PushConsumer(ground.nameserver, group=fresh("group"), handler=print)
    for expression, sql, words in (("a", "b = 1", "exclude each other"), ("||", None, "names no tag")):
        with pytest.raises(ClientError, match=words) as caught:
            consumer.subscribe("orders", expression, sql=sql)
        assert (caught.value.retriable, caught.value.exit_status) == (False, 1)


async def test_members_that_subscribe_differently_are_named_in_the_log_and_every_message_stays(
    ground: Ground, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await ground.topic(queues=2)
    group = fresh("torn")
    with caplog.at_level(logging.WARNING, "ariane.broker"):
        async with _member(ground, group, topic, "paid") as one, _member(ground, group, topic, "refunded") as other:
            ids = {one.client_id, other.client_id}
            for number in range(8):
                await producer.send(topic, b"%d" % number, tags="paid" if number % 2 else "refunded")
    (record,) = [record for record in caplog.records if "subscri" in record.message and "group" in record.__dict__]
    told = record.__dict__
    assert told["group"] == group
    assert topic in str(told["topics"])
    assert {told["client"], told["other"]} == ids
    assert len(await bodies_of(ground.nameserver, topic, 8)) == 8


def _member(ground: Ground, group: str, topic: str, tag: str) -> PushConsumer:
    consumer = PushConsumer(ground.nameserver, group=group, start="earliest", handler=lambda message: None)
    consumer.subscribe(topic, tag)
    return consumer


# --- offsets ----------------------------------------------------------------------------------------------------------


async def test_a_pull_outside_the_queue_is_told_where_to_go_on(ground: Ground) -> None:
    topic = await ground.topic(queues=1)
    await ground.send(topic, b"a", b"b")
    (queue,) = await ground.queues(topic)
    async with PullConsumer(ground.nameserver, group=fresh("group")) as consumer:
        for offset, nearest in ((999, 2), (-5, 0)):
            result = await consumer.pull(queue, offset)
            assert (result.status, result.messages) == (PullStatus.OFFSET_ILLEGAL, ())
            assert (result.next_offset, result.min_offset, result.max_offset) == (nearest, 0, 2)
        assert [message.body for message in (await consumer.pull(queue, 0)).messages] == [b"a", b"b"]


async def test_an_offset_beyond_the_end_is_not_stored_and_the_log_says_why(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await ground.topic(queues=1)
    await ground.send(topic, b"a", b"b")
    (queue,) = await ground.queues(topic)
    async with PullConsumer(ground.nameserver, group=fresh("group")) as consumer:
        consumer.update_offset(queue, 1)
        await consumer.commit()
        consumer.update_offset(queue, 999)
        with caplog.at_level(logging.WARNING, "ariane.client"):
            await consumer.commit()
        assert await consumer.fetch_offset(queue, from_broker=True) == 1
    reasons = [record.__dict__["reason"] for record in caplog.records if record.message == "offset not saved"]
    assert "offset 999 is not in queue 0" in reasons[0]
    assert "the stored offset is unchanged" in reasons[0]


async def test_a_seek_outside_the_queue_is_refused_or_put_right_and_the_next_message_comes(
    ground: Ground, producer: Producer
) -> None:
    topic = await ground.topic(queues=1)
    await ground.send(topic, b"a")
    (queue,) = await ground.queues(topic)
    async with LitePullConsumer(ground.nameserver, group=fresh("group")) as consumer:
        consumer.assign([queue])
        assert [message.body for message in await consumer.poll()] == [b"a"]
        with pytest.raises(ClientError, match="an offset is 0 or more"):
            consumer.seek(queue, -1)
        consumer.seek(queue, 999)
        async with asyncio.timeout(10):
            while consumer.position(queue) != 1:  # noqa: ASYNC110 - the loop in the background tells nobody
                await asyncio.sleep(0.01)
        await producer.send(topic, b"next")
        assert [message.body for message in await consumer.poll()] == [b"next"]
