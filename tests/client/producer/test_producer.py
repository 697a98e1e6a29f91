"""The producer against scripted brokers: results, retries, errors, batches."""

import asyncio
import os
from datetime import UTC, datetime

import pytest

from ariane.client.producer.producer import Producer
from ariane.client.producer.result import SendStatus
from ariane.errors import (
    ClientClosed,
    MessageRejected,
    NoRoute,
    RequestFailed,
    SendFailed,
    SettingsError,
    TooManyInFlight,
)
from ariane.model.message import Message
from ariane.model.route import MessageQueue
from ariane.model.topic import TopicConfig
from ariane.wire.codes import RequestCode, ResponseCode
from ariane.wire.compression import decompress
from ariane.wire.properties import decode_properties
from ariane.wire.requests.send import Send
from tests.client.scripted_broker import Cluster, ScriptedBroker, cluster, refusal, silence, stored


def properties_of(request: Send) -> dict[str, str]:
    return decode_properties((request.properties or "").encode())


def producer(servers: Cluster, **options: object) -> Producer:
    return Producer(servers.nameserver, group="pg", **options)  # type: ignore[arg-type]


async def test_a_send_result_has_queue_and_offset() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        result = await sender.send(Message(topic="T", body=b"hello", tags="A", keys=["k1", "k2"]))
    (request,) = servers.broker.sends()
    assert (request.topic, request.producer_group, request.body, request.default_topic) == (
        "T",
        "pg",
        b"hello",
        "TBW102",
    )
    properties = properties_of(request)
    assert properties == {"KEYS": "k1 k2", "TAGS": "A", "WAIT": "true", "UNIQ_KEY": result.message_id}
    assert result.status is SendStatus.SEND_OK
    assert result.queue == MessageQueue(topic="T", broker_name="broker-a", queue_id=request.queue_id)
    assert (result.queue_offset, result.offset_message_id) == (7, "7F00000100002A9F0000000000000000")


async def test_a_topic_and_a_body_are_enough() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        await sender.send("T", b"hello", tags="A", properties={"colour": "red"}, wait_stored=False, flag=9)
    (request,) = servers.broker.sends()
    assert request.flag == 9
    assert {"TAGS": "A", "colour": "red", "WAIT": "false"}.items() <= properties_of(request).items()


async def test_a_field_that_messages_do_not_have_is_refused() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        with pytest.raises(MessageRejected, match="tag"):
            await sender.send("T", b"hello", tag="A")  # type: ignore[call-arg]
        with pytest.raises(MessageRejected, match="complete"):
            await sender.send(Message(topic="T", body=b"x"), b"y")
        with pytest.raises(MessageRejected, match="empty"):
            await sender.send("T")


async def test_a_delay_and_a_delivery_time_become_properties() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        await sender.send("T", b"x", delay_level=3)
        await sender.send("T", b"x", deliver_at=datetime(2030, 1, 1, tzinfo=UTC))
        await sender.send("T", b"x", deliver_at=1_893_456_000_001)
    levels, moments, numbers = map(properties_of, servers.broker.sends())
    assert levels["DELAY"] == "3"
    assert moments["TIMER_DELIVER_MS"] == "1893456000000"
    assert numbers["TIMER_DELIVER_MS"] == "1893456000001"


async def test_a_large_body_is_compressed_when_that_helps() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        bodies = [b"x" * 4095, b"x" * 4096, b"x" * 300_000, bytes(range(256)) * 2, os.urandom(5000)]
        for body in bodies:
            await sender.send("T", body)
    asks = servers.broker.sends()
    assert [request.sys_flag for request in asks] == [0, 1, 1, 0, 0]
    assert [decompress(request.body, request.sys_flag, 1 << 20) for request in asks] == bodies
    assert len(asks[2].body) < 10_000


async def test_queues_are_chosen_in_turn() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        for _ in range(8):
            await sender.send("T", b"x")
    asked = [request.queue_id for request in servers.broker.sends()]
    assert asked[:4] == asked[4:]
    assert sorted(asked[:4]) == [0, 1, 2, 3]


