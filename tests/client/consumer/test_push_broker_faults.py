"""The push consumer with scripted brokers that respond with errors, wrong offsets or damaged data."""

import asyncio
from collections import deque
from typing import Any

from ariane.client.consumer.message import Received
from ariane.client.consumer.pull_loop import FlowLimits
from ariane.client.consumer.push import PushConsumer
from ariane.errors import RecordError
from ariane.model.group import ConsumeType
from ariane.testing import FakeClock
from ariane.wire.codes import RequestCode, ResponseCode
from ariane.wire.fields import Response
from ariane.wire.requests.pull import PullSysFlag
from tests.client.cluster_fixture import MessageCollector, until
from tests.client.consumer.scripted_queue import GROUP, TOPIC, ScriptedQueue, found, nothing, refusal, scripted_queue


def consumer_of(nameserver: str, handler: Any, **options: Any) -> PushConsumer:
    consumer = PushConsumer(nameserver, **{"group": GROUP, "start": "earliest", "handler": handler, **options})
    consumer.subscribe(TOPIC)
    return consumer


async def test_a_moved_offset_is_followed_and_stored() -> None:
    queue, collector = ScriptedQueue(stored=7), MessageCollector()
    queue.pulls.extend([nothing(ResponseCode.PULL_OFFSET_MOVED, at=100), found(b"a", at=100)])
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, collector.put):
        await collector.until_count(1)
        stored = await queue.wait_for_request(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert [request.queue_offset for request in queue.received_of(RequestCode.PULL_MESSAGE) if request.topic == TOPIC][
        :2
    ] == [7, 100]
    assert stored[0].commit_offset == 100


async def test_pending_messages_are_finished_before_an_offset_is_corrected() -> None:
    queue, collector, may_fail = ScriptedQueue(), MessageCollector(), asyncio.Event()

    async def handle(message: Received) -> bool:
        collector.put(message)
        await may_fail.wait()
        return False

    queue.pulls.extend([found(b"a"), nothing(ResponseCode.PULL_OFFSET_MOVED, at=100), nothing(at=100)])
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, handle):
        await collector.until_count(1)
        await until(lambda: len(queue.pulls) == 1)  # the second answer, which moves the offset, is on its way
        may_fail.set()
        (back,) = await queue.wait_for_request(RequestCode.CONSUMER_SEND_MSG_BACK)
        moved = await queue.wait_for_request(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert back.offset == 0
    assert moved[-1].commit_offset == 100


async def test_a_broker_that_lost_the_subscription_gets_a_heartbeat() -> None:
    queue, collector = ScriptedQueue(), MessageCollector()
    queue.pulls.extend([refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST), found(b"a")])
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, collector.put):
        await collector.until_count(1)
    codes = [code for code, _ in queue.received]
    first_pull = codes.index(RequestCode.PULL_MESSAGE)
    assert RequestCode.HEART_BEAT in codes[first_pull:]


async def test_unreadable_records_are_pulled_again() -> None:
    queue, collector = ScriptedQueue(), MessageCollector()
    queue.pulls.extend([found(b"a", spoil=lambda data: data[:-3]), found(b"a", b"b")])
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, collector.put):
        await collector.until_count(2)
    assert collector.bodies == [b"a", b"b"]


async def test_messages_outside_the_requested_range_are_refused() -> None:
    queue, collector = ScriptedQueue(stored=50), MessageCollector()
    queue.pulls.extend([found(b"stray", at=10), found(b"right", at=50)])
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, collector.put):
        await collector.until_count(1)
    assert collector.bodies == [b"right"]


async def test_a_damaged_body_is_a_dead_letter_and_never_reaches_the_handler() -> None:
    queue, collector = ScriptedQueue(), MessageCollector()
    errors: list[BaseException] = []
    queue.pulls.append(found(b"first", b"spoilt", b"last", spoil=lambda data: data.replace(b"spoilt", b"spoiIt")))
    async with scripted_queue(queue) as nameserver:
        consumer = consumer_of(nameserver, collector.put, on_error=lambda _message, error: errors.append(error))
        async with consumer:
            await collector.until_count(2)
            (back,) = await queue.wait_for_request(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert sorted(collector.bodies) == [b"first", b"last"]
    assert back.delay_level == -1
    assert isinstance(errors[0], RecordError)


async def test_the_suggested_slave_is_read_and_never_gets_an_offset() -> None:
    master, slave, collector = ScriptedQueue(stored=5), ScriptedQueue(), MessageCollector()
    master.pulls.append(found(b"a", at=5, suggest=1))
    slave.pulls.append(found(b"b", at=6, suggest=1))
    async with scripted_queue(master, slave) as nameserver, consumer_of(nameserver, collector.put):
        await collector.until_count(2)
        asked = [
            request for request in await slave.wait_for_request(RequestCode.PULL_MESSAGE, 2) if request.topic == TOPIC
        ]
    assert collector.bodies == [b"a", b"b"]
    assert all(not request.sys_flag & PullSysFlag.COMMIT_OFFSET for request in asked)


async def test_after_a_slave_is_down_the_master_is_read() -> None:
    master, slave, collector = ScriptedQueue(), ScriptedQueue(), MessageCollector()
    master.pulls.extend([found(b"a", suggest=1), found(b"b", at=1)])
    async with scripted_queue(master, slave) as nameserver, consumer_of(nameserver, collector.put):
        await slave.wait_for_request(RequestCode.PULL_MESSAGE)
        for connection in slave.connections:
            connection.abort()
        await collector.until_count(2)
    assert collector.bodies == [b"a", b"b"]


async def test_a_message_that_its_broker_does_not_accept_back_goes_to_the_retry_topic() -> None:
    queue, collector = ScriptedQueue(), MessageCollector()
    queue.responses[RequestCode.CONSUMER_SEND_MSG_BACK] = Response(code=ResponseCode.SYSTEM_ERROR, remark="no")

    async def refuse(message: Received) -> bool:
        collector.put(message)
        return False

    queue.pulls.append(found(b"a"))
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, refuse):
        (copy,) = await queue.wait_for_request(RequestCode.SEND_MESSAGE_V2)
    assert (copy.topic, copy.body, copy.reconsume_times, copy.max_reconsume_times) == (f"%RETRY%{GROUP}", b"a", 1, 16)
    properties = dict(pair.split("\x01") for pair in copy.properties.rstrip("\x02").split("\x02"))
    assert (properties["RETRY_TOPIC"], properties["DELAY"]) == (TOPIC, "3")
    assert properties["ORIGIN_MESSAGE_ID"] == collector.messages[0].offset_message_id


