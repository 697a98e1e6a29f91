"""Pulls that are asked before the answer to the last one is read: nothing is skipped, doubled or left behind."""

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
from tests.client.cluster_fixture import Basket, until
from tests.client.consumer.scripted_queue import TOPIC, Script, ScriptedQueue, found, refusal, scripted_queue
from tests.client.consumer.test_push_broker_faults import consumer_of


def with_more_behind(script: Script) -> Script:
    """The same answer, from a queue that goes on."""

    def response(request: Pull) -> PullResponse:
        given = script(request)
        assert isinstance(given, PullResponse)
        return replace(given, max_offset=QueueOffset(1000))

    return response


def silence(_ask: Pull) -> None:
    """No answer, for ever."""


def cut_short(records: bytes) -> bytes:
    return records[:-3]


def asked(queue: ScriptedQueue) -> list[int]:
    return [request.queue_offset for request in queue.heard_of(RequestCode.PULL_MESSAGE) if request.topic == TOPIC]


def calls_in_flight(consumer: PushConsumer) -> int:
    instance = consumer._running[0]
    (address,) = instance.routes.addresses()
    connection = instance.ready(address)
    assert connection is not None
    return connection.calls_in_flight


async def test_the_next_pull_leaves_before_an_answer_is_read() -> None:
    queue, basket = ScriptedQueue(), Basket()
    queue.pulls.append(with_more_behind(found(b"a", b"b", spoil=cut_short)))
    queue.pulls.extend([found(b"c", at=2), found(b"a", b"b", b"c")])
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, basket.put):
        await basket.until_count(3)
    assert asked(queue)[:3] == [0, 2, 0]
    assert sorted(basket.bodies) == [b"a", b"b", b"c"], "what was asked ahead of an answer that is no good is not taken"


async def test_at_the_end_of_a_queue_no_pull_is_asked_ahead() -> None:
    queue, basket = ScriptedQueue(), Basket()
    queue.pulls.extend([found(b"a", b"b", spoil=cut_short), found(b"a", b"b")])
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, basket.put):
        await basket.until_count(2)
    assert asked(queue)[:2] == [0, 0]


async def test_a_pull_that_nobody_will_look_at_is_forgotten() -> None:
    queue, basket = ScriptedQueue(), Basket()
    queue.pulls.extend([with_more_behind(found(b"a", spoil=cut_short)), silence, found(b"a")])
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, basket.put) as consumer:
        await basket.until_count(1)
        # The queue's own next pull, and that of the retries: not the one in the middle.
        await until(lambda: len(asked(queue)) == 4 and calls_in_flight(consumer) == 2)
    assert asked(queue) == [0, 1, 0, 1]


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_backlog_is_read_in_order_and_once(ordered: bool) -> None:
    queue, basket = ScriptedQueue(), Basket()
    responses: list[Any] = [found(b"%02d" % number, b"%02d" % (number + 1), at=number) for number in range(0, 40, 2)]
    queue.pulls.extend([*map(with_more_behind, responses[:-1]), responses[-1]])

    async def handle(message: Received) -> None:
        basket.put(message)

    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, handle, ordered=ordered):
        await basket.until_count(40)
    assert basket.bodies == [b"%02d" % number for number in range(40)]
    assert asked(queue)[:21] == list(range(0, 41, 2))
    assert queue.heard_of(RequestCode.UPDATE_CONSUMER_OFFSET)[-1].commit_offset == 40


async def test_a_pull_asked_ahead_that_is_refused_is_asked_again() -> None:
    queue, basket = ScriptedQueue(), Basket()
    queue.pulls.append(with_more_behind(found(b"a")))
    queue.pulls.extend([refusal(ResponseCode.SYSTEM_ERROR), found(b"b", at=1)])
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, basket.put):
        await basket.until_count(2)
    assert (basket.bodies, asked(queue)[:3]) == ([b"a", b"b"], [0, 1, 1])


async def test_what_an_unread_answer_may_bring_counts_for_the_limits() -> None:
    queue, basket, may_finish = ScriptedQueue(), Basket(), asyncio.Event()

    async def handle(message: Received) -> None:
        basket.put(message)
        await may_finish.wait()

    queue.pulls.extend([with_more_behind(found(b"a", b"b", b"c")), found(b"d", at=3)])
    async with scripted_queue(queue) as nameserver:
        async with consumer_of(nameserver, handle, limits=FlowLimits(count=2)):
            await basket.until_count(3)
            assert asked(queue) == [0]
            may_finish.set()
            await basket.until_count(4)
    assert basket.bodies == [b"a", b"b", b"c", b"d"]


async def test_a_consumer_may_close_while_a_pull_is_asked_ahead() -> None:
    queue, basket = ScriptedQueue(), Basket()
    queue.pulls.extend([with_more_behind(found(b"a")), silence])
    async with scripted_queue(queue) as nameserver, consumer_of(nameserver, basket.put):
        await basket.until_count(1)
        await until(lambda: asked(queue) == [0, 1])
    assert queue.heard_of(RequestCode.UPDATE_CONSUMER_OFFSET)[-1].commit_offset == 1
