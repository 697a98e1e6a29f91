"""Admin API for messages and queues, with a real broker: Ariane's, and Apache's if ARIANE_INTEROP=1."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ariane.client.admin import Admin
from ariane.client.admin.messages import TrackState
from ariane.client.consumer.invocation import Retry
from ariane.client.consumer.message import Received
from ariane.client.consumer.push import PushConsumer
from ariane.client.producer.producer import Producer
from ariane.errors import ArianeError, ClientError, NoRoute, RecordError, RequestFailed
from ariane.model.ids import DEAD_LETTER_PREFIX
from ariane.model.message import Message
from ariane.wire.requests.clients import ConsumeOutcome
from tests.client.cluster_fixture import PATIENCE_S, LiveCluster, MessageCollector, fresh


@pytest.fixture
async def admin(live_cluster: LiveCluster) -> AsyncIterator[Admin]:
    async with Admin(live_cluster.nameserver) as admin:
        yield admin


@pytest.fixture
async def producer(live_cluster: LiveCluster) -> AsyncIterator[Producer]:
    async with Producer(live_cluster.nameserver, group=fresh("producers")) as producer:
        yield producer


async def until_found(request: Any, count: int = 1) -> Any:
    """Apache's broker indexes a message some milliseconds after its response to the send."""
    async with asyncio.timeout(PATIENCE_S):
        while len((found := await request()).messages) < count:  # noqa: ASYNC110 - there is no notification
            await asyncio.sleep(0.05)
    return found


async def test_a_message_is_found_by_each_of_its_ids_and_keys(
    live_cluster: LiveCluster, admin: Admin, producer: Producer
) -> None:
    topic = await live_cluster.topic()
    sent = await producer.send(topic, b"x" * 5000, tags="paid", keys=["order-17", "customer-4"])
    by_id = await admin.messages.by_id(sent.offset_message_id)
    assert (by_id.topic, by_id.body, by_id.queue, by_id.message_id) == (topic, b"x" * 5000, sent.queue, sent.message_id)
    found = await until_found(lambda: admin.messages.by_unique_key(topic, sent.message_id))
    assert [message.body for message in found.messages] == [b"x" * 5000]
    assert found.is_complete
    found = await until_found(lambda: admin.messages.by_key(topic, "customer-4"))
    assert [message.message_id for message in found.messages] == [sent.message_id]
    at = await admin.messages.by_offset(sent.queue, sent.queue_offset)
    assert at is not None
    assert at.message_id == sent.message_id
    assert await admin.messages.by_offset(sent.queue, sent.queue_offset + 1) is None


async def test_a_key_that_no_message_has_finds_none(live_cluster: LiveCluster, admin: Admin) -> None:
    topic = await live_cluster.topic()
    found = await admin.messages.by_key(topic, "missing")
    assert (found.messages, found.is_complete) == ((), True)
    with pytest.raises(NoRoute):
        await admin.messages.by_key(fresh("nowhere"), "missing")
    with pytest.raises(ClientError, match="at least 1"):
        await admin.messages.by_key(topic, "missing", count=0)


async def test_keys_with_the_same_hash_are_distinguished(
    live_cluster: LiveCluster, admin: Admin, producer: Producer
) -> None:
    topic = await live_cluster.topic(queues=1)
    await producer.send(topic, b"twin", keys=["BB"])  # "Aa" and "BB" have one hash in Java
    await producer.send(topic, b"meant", keys=["Aa"])
    found = await until_found(lambda: admin.messages.by_key(topic, "Aa"))
    assert [message.body for message in found.messages] == [b"meant"]


async def test_a_truncated_result_says_so(live_cluster: LiveCluster, admin: Admin, producer: Producer) -> None:
    topic = await live_cluster.topic(queues=1)
    for number in range(4):
        await producer.send(topic, b"%d" % number, keys=["many"])
    all_queues = await until_found(lambda: admin.messages.by_key(topic, "many"), 4)
    assert all_queues.is_complete
    some = await admin.messages.by_key(topic, "many", count=2)
    assert (len(some.messages), some.is_cut, some.is_complete) == (2, True, False)


