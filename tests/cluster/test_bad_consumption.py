"""Errors of consumers: invalid subscriptions and offsets, through the public client and real servers."""

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
from tests.client.cluster_fixture import LiveCluster, fresh
from tests.cluster.error_fixtures import assert_fails, bodies_of

# --- subscriptions ----------------------------------------------------------------------------------------------------


async def test_invalid_sql_fails_the_start_of_a_consumer_with_the_position_of_the_error(
    live_cluster: LiveCluster,
) -> None:
    topic = await live_cluster.topic()
    await live_cluster.send(topic, b"kept")
    consumer = PushConsumer(live_cluster.nameserver, group=fresh("group"), handler=print)
    consumer.subscribe(topic, sql="price >> 10")
    words = ("SUBSCRIPTION_PARSE_FAILED", "expected, found '>' at position 8")
    error = await assert_fails(consumer.start(), RequestFailed, *words, retriable=False, exit_status=4)
    assert error.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert await bodies_of(live_cluster.nameserver, topic, 1) == [b"kept"]


async def test_invalid_sql_in_a_pull_is_refused_and_does_not_move_the_offset(live_cluster: LiveCluster) -> None:
    topic = await live_cluster.topic(queues=1)
    await live_cluster.send(topic, b"kept")
    (queue,) = await live_cluster.queues(topic)
    async with PullConsumer(live_cluster.nameserver, group=fresh("group")) as consumer:
        pull = consumer.pull(queue, 0, sql="price = ")
        words = ("cannot be read", "at position")
        await assert_fails(pull, RequestFailed, *words, retriable=False, exit_status=4)
        assert len((await consumer.pull(queue, 0)).messages) == 1


async def test_tags_together_with_sql_or_an_empty_tag_list_are_refused(live_cluster: LiveCluster) -> None:
    consumer = PushConsumer(live_cluster.nameserver, group=fresh("group"), handler=print)
    for expression, sql, words in (("a", "b = 1", "exclude each other"), ("||", None, "names no tag")):
        with pytest.raises(ClientError, match=words) as caught:
            consumer.subscribe("orders", expression, sql=sql)
        assert (caught.value.retriable, caught.value.exit_status) == (False, 1)


async def test_members_with_different_subscriptions_are_logged_and_no_message_is_lost(
    live_cluster: LiveCluster, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await live_cluster.topic(queues=2)
    group = fresh("torn")
    with caplog.at_level(logging.WARNING, "ariane.broker"):
        async with (
            _member(live_cluster, group, topic, "paid") as first,
            _member(live_cluster, group, topic, "refunded") as second,
        ):
            ids = {first.client_id, second.client_id}
            for number in range(8):
                await producer.send(topic, b"%d" % number, tags="paid" if number % 2 else "refunded")
    (record,) = [record for record in caplog.records if "subscri" in record.message and "group" in record.__dict__]
    fields = record.__dict__
    assert fields["group"] == group
    assert topic in str(fields["topics"])
    assert {fields["client"], fields["other"]} == ids
    assert len(await bodies_of(live_cluster.nameserver, topic, 8)) == 8


def _member(live_cluster: LiveCluster, group: str, topic: str, tag: str) -> PushConsumer:
    consumer = PushConsumer(live_cluster.nameserver, group=group, start="earliest", handler=lambda message: None)
    consumer.subscribe(topic, tag)
    return consumer


# --- offsets ----------------------------------------------------------------------------------------------------------


async def test_a_pull_outside_the_queue_gets_the_next_valid_offset(live_cluster: LiveCluster) -> None:
    topic = await live_cluster.topic(queues=1)
    await live_cluster.send(topic, b"a", b"b")
    (queue,) = await live_cluster.queues(topic)
    async with PullConsumer(live_cluster.nameserver, group=fresh("group")) as consumer:
        for offset, nearest in ((999, 2), (-5, 0)):
            result = await consumer.pull(queue, offset)
            assert (result.status, result.messages) == (PullStatus.OFFSET_ILLEGAL, ())
            assert (result.next_offset, result.min_offset, result.max_offset) == (nearest, 0, 2)
        assert [message.body for message in (await consumer.pull(queue, 0)).messages] == [b"a", b"b"]


async def test_an_offset_beyond_the_end_is_not_stored_and_the_reason_is_logged(
    live_cluster: LiveCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await live_cluster.topic(queues=1)
    await live_cluster.send(topic, b"a", b"b")
    (queue,) = await live_cluster.queues(topic)
    async with PullConsumer(live_cluster.nameserver, group=fresh("group")) as consumer:
        consumer.update_offset(queue, 1)
        await consumer.commit()
        consumer.update_offset(queue, 999)
        with caplog.at_level(logging.WARNING, "ariane.client"):
            await consumer.commit()
        assert await consumer.fetch_offset(queue, from_broker=True) == 1
    reasons = [record.__dict__["reason"] for record in caplog.records if record.message == "offset not saved"]
    assert "offset 999 is not in queue 0" in reasons[0]
    assert "the stored offset is unchanged" in reasons[0]


async def test_a_seek_outside_the_queue_is_refused_or_corrected_and_the_next_message_arrives(
    live_cluster: LiveCluster, producer: Producer
) -> None:
    topic = await live_cluster.topic(queues=1)
    await live_cluster.send(topic, b"a")
    (queue,) = await live_cluster.queues(topic)
    async with LitePullConsumer(live_cluster.nameserver, group=fresh("group")) as consumer:
        consumer.assign([queue])
        assert [message.body for message in await consumer.poll()] == [b"a"]
        with pytest.raises(ClientError, match="an offset is 0 or more"):
            consumer.seek(queue, -1)
        consumer.seek(queue, 999)
        async with asyncio.timeout(10):
            while consumer.position(queue) != 1:  # noqa: ASYNC110 - the background loop has no event
                await asyncio.sleep(0.01)
        await producer.send(topic, b"next")
        assert [message.body for message in await consumer.poll()] == [b"next"]
