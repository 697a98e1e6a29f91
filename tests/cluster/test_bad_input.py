"""Errors of producers, through the public client and real servers: a clear error or a known outcome, nothing lost.

What consumers get wrong is in test_bad_consumption.py, servers that are down or die in test_bad_servers.py.
"""

import logging
from pathlib import Path

import pytest

from ariane.client.consumer.pull import PullConsumer
from ariane.client.consumer.push import PushConsumer
from ariane.client.producer.producer import Producer
from ariane.client.settings import ClientSettings
from ariane.errors import MessageRejected, NoRoute, RequestFailed, SendFailed
from ariane.model.message import Message
from ariane.model.route import MessageQueue
from ariane.settings import Secret
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.offsets import GetMaxOffset
from tests.client.cluster_fixture import LiveCluster, MessageCollector, fresh
from tests.cluster.error_fixtures import (
    FAST_POLLING,
    acl_cluster,
    assert_fails,
    bodies_of,
    create,
    send_with_retries,
    stored,
)

# --- unknown topic ----------------------------------------------------------------------------------------------------


async def test_the_error_for_an_unknown_topic_has_the_nameserver_hints_and_similar_names(
    live_cluster: LiveCluster, producer: Producer
) -> None:
    known = await live_cluster.topic("orders")
    unknown = known.replace("orders", "ordesr")
    words = (f"no route for topic {unknown} at {live_cluster.nameserver}", "create it", "autoCreateTopicEnable")
    error = await assert_fails(producer.send(unknown, b"x"), NoRoute, *words, retriable=True, exit_status=3)
    assert str(error).endswith(f"similar topics: {known}")