async def test_messages_are_found_by_time(live_cluster: LiveCluster, admin: Admin, producer: Producer) -> None:
    topic = await live_cluster.topic(queues=2)
    for number in range(5):
        await producer.send(topic, b"%d" % number)
    stored = await admin.messages.by_time(topic, 0, 2**62)
    assert sorted(message.body for message in stored.messages) == [b"0", b"1", b"2", b"3", b"4"]
    assert stored.is_complete
    cut = await admin.messages.by_time(topic, 0, 2**62, count=3)
    assert (len(cut.messages), cut.is_cut) == (3, True)
    first, last = stored.messages[0].store_timestamp_ms, stored.messages[-1].store_timestamp_ms
    assert (await admin.messages.by_time(topic, last + 1, 2**62)).messages == ()
    assert (await admin.messages.by_time(topic, 0, first)).messages == ()


async def test_a_scan_ends_at_the_end_and_chooses_by_tag_and_queue(
    live_cluster: LiveCluster, admin: Admin, producer: Producer
) -> None:
    topic = await live_cluster.topic(queues=2)
    one, two = await live_cluster.queues(topic)
    for number in range(70):
        await producer.send(topic, b"%d" % number, tags="odd" if number % 2 else "even", queue=one)
    await producer.send(topic, b"elsewhere", tags="odd", queue=two)
    odd = [message.body async for message in admin.queues.scan(topic, expression="odd", queues=[one])]
    assert odd == [b"%d" % number for number in range(1, 70, 2)]
    assert len([message async for message in admin.queues.scan(topic)]) == 71
    with pytest.raises(ClientError, match="not a readable queue"):
        await anext(admin.queues.scan(topic, queues=[type(one)(topic=topic, broker_name="x", queue_id=0)]))


async def test_the_index_of_a_queue_is_read(live_cluster: LiveCluster, admin: Admin, producer: Producer) -> None:
    topic = await live_cluster.topic(queues=1)
    (queue,) = await live_cluster.queues(topic)
    sent = [await producer.send(topic, b"a", tags="Aa"), await producer.send(topic, b"b")]
    await until_found(lambda: admin.messages.by_unique_key(topic, sent[1].message_id))
    page = await admin.queues.entries(queue, 0, 10)
    assert [entry.tags_code for entry in page.entries] == [2112, 0]
    assert (page.min_offset, page.max_offset) == (0, 2)
    assert await admin.queues.earliest_store_time_ms(queue) is not None
    with pytest.raises(ArianeError):
        await admin.queues.entries(queue, 99, 1)


async def test_invalid_ids_are_refused_without_a_request(admin: Admin) -> None:
    with pytest.raises(RecordError, match="not hexadecimal"):
        await admin.messages.by_id("no id at all")


async def test_a_copy_is_a_new_message_with_the_same_content(
    live_cluster: LiveCluster, admin: Admin, producer: Producer
) -> None:
    topic = await live_cluster.topic(queues=1)
    message = Message(topic=topic, body=b"again", tags="t", keys=["k"], properties={"colour": "red"})
    sent = await producer.send(message)
    copy = await admin.messages.resend(await admin.messages.by_id(sent.offset_message_id))
    assert copy.message_id != sent.message_id
    stored = await admin.messages.by_id(copy.offset_message_id)
    assert (stored.body, stored.tags, stored.keys, stored.properties["colour"]) == (b"again", "t", ("k",), "red")


async def test_a_dead_letter_goes_back_to_its_topic(
    live_cluster: LiveCluster, admin: Admin, producer: Producer
) -> None:
    topic, collector, group = await live_cluster.topic(queues=1), MessageCollector(), fresh("group")

    async def handle(message: Received) -> Retry | None:
        collector.put(message)
        return Retry(delay_level=-1) if len(collector.messages) == 1 else None

    consumer = PushConsumer(live_cluster.nameserver, group=group, start="earliest", handler=handle)
    consumer.subscribe(topic)
    await producer.send(topic, b"hopeless")
    async with consumer:
        await collector.until_count(1)
        letters = await _dead_letters(admin, group)
        assert [letter.body for letter in letters] == [b"hopeless"]
        await admin.messages.resend(letters[0])
        await collector.until_count(2)
    assert collector.bodies == [b"hopeless", b"hopeless"]