async def test_a_message_that_no_broker_accepts_back_is_retried_locally() -> None:
    queue, collector, clock = ScriptedQueue(), MessageCollector(), FakeClock()
    no = Response(code=ResponseCode.SYSTEM_ERROR, remark="no")
    queue.responses |= {RequestCode.CONSUMER_SEND_MSG_BACK: no, RequestCode.SEND_MESSAGE_V2: no}

    async def refuse_once(message: Received) -> bool:
        collector.put(message)
        return message.attempt > 1

    queue.pulls.append(found(b"a", b"b"))
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, refuse_once, clock=clock) as consumer:
        await collector.until_count(2)
        await queue.wait_for_request(RequestCode.SEND_MESSAGE_V2, 2)
        assert consumer._running[1].offsets.of(TOPIC).popitem()[1] == 0, "unfinished, so not committed"
        while len(collector.messages) < 4:
            await clock.advance(1.0)
            await asyncio.sleep(0.001)
    assert [message.attempt for message in collector.messages] == [1, 1, 2, 2]
    assert queue.received_of(RequestCode.UPDATE_CONSUMER_OFFSET)[-1].commit_offset == 2


async def test_results_of_a_revoked_queue_are_discarded() -> None:
    queue, collector, may_finish = ScriptedQueue(), MessageCollector(), asyncio.Event()

    async def handle(message: Received) -> bool:
        collector.put(message)
        await may_finish.wait()
        return False

    queue.pulls.append(found(b"a"))
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, handle) as consumer:
        await collector.until_count(1)
        queue.members = ["0.0.0.0@before-us", consumer.client_id]
        consumer._running[1].member.rebalance_soon()
        await until(lambda: not consumer.queues)
        may_finish.set()
        await until(lambda: TOPIC in consumer.counts)
    assert queue.received_of(RequestCode.CONSUMER_SEND_MSG_BACK) == []
    assert all(request.commit_offset == 0 for request in queue.received_of(RequestCode.UPDATE_CONSUMER_OFFSET))


async def test_pulling_stops_at_the_flow_limit() -> None:
    queue, collector, may_finish = ScriptedQueue(), MessageCollector(), asyncio.Event()

    async def handle(message: Received) -> None:
        collector.put(message)
        await may_finish.wait()

    queue.pulls.extend([found(b"a", b"b", b"c"), found(b"d", at=3)])
    async with scripted_queue(queue) as nameserver:
        async with consumer_of(nameserver, handle, limits=FlowLimits(count=2)):
            await collector.until_count(3)
            assert len(queue.pulls) == 1
            may_finish.set()
            await collector.until_count(4)
    assert collector.bodies == [b"a", b"b", b"c", b"d"]


async def test_the_heartbeat_has_the_consumer_type() -> None:
    queue = ScriptedQueue()
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, print):
        beat = (await queue.wait_for_request(RequestCode.HEART_BEAT))[-1].body
        await queue.wait_for_request(RequestCode.PULL_MESSAGE)
    (data,) = beat.consumer_data_set
    assert (data.group_name, data.consume_type) == (GROUP, ConsumeType.CONSUME_PASSIVELY)
    assert {subscription.topic for subscription in data.subscription_data_set} == {TOPIC, f"%RETRY%{GROUP}"}
    assert queue.received_of(RequestCode.UNREGISTER_CLIENT)[-1].consumer_group == GROUP


async def test_a_broker_that_never_holds_a_pull_does_not_cause_a_busy_loop() -> None:
    queue, clock = ScriptedQueue(pulls=deque([nothing()] * 100)), FakeClock()
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, print, clock=clock):
        await queue.wait_for_request(RequestCode.PULL_MESSAGE)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(queue.pulls) >= 98