async def test_a_sharding_key_keeps_its_queue() -> None:
    async with cluster("T", brokers=2) as servers, producer(servers) as sender:
        results = [await sender.send("T", b"x", sharding_key="user-7") for _ in range(5)]
        assert len({result.queue for result in results}) == 1
    (broker,) = [broker for broker in servers.brokers if broker.sends()]
    assert properties_of(broker.sends()[0])["__SHARDINGKEY"] == "user-7"


async def test_a_queue_may_be_given_or_chosen_by_a_function() -> None:
    async with cluster("T", brokers=2) as servers, producer(servers) as sender:
        queues = await sender.queues("T")
        assert len(queues) == 8
        assert (await sender.send("T", b"x", queue=queues[5])).queue == queues[5]
        assert (await sender.send("T", b"x", queue=lambda given, message: given[-1])).queue == queues[-1]
        with pytest.raises(MessageRejected, match="must return one of the queues"):
            await sender.send("T", b"x", queue=lambda given, message: None)  # type: ignore[arg-type,return-value]


async def test_stored_less_safely_is_still_a_result() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        servers.broker.script.append(lambda command: stored(command, code=ResponseCode.FLUSH_DISK_TIMEOUT))
        result = await sender.send("T", b"x")
        assert result.status is SendStatus.FLUSH_DISK_TIMEOUT
        assert not result.is_ok


async def test_stored_less_safely_may_count_as_a_failure() -> None:
    async with cluster("T", brokers=2) as servers, producer(servers, retry_when_not_ok=True) as sender:
        for broker in servers.brokers:
            broker.script.append(lambda command: stored(command, code=ResponseCode.SLAVE_NOT_AVAILABLE))
        assert (await sender.send("T", b"x")).status is SendStatus.SEND_OK
        assert sorted(len(broker.sends()) for broker in servers.brokers) == [1, 2]


# --- failures


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205])
async def test_a_retriable_refusal_is_retried_at_another_broker_with_the_same_key(code: int) -> None:
    async with cluster("T", brokers=2) as servers, producer(servers) as sender:
        first, second = await _fail_first(servers, sender, code)
    assert properties_of(first)["UNIQ_KEY"] == properties_of(second)["UNIQ_KEY"]


async def _fail_first(servers: Cluster, sender: Producer, code: int) -> tuple[Send, Send]:
    """The broker that gets the first attempt refuses."""
    refused: list[ScriptedBroker] = []

    def once(broker: ScriptedBroker) -> None:
        def script(command: object) -> object:
            if refused:
                return stored(command)  # type: ignore[arg-type]
            refused.append(broker)
            return refusal(ResponseCode(code))(command)  # type: ignore[arg-type]

        broker.script.append(script)  # type: ignore[arg-type]

    for broker in servers.brokers:
        once(broker)
    result = await sender.send("T", b"x")
    assert result.queue.broker_name != refused[0].name
    (other,) = [broker for broker in servers.brokers if broker is not refused[0]]
    return refused[0].sends()[0], other.sends()[0]


async def test_a_message_that_the_broker_calls_illegal_is_rejected_immediately() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        servers.broker.script.append(refusal(ResponseCode.MESSAGE_ILLEGAL, "the message is too large"))
        with pytest.raises(MessageRejected, match="too large"):
            await sender.send("T", b"x")
        assert len(servers.broker.sends()) == 1


async def test_a_refusal_that_all_brokers_share_is_not_retried() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        servers.broker.script.append(refusal(ResponseCode.VERSION_NOT_SUPPORTED, "too old"))
        with pytest.raises(RequestFailed, match="too old"):
            await sender.send("T", b"x")
        assert len(servers.broker.sends()) == 1


async def test_after_all_attempts_the_error_lists_them() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        servers.broker.script.extend([refusal(ResponseCode.SYSTEM_ERROR, f"no {number}") for number in range(3)])
        with pytest.raises(SendFailed, match=r"3 attempts failed.*no 0.*no 1.*no 2.*may have been stored"):
            await sender.send("T", b"x")


async def test_a_broker_that_is_down_is_skipped() -> None:
    async with cluster("T", brokers=2) as servers, producer(servers) as sender:
        await servers.brokers[0].stop()
        for _ in range(4):
            assert (await sender.send("T", b"x")).queue.broker_name == "broker-b"