async def _dead_letters(admin: Admin, group: str) -> list[Received]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                found = [message async for message in admin.queues.scan(f"{DEAD_LETTER_PREFIX}{group}")]
            except (NoRoute, RequestFailed):
                found = []
            if found:
                return found
            await asyncio.sleep(0.05)


async def test_a_running_consumer_consumes_a_message_directly(
    live_cluster: LiveCluster, admin: Admin, producer: Producer
) -> None:
    topic, collector = await live_cluster.topic(queues=1), MessageCollector()
    consumer = PushConsumer(live_cluster.nameserver, group=fresh("group"), start="earliest", handler=collector.put)
    consumer.subscribe(topic)
    sent = await producer.send(topic, b"once more")
    async with consumer:
        await collector.until_count(1)
        result = await admin.messages.consume_directly(
            consumer.group, sent.offset_message_id, client_id=consumer.client_id
        )
        await collector.until_count(2)
    assert result.consume_result is ConsumeOutcome.CR_SUCCESS


async def test_tracks_show_which_groups_have_consumed_a_message(
    live_cluster: LiveCluster, admin: Admin, producer: Producer
) -> None:
    topic = await live_cluster.topic(queues=1)
    (queue,) = await live_cluster.queues(topic)
    sent = [await producer.send(topic, b"%d" % number) for number in range(3)]
    done, waiting = fresh("done"), fresh("waiting")
    await admin.offsets.commit(done, queue, 3)
    await admin.offsets.commit(waiting, queue, 1)
    tracks = await admin.messages.tracks(await admin.messages.by_id(sent[2].offset_message_id))
    assert {track.group: (track.state, track.behind, track.is_online) for track in tracks} == {
        done: (TrackState.CONSUMED, None, False),
        waiting: (TrackState.WAITING, 1, False),
    }


async def test_a_consumer_that_filters_is_past_a_message_it_did_not_get(
    live_cluster: LiveCluster, admin: Admin, producer: Producer
) -> None:
    topic, collector = await live_cluster.topic(queues=1), MessageCollector()
    consumer = PushConsumer(live_cluster.nameserver, group=fresh("group"), start="earliest", handler=collector.put)
    consumer.subscribe(topic, "wanted")
    unwanted = await producer.send(topic, b"unwanted", tags="other")
    await producer.send(topic, b"wanted", tags="wanted")
    async with consumer:
        await collector.until_count(1)
        message = await admin.messages.by_id(unwanted.offset_message_id)
        async with asyncio.timeout(PATIENCE_S):
            while (track := (await admin.messages.tracks(message))[0]).state is not TrackState.FILTERED:
                await consumer.commit()
    assert (track.group, track.is_online) == (consumer.group, True)


async def test_a_trace_shows_sending_and_consuming(live_cluster: LiveCluster, admin: Admin) -> None:
    topic, collector = await live_cluster.topic(queues=1), MessageCollector()
    consumer = PushConsumer(
        live_cluster.nameserver, group=fresh("group"), start="earliest", handler=collector.put, trace=True
    )
    consumer.subscribe(topic)
    async with Producer(live_cluster.nameserver, group=fresh("producers"), trace=True) as producer:
        sent = await producer.send(topic, b"traced", keys=["order-17"])
        async with consumer:
            await collector.until_count(1)
    async with asyncio.timeout(PATIENCE_S):
        while len((trace := await admin.messages.trace(sent.message_id)).consumed + trace.published) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    (published,) = trace.published
    assert (published.topic, published.keys, published.success) == (topic, "order-17", True)
    assert published.offset_message_id == sent.offset_message_id
    (consumed,) = trace.consumed
    assert (consumed.group, consumed.success, consumed.retries) == (consumer.group, True, 0)
    assert trace.is_complete
