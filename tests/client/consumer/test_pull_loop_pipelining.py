"""Pulls that are sent before the previous response is decoded: no message is skipped, duplicated or lost."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from ariane.client.consumer.message import Received
from ariane.client.consumer.pull_loop import FlowLimits
from ariane.client.consumer.push import PushConsumer
from ariane.model.ids import QueueOffset
from ariane.wire.codes import RequestCode, ResponseCode
from ariane.wire.requests.pull import Pull, PullResponse
from tests.client.cluster_fixture import MessageCollector, until
from tests.client.consumer.scripted_queue import TOPIC, Script, ScriptedQueue, found, refusal, scripted_queue
from tests.client.consumer.test_push_broker_faults import consumer_of


def with_more_behind(script: Script) -> Script:
    """The same response, from a queue that has more messages."""

    def response(request: Pull) -> PullResponse:
        given = script(request)
        assert isinstance(given, PullResponse)
        return replace(given, max_offset=QueueOffset(1000))

    return response


def silence(_request: Pull) -> None:
    """Never a response."""


def cut_short(records: bytes) -> bytes:
    return records[:-3]


def pulled_offsets(queue: ScriptedQueue) -> list[int]:
    return [request.queue_offset for request in queue.received_of(RequestCode.PULL_MESSAGE) if request.topic == TOPIC]


def calls_in_flight(consumer: PushConsumer) -> int:
    instance = consumer._running[0]
    (address,) = instance.routes.addresses()
    connection = instance.ready(address)
    assert connection is not None
    return connection.calls_in_flight


async def test_the_next_pull_is_sent_before_a_response_is_decoded() -> None:
    queue, collector = ScriptedQueue(), MessageCollector()
    queue.pulls.append(with_more_behind(found(b"a", b"b", spoil=cut_short)))
    queue.pulls.extend([found(b"c", at=2), found(b"a", b"b", b"c")])
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, collector.put):
        await collector.until_count(3)
    assert pulled_offsets(queue)[:3] == [0, 2, 0]
    assert sorted(collector.bodies) == [b"a", b"b", b"c"], (
        "what was asked ahead of an answer that is no good is not taken"
    )


async def test_at_the_end_of_a_queue_no_pull_is_sent_ahead() -> None:
    queue, collector = ScriptedQueue(), MessageCollector()
    queue.pulls.extend([found(b"a", b"b", spoil=cut_short), found(b"a", b"b")])
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, collector.put):
        await collector.until_count(2)
    assert pulled_offsets(queue)[:2] == [0, 0]


async def test_a_pull_that_will_not_be_awaited_is_forgotten() -> None:
    queue, collector = ScriptedQueue(), MessageCollector()
    queue.pulls.extend([with_more_behind(found(b"a", spoil=cut_short)), silence, found(b"a")])
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, collector.put) as consumer:
        await collector.until_count(1)
        # The queue's own next pull, and that of the retries: not the one in the middle.
        await until(lambda: len(pulled_offsets(queue)) == 4 and calls_in_flight(consumer) == 2)
    assert pulled_offsets(queue) == [0, 1, 0, 1]


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_backlog_is_read_in_order_and_once(ordered: bool) -> None:
    queue, collector = ScriptedQueue(), MessageCollector()
    responses: list[Any] = [found(b"%02d" % number, b"%02d" % (number + 1), at=number) for number in range(0, 40, 2)]
    queue.pulls.extend([*map(with_more_behind, responses[:-1]), responses[-1]])

    async def handle(message: Received) -> None:
        collector.put(message)

    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, handle, ordered=ordered):
        await collector.until_count(40)
    assert collector.bodies == [b"%02d" % number for number in range(40)]
    assert pulled_offsets(queue)[:21] == list(range(0, 41, 2))
    assert queue.received_of(RequestCode.UPDATE_CONSUMER_OFFSET)[-1].commit_offset == 40


async def test_a_pull_sent_ahead_that_is_refused_is_repeated() -> None:
    queue, collector = ScriptedQueue(), MessageCollector()
    queue.pulls.append(with_more_behind(found(b"a")))
    queue.pulls.extend([refusal(ResponseCode.SYSTEM_ERROR), found(b"b", at=1)])
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, collector.put):
        await collector.until_count(2)
    assert (collector.bodies, pulled_offsets(queue)[:3]) == ([b"a", b"b"], [0, 1, 1])


async def test_an_undecoded_response_counts_for_the_limits() -> None:
    queue, collector, may_finish = ScriptedQueue(), MessageCollector(), asyncio.Event()

    async def handle(message: Received) -> None:
        collector.put(message)
        await may_finish.wait()

    queue.pulls.extend([with_more_behind(found(b"a", b"b", b"c")), found(b"d", at=3)])
    async with scripted_queue(queue) as nameserver:
        async with consumer_of(nameserver, handle, limits=FlowLimits(count=2)):
            await collector.until_count(3)
            assert pulled_offsets(queue) == [0]
            may_finish.set()
            await collector.until_count(4)
    assert collector.bodies == [b"a", b"b", b"c", b"d"]


async def test_a_consumer_may_close_while_a_pull_is_sent_ahead() -> None:
    queue, collector = ScriptedQueue(), MessageCollector()
    queue.pulls.extend([with_more_behind(found(b"a")), silence])
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, collector.put):
        await collector.until_count(1)
        await until(lambda: pulled_offsets(queue) == [0, 1])
    assert queue.received_of(RequestCode.UPDATE_CONSUMER_OFFSET)[-1].commit_offset == 1
