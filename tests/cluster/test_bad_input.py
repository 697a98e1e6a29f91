"""What producers get wrong, through the public client and real servers: a clear error or a known outcome, nothing lost.

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
from tests.client.cluster_fixture import Basket, Ground, fresh
from tests.cluster.error_fixtures import IMPATIENT, bodies_of, create, guarded_ground, refused, sent_in_the_end, stored

# --- unknown topic ----------------------------------------------------------------------------------------------------


async def test_a_send_to_an_unknown_topic_names_the_nameserver_the_cures_and_what_was_perhaps_meant(
    ground: Ground, producer: Producer
) -> None:
    known = await ground.topic("orders")
    unknown = known.replace("orders", "ordesr")
    words = (f"no route for topic {unknown} at {ground.nameserver}", "create it", "autoCreateTopicEnable")
    error = await refused(producer.send(unknown, b"x"), NoRoute, *words, retriable=True, exit_status=3)
    assert str(error).endswith(f"similar topics: {known}")


async def test_a_consumer_of_an_unknown_topic_waits_for_it_and_misses_nothing(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"{fresh('future')}-topic"
    basket = Basket()
    consumer = PushConsumer(ground.nameserver, group=fresh("group"), handler=basket.put, settings=IMPATIENT)
    consumer.subscribe(topic)
    with caplog.at_level(logging.WARNING, "ariane.client"):
        async with consumer:
            await create(ground, topic)
            await ground.send(topic, b"first")
            await basket.until_count(1)
    assert basket.bodies == [b"first"]
    (warning,) = [record for record in caplog.records if record.message == "nothing to consume yet"]
    assert "create it" in warning.__dict__["reason"]


async def test_a_pull_of_an_unknown_topic_is_the_same_error(ground: Ground) -> None:
    async with PullConsumer(ground.nameserver, group=fresh("group")) as consumer:
        words = ("no route for topic nowhere", "create it")
        await refused(consumer.queues("nowhere"), NoRoute, *words, retriable=True, exit_status=3)


# --- no permission ----------------------------------------------------------------------------------------------------


async def test_a_topic_that_may_not_be_written_names_the_permission_it_needs_and_works_when_it_has_it(
    ground: Ground, producer: Producer
) -> None:
    topic = fresh("read-only")
    await create(ground, topic, perm=4)
    words = (f"topic {topic} has no queue that takes messages", "give the topic permission 6")
    await refused(producer.send(topic, b"x"), NoRoute, *words, retriable=True, exit_status=3)
    await create(ground, topic, perm=6)
    await sent_in_the_end(producer, topic, b"allowed")
    assert await bodies_of(ground.nameserver, topic, 1) == [b"allowed"]


async def test_a_producer_with_an_old_route_is_refused_by_the_broker(ground: Ground) -> None:
    topic = fresh("closed")
    await create(ground, topic)
    async with Producer(ground.nameserver, group=fresh("senders"), retries=0) as producer:
        await producer.queues(topic)
        await create(ground, topic, perm=4)
        words = ("NO_PERMISSION", f"topic {topic} on broker broker-a may not be written", "give it perm 6")
        await refused(producer.send(topic, b"x"), SendFailed, *words, retriable=True, exit_status=3)
    assert await stored(ground, topic) == 0


async def test_a_topic_that_may_not_be_read_refuses_pulls(ground: Ground, producer: Producer) -> None:
    topic = await ground.topic("write-only", queues=1, perm=2)
    await producer.send(topic, b"kept")
    async with PullConsumer(ground.nameserver, group=fresh("group")) as consumer:
        assert await consumer.queues(topic) == []
        queue = MessageQueue(topic=topic, broker_name="broker-a", queue_id=0)
        words = ("NO_PERMISSION", f"topic {topic} may not be read", "give it perm 6")
        error = await refused(consumer.pull(queue, 0), RequestFailed, *words, retriable=False, exit_status=4)
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
async def test_an_account_that_may_not_send_is_told_so_and_nothing_is_stored(
    tmp_path: Path, secret: str, words: tuple[str, ...]
) -> None:
    account = ClientSettings(access_key="a-reader", secret_key=Secret(secret))
    async with guarded_ground(tmp_path, ACCOUNTS) as ground:
        await create(ground, "orders")
        async with Producer(ground.nameserver, group="senders", retries=0, settings=account) as producer:
            send = producer.send("orders", b"x")
            await refused(send, SendFailed, "NO_PERMISSION", *words, retriable=True, exit_status=3)
        (queue,) = await ground.queues("orders")
        assert (await ground.instance.call(ground.broker, GetMaxOffset("orders", queue.queue_id))).offset == 0


# --- too large, empty, with separators --------------------------------------------------------------------------------


async def test_an_oversized_message_is_refused_before_it_leaves(ground: Ground, producer: Producer) -> None:
    topic = await ground.topic()
    words = ("4194305 bytes, at most 4194304", "send less", "message_bytes_max", "maxMessageSize")
    large = bytes(4 * 1024 * 1024 + 1)
    await refused(producer.send(topic, large), MessageRejected, *words, retriable=False, exit_status=2)
    batch = [Message(topic=topic, body=b"good"), Message(topic=topic, body=large)]
    await refused(producer.send_batch(batch), MessageRejected, *words, retriable=False, exit_status=2)
    assert await stored(ground, topic) == 0


async def test_a_message_that_only_the_broker_finds_too_large_is_refused_in_its_words(ground: Ground) -> None:
    topic = await ground.topic()
    limit = 8 * 1024 * 1024
    async with Producer(
        ground.nameserver, group=fresh("senders"), message_bytes_max=limit, compress_over_bytes=limit
    ) as producer:
        words = ("broker broker-a refuses the message", "at most 4194304 are taken", "raise maxMessageSize")
        send = producer.send(topic, bytes(5 * 1024 * 1024))
        await refused(send, MessageRejected, *words, retriable=False, exit_status=2)
        await producer.send(topic, b"the connection is as good as before")
    assert await stored(ground, topic) == 1


async def test_an_empty_body_is_refused_alone_and_in_a_batch(ground: Ground, producer: Producer) -> None:
    topic = await ground.topic()
    words = ("the body is empty", "send at least one byte")
    await refused(producer.send(topic, b""), MessageRejected, *words, retriable=False, exit_status=2)
    await refused(producer.send(topic), MessageRejected, *words, retriable=False, exit_status=2)
    batch = [Message(topic=topic, body=b"good"), Message(topic=topic, body=b"")]
    await refused(producer.send_batch(batch), MessageRejected, *words, retriable=False, exit_status=2)
    assert await stored(ground, topic) == 0


@pytest.mark.parametrize("separator", ["\x01", "\x02"])
async def test_a_property_with_a_separator_of_the_wire_is_refused_wherever_it_hides(
    ground: Ground, producer: Producer, separator: str
) -> None:
    topic = await ground.topic()
    bad = f"a{separator}b"
    words = ("holds 0x01 or 0x02", "encode the value differently")
    for fields in ({"properties": {"p": bad}}, {"properties": {bad: "v"}}, {"tags": bad}, {"keys": [bad]}):
        send = producer.send(topic, b"x", **fields)
        await refused(send, MessageRejected, *words, retriable=False, exit_status=2)
    assert await stored(ground, topic) == 0


async def test_properties_with_any_other_separator_arrive_as_they_were_sent(ground: Ground, producer: Producer) -> None:
    topic = await ground.topic()
    properties = {"a=b;c": "x=y; z,\t|\n|| && % \\ \"'", "naïve": "héllo 你好 🙂", "json": '{"k": [1, 2]}'}
    await producer.send(topic, b"x", properties=properties, tags="tag with blanks", keys=["k=1;2"])
    basket = Basket()
    consumer = PushConsumer(ground.nameserver, group=fresh("group"), start="earliest", handler=basket.put)
    consumer.subscribe(topic, "tag with blanks")
    async with consumer:
        await basket.until_count(1)
    (message,) = basket.messages
    assert properties.items() <= message.properties.items()
    assert (message.tags, message.keys) == ("tag with blanks", ("k=1;2",))