async def test_a_broker_that_does_not_respond_leaves_time_for_another() -> None:
    async with cluster("T", brokers=2) as servers, producer(servers, send_timeout_s=0.5) as sender:
        servers.brokers[0].script.append(silence)
        for _ in range(8):
            await sender.send("T", b"x")
        assert servers.brokers[0].sends()


async def test_with_latency_fault_a_failed_broker_is_avoided() -> None:
    async with cluster("T", brokers=2) as servers, producer(servers, latency_fault=True) as sender:
        servers.brokers[0].script.extend([refusal(ResponseCode.SYSTEM_ERROR)] * 9)
        for _ in range(16):
            assert (await sender.send("T", b"x")).queue.broker_name == "broker-b"
        assert len(servers.brokers[0].sends()) == 1


async def test_if_all_brokers_are_avoided_one_is_used_nevertheless() -> None:
    async with cluster("T") as servers, producer(servers, latency_fault=True) as sender:
        servers.broker.script.append(refusal(ResponseCode.SYSTEM_ERROR))
        assert (await sender.send("T", b"x")).is_ok


async def test_the_timeout_includes_all_attempts() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        servers.broker.script.extend([silence] * 3)
        with pytest.raises(SendFailed):
            await sender.send("T", b"x", timeout_s=0.05)


async def test_after_an_unreadable_response_the_outcome_is_unknown() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        servers.broker.script.append(refusal(ResponseCode.SUCCESS))  # success, but it does not say where
        with pytest.raises(SendFailed, match=r"response cannot be read.*may have been stored"):
            await sender.send("T", b"x")


async def test_a_topic_without_route_is_created_where_the_template_is() -> None:
    template = TopicConfig(topic_name="TBW102", read_queue_nums=8, write_queue_nums=8, perm=7)
    async with cluster(template) as servers, producer(servers) as sender:
        assert len(await sender.queues("new")) == 4
        await sender.send("new", b"x")
    (request,) = servers.broker.sends()
    assert (request.topic, request.default_topic, request.default_topic_queue_nums) == ("new", "TBW102", 4)


async def test_the_error_for_a_topic_without_route_or_template_has_a_hint() -> None:
    async with cluster("orders") as servers, producer(servers) as sender:
        with pytest.raises(NoRoute, match="similar topics: orders"):
            await sender.send("oders", b"x")


async def test_a_topic_without_write_permission_is_an_error() -> None:
    read_only = TopicConfig(topic_name="T", perm=4)
    async with cluster(read_only) as servers, producer(servers) as sender:
        with pytest.raises(NoRoute, match="no write permission"):
            await sender.send("T", b"x")


# --- without waiting


async def test_a_future_has_the_result() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        results = await asyncio.gather(*(sender.send_nowait("T", b"%d" % number) for number in range(20)))
        assert len({result.message_id for result in results}) == 20


