"""Message traces: their text, and how a producer sends them."""

import asyncio

from ariane.client.core.instance import Instance
from ariane.client.core.trace_format import (
    ContextCode,
    Trace,
    TraceKind,
    after_consumption,
    before_consumption,
    published,
    transaction_ended,
)
from ariane.client.producer.producer import Producer
from ariane.client.producer.tracing import Tracer
from ariane.client.producer.transactional import COMMIT, TransactionProducer
from ariane.client.settings import ClientSettings
from ariane.testing import FakeClock
from ariane.wire.codes import RequestCode
from ariane.wire.compression import decompress
from ariane.wire.properties import decode_properties
from ariane.wire.requests.send import SendResponse
from tests.client.scripted_broker import Cluster, cluster, stored

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


def seen(trace: Trace) -> str:
    return trace.text.replace("\x01", "|").replace("\x02", "$")


# What Apache's TraceDataEncoder of 4.9.8 prints for the same values.


def test_a_published_message_is_written_as_java_does() -> None:
    trace = published(
        timestamp_ms=1700000000000, region="DefaultRegion", group="G", topic="T", message_id="ID1", tags=None,
        keys=["k1", "k2"], store_host="127.0.0.1:10911", body_length=5, cost_ms=3, kind=TraceKind.NORMAL,
        offset_message_id="OFF1", success=True,
    )  # fmt: skip
    assert seen(trace) == "Pub|1700000000000|DefaultRegion|G|T|ID1|null|k1 k2|127.0.0.1:10911|5|3|0|OFF1|true$"
    assert trace.keys == {"ID1", "k1", "k2"}


def test_consumption_is_written_as_java_does() -> None:
    before = before_consumption(
        timestamp_ms=1700000000000, region="DefaultRegion", group="G", request_id="REQ", message_id="ID1", retries=0,
        keys=["k1", "k2"],
    )  # fmt: skip
    assert seen(before) == "SubBefore|1700000000000|DefaultRegion|G|REQ|ID1|0|k1 k2$"
    after = after_consumption(
        timestamp_ms=1700000000000, group="G", request_id="REQ", message_id="ID1", cost_ms=3, success=True,
        keys=["k1", "k2"], context_code=ContextCode.SUCCESS,
    )  # fmt: skip
    assert seen(after) == "SubAfter|REQ|ID1|3|true|k1 k2|0|1700000000000|G$"


def test_the_end_of_a_transaction_is_written_as_java_does() -> None:
    trace = transaction_ended(
        timestamp_ms=1700000000000, region="DefaultRegion", group="G", topic="T", message_id="ID1", tags=None,
        keys=["k1", "k2"], store_host="127.0.0.1:10911", transaction_id="TX", state="COMMIT_MESSAGE", from_check=False,
    )  # fmt: skip
    expected = (
        "EndTransaction|1700000000000|DefaultRegion|G|T|ID1|null|k1 k2|127.0.0.1:10911|2|TX|COMMIT_MESSAGE|false$"
    )
    assert seen(trace) == expected


def traced(servers: Cluster) -> list[str]:
    """The records that reached the trace topic."""
    bodies = [
        decompress(request.body, request.sys_flag, 1 << 20)
        for request in servers.broker.sends()
        if request.topic == TRACE_TOPIC
    ]
    return [record for body in bodies for record in body.decode().split("\x02") if record]


async def test_what_a_producer_sends_is_traced() -> None:
    async with cluster("T", TRACE_TOPIC) as servers:
        async with Producer(servers.nameserver, group="pg", trace=True) as sender:
            result = await sender.send("T", b"hello", tags="A", keys=["k1"])
            await sender.send("T", b"hello", delay_level=2)
    first, second = (record.split("\x01") for record in traced(servers))
    assert first[0] == "Pub"
    assert first[2:9] == ["DefaultRegion", "pg", "T", result.message_id, "A", "k1", servers.broker.address]
    assert (first[9], first[11:]) == ("5", ["0", result.offset_message_id, "true"])
    assert second[11] == "3"
    (request,) = [request for request in servers.broker.sends() if request.topic == TRACE_TOPIC]
    assert request.producer_group == "_INNER_TRACE_PRODUCER-pg-PRODUCE"
    assert {result.message_id, "k1"} <= set(decode_properties((request.properties or "").encode())["KEYS"].split(" "))


async def test_a_transaction_leaves_two_records() -> None:
    async with cluster("T", TRACE_TOPIC) as servers:
        async with TransactionProducer(
            servers.nameserver, group="tx", trace=True, check=lambda message: COMMIT
        ) as sender:
            await sender.send_in_transaction("T", b"x", execute=lambda message, arg: COMMIT)
    half, end = (record.split("\x01") for record in traced(servers))
    assert (half[0], half[11]) == ("Pub", "1")
    assert (end[0], end[-2:]) == ("EndTransaction", ["COMMIT_MESSAGE", "false"])


async def test_a_broker_with_traces_off_gets_none() -> None:
    async with cluster("T", TRACE_TOPIC) as servers:
        async with Producer(servers.nameserver, group="pg", trace=True) as sender:
            servers.broker.script.append(
                lambda command: SendResponse(
                    msg_id="7F", queue_id=0, queue_offset=stored(command).queue_offset, trace_on=False
                )
            )
            await sender.send("T", b"hello")
    assert traced(servers) == []


def note(number: int) -> Trace:
    return Trace(f"Pub\x01{number}\x02", frozenset({f"key-{number}"}))


async def test_traces_are_sent_twice_a_second_a_hundred_at_a_time() -> None:
    clock = FakeClock()
    async with cluster(TRACE_TOPIC) as servers:
        async with Instance.open(ClientSettings(nameservers=servers.nameserver), clock=clock) as instance:
            async with Tracer.open(instance, "cg", "CONSUME") as tracer:
                for number in range(250):
                    tracer.add(note(number))
                await clock.advance(0.5)
                await servers.broker.wait_for_request(RequestCode.SEND_MESSAGE_V2, 3)
    assert traced(servers) == [f"Pub\x01{number}" for number in range(250)]


async def test_too_many_traces_are_lost_and_counted() -> None:
    async with cluster(TRACE_TOPIC) as servers:
        async with Instance.open(ClientSettings(nameservers=servers.nameserver), clock=FakeClock()) as instance:
            async with Tracer.open(instance, "cg", "CONSUME") as tracer:
                for number in range(3000):
                    tracer.add(note(number))
                assert tracer.lost == 3000 - 2048
    assert len(traced(servers)) == 2048


async def test_traces_without_a_trace_topic_do_not_affect_the_producer() -> None:
    async with cluster("T") as servers:
        async with Producer(servers.nameserver, group="pg", trace=True) as sender:
            results = await asyncio.gather(*(sender.send("T", b"x") for _ in range(5)))
    assert all(result.is_ok for result in results)
