"""`ariane msg` against a real broker."""

import asyncio
import json
from typing import Any

import pytest

from ariane.cli.msg.explain import file_and_byte
from ariane.client.admin import Admin
from ariane.client.consumer.invocation import Retry
from ariane.client.consumer.message import Received
from ariane.client.consumer.push import PushConsumer
from ariane.client.producer.producer import Producer
from ariane.testing.broker import BrokerForTests
from tests.cli.command_line import CommandLine
from tests.client.cluster_fixture import PATIENCE_S, MessageCollector, fresh


async def topic_of(broker: BrokerForTests, queues: int = 1) -> str:
    topic = fresh("topic")
    await broker.aio.create_topic(topic, queues=queues)
    return topic


async def explained(command: CommandLine, message_id: str, topic: str) -> dict[str, Any]:
    done = await asyncio.to_thread(command.rows, "msg", "explain", message_id, "--topic", topic)
    assert len(done) == 1
    return done[0]


async def verdict_of(command: CommandLine, message_id: str, topic: str, group: str) -> tuple[str, str]:
    groups = {row["group"]: row for row in (await explained(command, message_id, topic))["groups"]}
    return groups[group]["verdict"], groups[group]["why"]


def test_a_message_is_shown_by_either_id(shared_broker: BrokerForTests, command: CommandLine) -> None:
    topic = fresh("topic")
    shared_broker.create_topic(topic)
    sent = shared_broker.send(topic, b'{"total": 7}', tags="paid", keys=["order-7"])
    (by_client,) = command.rows("msg", "get", sent.message_id)
    (by_broker,) = command.rows("msg", "get", sent.offset_message_id)
    assert by_client == by_broker
    assert (by_client["topic"], by_client["tags"], by_client["body"]) == (topic, "paid", '{"total": 7}')
    assert "order-7" in command.ok("msg", "get", sent.message_id, "--topic", topic).out
    assert command.ok("msg", "get", sent.message_id, "--body").out == '{"total": 7}'


@pytest.mark.parametrize("verb", ["get", "explain", "trace", "resend"])
def test_a_missing_message_ends_with_1(command: CommandLine, verb: str) -> None:
    done = command.run("msg", verb, "7F0000010E6C4F6B5E2D1A3B00000000")
    assert (done.status, done.out) == (1, "")


def test_messages_are_found_by_key_and_by_queue_offset(shared_broker: BrokerForTests, command: CommandLine) -> None:
    topic = fresh("topic")
    shared_broker.create_topic(topic, queues=1)
    shared_broker.send(topic, b"other")
    shared_broker.send(topic, b"wanted", keys=["order-1001"])
    assert [row["body"] for row in command.rows("msg", "find", topic, "--key", "order-1001")] == ["wanted"]
    assert [row["body"] for row in command.rows("msg", "find", topic, "--queue", "0", "--offset", "1")] == ["wanted"]
    beyond = command.run("msg", "find", topic, "--queue", "broker-a:0", "--offset", "9")
    assert (beyond.status, "its offsets go from 0 to 2" in beyond.err) == (1, True)
    assert command.run("msg", "find", topic, "--key", "missing").status == 1
    assert command.run("msg", "find", topic, "--queue", "0").status == 2


def test_a_limited_scan_reports_how_far_it_got(shared_broker: BrokerForTests, command: CommandLine) -> None:
    topic = fresh("topic")
    shared_broker.create_topic(topic, queues=1)
    for number in range(10):
        shared_broker.send(topic, b"number %d" % number, tags="odd" if number % 2 else "even")
    cut = command.ok("msg", "find", topic, "--tags", "odd", "--limit", "2", "-o", "jsonl")
    assert [json.loads(line)["body"] for line in cut.lines] == ["number 1", "number 3"]
    assert cut.err == "scanned 4 of 10 messages, stopped at --limit\n"
    whole = command.ok("msg", "find", topic, "--contains", "number 7")
    assert ("number 7" in whole.out, whole.err) == (True, "")
    none = command.run("msg", "find", topic, "--contains", "nowhere")
    assert (none.status, "scanned 10 of 10 messages" in none.err) == (1, True)
    assert command.run("msg", "find", topic, "--from", "+1h").status == 1