async def test_a_callback_gets_the_result_or_the_error_and_may_fail() -> None:
    calls: list[tuple[object, object]] = []
    async with cluster("T") as servers, producer(servers, retries=0) as sender:
        sender.send_nowait("T", b"x", callback=lambda result, error: calls.append((result, error)))
        sender.send_nowait("no-topic", b"x", callback=lambda result, error: calls.append((result, error)))
        sender.send_nowait("T", b"x", callback=lambda result, error: 1 // 0)  # type: ignore[arg-type]
    assert {(result is None, type(error)) for result, error in calls} == {(False, type(None)), (True, NoRoute)}


async def test_messages_in_flight_are_bounded() -> None:
    async with cluster("T") as servers, producer(servers, in_flight_max=2) as sender:
        futures = [sender.send_nowait("T", b"x") for _ in range(2)]
        with pytest.raises(TooManyInFlight, match="await some"):
            sender.send_nowait("T", b"x")
        await asyncio.gather(*futures)
        await asyncio.sleep(0)
        await sender.send_nowait("T", b"x")


async def test_closing_waits_for_messages_in_flight() -> None:
    async with cluster("T") as servers:
        async with producer(servers) as sender:
            future = sender.send_nowait("T", b"x")
        assert future.result().is_ok


async def test_a_one_way_send_waits_for_nothing() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        await sender.send_oneway("T", b"x", tags="A")
        (command,) = await servers.broker.wait_for_request(RequestCode.SEND_MESSAGE_V2)
        assert command.is_oneway


# --- batches


async def test_a_batch_has_a_result_for_each_message() -> None:
    async with cluster("T") as servers, producer(servers) as sender:
        results = await sender.send_batch([Message(topic="T", body=b"%d" % number, tags="A") for number in range(3)])
    (request,) = servers.broker.sends()
    assert request.is_batch
    assert [result.queue_offset for result in results] == [7, 8, 9]
    assert [result.offset_message_id[-1] for result in results] == ["0", "1", "2"]
    assert len({result.message_id for result in results}) == 3


async def test_a_batch_is_split_by_size_and_by_number() -> None:
    async with cluster("T") as servers, producer(servers, message_bytes_max=10_000) as sender:
        assert len(await sender.send_batch([Message(topic="T", body=b"x" * 3000)] * 7)) == 7
        assert len(await sender.send_batch([Message(topic="T", body=b"x")] * 1001)) == 1001
    assert all(len(request.body) <= 60_000 for request in servers.broker.sends())
    assert [request.is_batch for request in servers.broker.sends()][:3] == [True, True, False]


@pytest.mark.parametrize(
    ("messages", "cause"),
    [
        ([], "empty"),
        ([Message(topic="T", body=b"x"), Message(topic="U", body=b"x")], "one topic"),
        ([Message(topic="T", body=b"x", delay_level=1)], "delayed"),
        ([Message(topic="T", body=b"x", deliver_at=9)], "delayed"),
        ([Message(topic="%RETRY%g", body=b"x")], "retry topic"),
        ([Message(topic="T", body=b"x"), Message(topic="T", body=b"x", wait_stored=False)], "wait_stored"),
        ([Message(topic="T", body=b"")], "empty"),
    ],
)
async def test_an_invalid_batch_is_refused(messages: list[Message], cause: str) -> None:
    async with cluster("T", "U") as servers, producer(servers) as sender:
        with pytest.raises(MessageRejected, match=cause):
            await sender.send_batch(messages)
        assert servers.broker.sends() == []


async def test_a_batch_that_fails_half_way_reports_the_stored_count() -> None:
    async with cluster("T") as servers, producer(servers, retries=0) as sender:
        servers.broker.script.extend([stored, refusal(ResponseCode.SYSTEM_ERROR)])
        with pytest.raises(SendFailed, match="500 of 700 messages were stored"):
            await sender.send_batch([Message(topic="T", body=b"x")] * 700)


# --- life


async def test_a_producer_must_be_started_and_is_closed_once() -> None:
    sender = Producer("127.0.0.1:9876", group="pg")
    with pytest.raises(ClientClosed, match="not started"):
        await sender.send("T", b"x")
    await sender.start()
    with pytest.raises(ClientClosed, match="started before"):
        await sender.start()
    await sender.close()
    await sender.close()
    with pytest.raises(ClientClosed, match="is closed"):
        await sender.send("T", b"x")


async def test_start_and_close_may_come_from_different_tasks() -> None:
    async with cluster("T") as servers:
        sender = producer(servers)
        await asyncio.create_task(sender.start())
        assert (await asyncio.create_task(sender.send("T", b"x"))).is_ok
        await asyncio.create_task(sender.close())
        assert servers.broker.received_of(RequestCode.UNREGISTER_CLIENT)


async def test_a_producer_starts_without_a_nameserver_and_the_first_send_fails() -> None:
    async with Producer("127.0.0.1:1", group="pg") as sender:
        with pytest.raises(NoRoute, match="no nameserver answers"):
            await sender.send("T", b"x")


@pytest.mark.parametrize("group", ["", "a b", "g" * 256])
def test_a_group_must_have_a_legal_name(group: str) -> None:
    with pytest.raises(SettingsError):
        Producer("127.0.0.1:9876", group=group)


def test_an_option_that_producers_do_not_have_is_refused() -> None:
    with pytest.raises(SettingsError, match="retrys"):
        Producer("127.0.0.1:9876", group="pg", retrys=3)  # type: ignore[call-arg]


async def test_an_error_in_the_body_of_the_block_is_not_wrapped() -> None:
    with pytest.raises(ZeroDivisionError):
        async with Producer("127.0.0.1:9876", group="pg"):
            _ = 1 // 0