async def test_a_consumer_of_an_unknown_topic_waits_for_it_and_misses_nothing(
    live_cluster: LiveCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"{fresh('future')}-topic"
    collector = MessageCollector()
    consumer = PushConsumer(live_cluster.nameserver, group=fresh("group"), handler=collector.put, settings=FAST_POLLING)
    consumer.subscribe(topic)
    with caplog.at_level(logging.WARNING, "ariane.client"):
        async with consumer:
            await create(live_cluster, topic)
            await live_cluster.send(topic, b"first")
            await collector.until_count(1)
    assert collector.bodies == [b"first"]
    (warning,) = [record for record in caplog.records if record.message == "nothing to consume yet"]
    assert "create it" in warning.__dict__["reason"]


async def test_a_pull_of_an_unknown_topic_is_the_same_error(live_cluster: LiveCluster) -> None:
    async with PullConsumer(live_cluster.nameserver, group=fresh("group")) as consumer:
        words = ("no route for topic nowhere", "create it")
        await assert_fails(consumer.queues("nowhere"), NoRoute, *words, retriable=True, exit_status=3)


# --- no permission ----------------------------------------------------------------------------------------------------


async def test_the_error_for_a_topic_without_write_permission_names_it_and_sends_work_with_it(
    live_cluster: LiveCluster, producer: Producer
) -> None:
    topic = fresh("read-only")
    await create(live_cluster, topic, perm=4)
    words = (f"topic {topic} has no queue that takes messages", "give the topic permission 6")
    await assert_fails(producer.send(topic, b"x"), NoRoute, *words, retriable=True, exit_status=3)
    await create(live_cluster, topic, perm=6)
    await send_with_retries(producer, topic, b"allowed")
    assert await bodies_of(live_cluster.nameserver, topic, 1) == [b"allowed"]


async def test_what_a_producer_with_an_old_route_sends_is_stored_while_a_topic_is_drained(
    live_cluster: LiveCluster,
) -> None:
    """As by Apache 4.9; with `refuse_unpermitted_sends` it would be refused."""
    topic = fresh("closed")
    await create(live_cluster, topic)
    async with Producer(live_cluster.nameserver, group=fresh("senders"), retries=0) as producer:
        await producer.queues(topic)
        await create(live_cluster, topic, perm=4)
        await producer.send(topic, b"x")
    assert await bodies_of(live_cluster.nameserver, topic, 1) == [b"x"]


async def test_a_topic_without_read_permission_refuses_pulls(live_cluster: LiveCluster, producer: Producer) -> None:
    topic = await live_cluster.topic("write-only", queues=1, perm=2)
    await producer.send(topic, b"kept")
    async with PullConsumer(live_cluster.nameserver, group=fresh("group")) as consumer:
        assert await consumer.queues(topic) == []
        queue = MessageQueue(topic=topic, broker_name="broker-a", queue_id=0)
        words = ("NO_PERMISSION", f"topic {topic} may not be read", "give it perm 6")
        error = await assert_fails(consumer.pull(queue, 0), RequestFailed, *words, retriable=False, exit_status=4)
        assert error.code == ResponseCode.NO_PERMISSION
        assert await consumer.max_offset(queue) == 1


ACCOUNTS = """
accounts:
- {accessKey: the-boss, secretKey: bosses-secret, admin: true}
- {accessKey: a-reader, secretKey: readers-secret, topicPerms: [orders=SUB], groupPerms: [readers=SUB]}
"""


@pytest.mark.parametrize(
    ("secret", "words"),
    [("readers-secret", ("No default permission", "orders")), ("guessed", ("Check signature failed", "a-reader"))],
)
async def test_an_account_without_permission_gets_an_error_and_nothing_is_stored(
    tmp_path: Path, secret: str, words: tuple[str, ...]
) -> None:
    account = ClientSettings(access_key="a-reader", secret_key=Secret(secret))
    async with acl_cluster(tmp_path, ACCOUNTS) as live_cluster:
        await create(live_cluster, "orders")
        async with Producer(live_cluster.nameserver, group="senders", retries=0, settings=account) as producer:
            send = producer.send("orders", b"x")
            await assert_fails(send, SendFailed, "NO_PERMISSION", *words, retriable=True, exit_status=3)
        (queue,) = await live_cluster.queues("orders")
        assert (
            await live_cluster.instance.call(live_cluster.broker, GetMaxOffset("orders", queue.queue_id))
        ).offset == 0


# --- too large, empty, with separators --------------------------------------------------------------------------------


async def test_an_oversized_message_is_refused_before_it_is_sent(live_cluster: LiveCluster, producer: Producer) -> None:
    topic = await live_cluster.topic()
    words = ("4194305 bytes, at most 4194304", "send less", "message_bytes_max", "maxMessageSize")
    large = bytes(4 * 1024 * 1024 + 1)
    await assert_fails(producer.send(topic, large), MessageRejected, *words, retriable=False, exit_status=2)
    batch = [Message(topic=topic, body=b"good"), Message(topic=topic, body=large)]
    await assert_fails(producer.send_batch(batch), MessageRejected, *words, retriable=False, exit_status=2)
    assert await stored(live_cluster, topic) == 0


async def test_a_message_too_large_for_the_broker_is_refused_with_its_error(
    live_cluster: LiveCluster,
) -> None:
    topic = await live_cluster.topic()
    limit = 8 * 1024 * 1024
    async with Producer(
        live_cluster.nameserver, group=fresh("senders"), message_bytes_max=limit, compress_over_bytes=limit
    ) as producer:
        words = ("broker broker-a refuses the message", "at most 4194304 are taken", "raise maxMessageSize")
        send = producer.send(topic, bytes(5 * 1024 * 1024))
        await assert_fails(send, MessageRejected, *words, retriable=False, exit_status=2)
        await producer.send(topic, b"the connection is as good as before")
    assert await stored(live_cluster, topic) == 1


async def test_an_empty_body_is_refused_alone_and_in_a_batch(live_cluster: LiveCluster, producer: Producer) -> None:
    topic = await live_cluster.topic()
    words = ("the body is empty", "send at least one byte")
    await assert_fails(producer.send(topic, b""), MessageRejected, *words, retriable=False, exit_status=2)
    await assert_fails(producer.send(topic), MessageRejected, *words, retriable=False, exit_status=2)
    batch = [Message(topic=topic, body=b"good"), Message(topic=topic, body=b"")]
    await assert_fails(producer.send_batch(batch), MessageRejected, *words, retriable=False, exit_status=2)
    assert await stored(live_cluster, topic) == 0


@pytest.mark.parametrize("separator", ["\x01", "\x02"])
async def test_a_property_with_a_wire_separator_is_refused_everywhere(
    live_cluster: LiveCluster, producer: Producer, separator: str
) -> None:
    topic = await live_cluster.topic()
    bad = f"a{separator}b"
    words = ("holds 0x01 or 0x02", "encode the value differently")
    for fields in ({"properties": {"p": bad}}, {"properties": {bad: "v"}}, {"tags": bad}, {"keys": [bad]}):
        send = producer.send(topic, b"x", **fields)
        await assert_fails(send, MessageRejected, *words, retriable=False, exit_status=2)
    assert await stored(live_cluster, topic) == 0


async def test_properties_with_any_other_separator_arrive_as_they_were_sent(
    live_cluster: LiveCluster, producer: Producer
) -> None:
    topic = await live_cluster.topic()
    properties = {"a=b;c": "x=y; z,\t|\n|| && % \\ \"'", "naïve": "héllo 你好 🙂", "json": '{"k": [1, 2]}'}
    await producer.send(topic, b"x", properties=properties, tags="tag with blanks", keys=["k=1;2"])
    collector = MessageCollector()
    consumer = PushConsumer(live_cluster.nameserver, group=fresh("group"), start="earliest", handler=collector.put)
    consumer.subscribe(topic, "tag with blanks")
    async with consumer:
        await collector.until_count(1)
    (message,) = collector.messages
    assert properties.items() <= message.properties.items()
    assert (message.tags, message.keys) == ("tag with blanks", ("k=1;2",))