async def test_a_trace_is_shown(shared_broker: BrokerForTests, command: CommandLine) -> None:
    topic = await topic_of(shared_broker)
    async with Producer(shared_broker.namesrv, group="tracing", trace=True) as producer:
        sent = await producer.send(topic, b"traced")
    (row,) = await asyncio.to_thread(command.rows, "msg", "trace", sent.message_id)
    assert (row["event"], row["group"], row["success"]) == ("sent", "tracing", True)


async def test_a_copy_is_sent_to_another_topic(shared_broker: BrokerForTests, command: CommandLine) -> None:
    topic, other = await topic_of(shared_broker), await topic_of(shared_broker)
    sent = await shared_broker.aio.send(topic, b"again")
    (row,) = await asyncio.to_thread(command.rows, "msg", "resend", sent.message_id, "--to", other)
    assert (row["topic"], row["sendStatus"]) == (other, "SEND_OK")
    assert [message.body for message in await shared_broker.aio.messages(other)] == [b"again"]


async def test_a_message_is_delivered_to_a_member(shared_broker: BrokerForTests, command: CommandLine) -> None:
    topic, collector = await topic_of(shared_broker), MessageCollector()
    consumer = PushConsumer(shared_broker.namesrv, group=fresh("group"), start="earliest", handler=collector.put)
    consumer.subscribe(topic)
    sent = await shared_broker.aio.send(topic, b"once more")
    async with consumer:
        await collector.until_count(1)
        (row,) = await asyncio.to_thread(
            command.rows, "msg", "resend", sent.message_id, "--topic", topic, "--to-group", consumer.group
        )
        await collector.until_count(2)
    assert row["consumeResult"] == "CR_SUCCESS"


# --- explain --------------------------------------------------------------------------------------------------------


def test_files_are_named_after_their_first_byte() -> None:
    assert file_and_byte("commitlog", 0, 1024) == ("commitlog/00000000000000000000", 0)
    assert file_and_byte("commitlog", 2050, 1024) == ("commitlog/00000000000000002048", 2)
    assert file_and_byte("commitlog", 2050, None) == (None, None)


async def test_explain_shows_file_and_byte(shared_broker: BrokerForTests, command: CommandLine) -> None:
    topic = await topic_of(shared_broker)
    sent = await shared_broker.aio.send(topic, b"found", tags="Aa", keys=["order-5"])
    row = await explained(command, "order-5", topic)
    (message,) = await shared_broker.aio.messages(topic)
    assert (row["msgId"], row["queueOffset"], row["tagsCode"]) == (sent.message_id, 0, 2112)
    assert row["commitLogFile"] == "commitlog/00000000000000000000"
    assert row["commitLogByte"] == row["physicalOffset"] == message.physical_offset
    assert (row["consumeQueueFile"], row["consumeQueueByte"]) == (f"consumequeue/{topic}/0/{0:020d}", 0)
    assert row["consumeQueueEntry"].endswith("tag hash 2112")
    assert row["groups"] == []
    table = await asyncio.to_thread(command.ok, "msg", "explain", sent.message_id)
    assert "no group consumes this topic" in table.out


async def test_offsets_explain_who_has_consumed_and_who_waits(
    shared_broker: BrokerForTests, command: CommandLine
) -> None:
    topic = await topic_of(shared_broker)
    for number in range(3):
        sent = await shared_broker.aio.send(topic, b"%d" % number)
    done, waiting = fresh("done"), fresh("waiting")
    async with Admin(shared_broker.namesrv) as admin:
        await admin.offsets.commit(done, sent.queue, 3)
        await admin.offsets.commit(waiting, sent.queue, 1)
    verdict, why = await verdict_of(command, sent.message_id, topic, waiting)
    assert (verdict, why) == ("waiting", "waits behind 1 messages of its queue; the group has no online members")
    assert (await verdict_of(command, sent.message_id, topic, done))[0] == "consumed"


@pytest.mark.parametrize(("tags", "sql"), [("wanted", None), ("*", "TAGS = 'wanted'")])
async def test_a_filter_explains_why_a_message_was_not_consumed(
    shared_broker: BrokerForTests, command: CommandLine, tags: str, sql: str | None
) -> None:
    topic, collector = await topic_of(shared_broker), MessageCollector()
    consumer = PushConsumer(shared_broker.namesrv, group=fresh("group"), start="earliest", handler=collector.put)
    consumer.subscribe(topic, tags, sql=sql)
    unwanted = await shared_broker.aio.send(topic, b"unwanted", tags="other")
    wanted = await shared_broker.aio.send(topic, b"wanted", tags="wanted")
    async with consumer:
        await collector.until_count(1)
        async with asyncio.timeout(PATIENCE_S):
            while (await verdict_of(command, wanted.message_id, topic, consumer.group))[0] != "consumed":
                await consumer.commit()
        verdict, why = await verdict_of(command, unwanted.message_id, topic, consumer.group)
        assert (verdict, "wanted" in why) == ("filtered", True)


async def test_a_group_with_other_subscriptions_is_reported(
    shared_broker: BrokerForTests, command: CommandLine
) -> None:
    topic, other = await topic_of(shared_broker), await topic_of(shared_broker)
    sent = await shared_broker.aio.send(topic, b"missed")
    consumer = PushConsumer(shared_broker.namesrv, group=fresh("group"), handler=MessageCollector().put)
    consumer.subscribe(other)
    async with Admin(shared_broker.namesrv) as admin:
        await admin.offsets.commit(consumer.group, sent.queue, 0)
    async with consumer:
        verdict, why = await verdict_of(command, sent.message_id, topic, consumer.group)
    assert (verdict, why) == ("subscription mismatch", f"its members do not subscribe to {topic}, but to {other}")


async def test_a_due_retry_of_a_group_without_an_offset_is_explained(
    shared_broker: BrokerForTests, command: CommandLine
) -> None:
    topic, collector, group = await topic_of(shared_broker), MessageCollector(), fresh("group")

    async def handle(message: Received) -> Retry:
        collector.put(message)
        return Retry(delay_level=1)

    consumer = PushConsumer(shared_broker.namesrv, group=group, start="earliest", handler=handle)
    consumer.subscribe(topic)
    sent = await shared_broker.aio.send(topic, b"fails")
    async with consumer:
        await collector.until_count(1)
        await shared_broker.aio.wait_for_messages("SCHEDULE_TOPIC_XXXX", 1, timeout_s=PATIENCE_S)
    await shared_broker.aio.wait_for_messages(f"%RETRY%{group}", 1, timeout_s=PATIENCE_S)
    async with Admin(shared_broker.namesrv) as admin:
        await admin.groups.delete(group, offsets=True)
        await admin.offsets.commit(group, sent.queue, 1)
    verdict, why = await verdict_of(command, sent.message_id, topic, group)
    assert verdict == "retry"
    assert why == "in retry 1 of 16, which is due; the group has no offset in its retry topic yet"


async def test_retries_and_dead_letters_are_explained(shared_broker: BrokerForTests, command: CommandLine) -> None:
    topic, collector, group = await topic_of(shared_broker), MessageCollector(), fresh("group")
    is_hopeless = False

    async def handle(message: Received) -> Retry:
        collector.put(message)
        return Retry(delay_level=-1) if is_hopeless else Retry(delay_level=1)

    consumer = PushConsumer(shared_broker.namesrv, group=group, start="earliest", handler=handle)
    consumer.subscribe(topic)
    sent = await shared_broker.aio.send(topic, b"fails")
    async with consumer:
        await collector.until_count(2)
        verdict, why = await verdict_of(command, sent.message_id, topic, group)
        assert verdict == "retry"
        assert "of 16" in why
        is_hopeless = True
        async with asyncio.timeout(PATIENCE_S):
            while (await verdict_of(command, sent.message_id, topic, group))[0] != "dead letter":
                pass
