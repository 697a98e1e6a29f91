"""Pulls that wait: woken by what they want, by their time, by the broker's end; forgotten with their connection."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ariane.broker.pull.long_polling import PullWaiter
from ariane.errors import RequestFailed
from ariane.testing import FakeClock
from ariane.transport.memory_budget import MemoryBudget
from ariane.wire.codes import ResponseCode
from ariane.wire.exchange import request_command
from ariane.wire.frame import encode_frame
from ariane.wire.record.read import decode_all
from ariane.wire.requests.pull import PullResponse
from tests.broker.in_process_broker import InProcessBroker, a_pull, a_send, in_process_broker, turns
from tests.transport.peers import RawClient, connected, until

SUSPEND = 6  # with the subscription in the pull


async def pull_waiters(broker: InProcessBroker, count: int = 1, **changes: Any) -> "asyncio.Task[PullResponse]":
    task = asyncio.ensure_future(broker.call(a_pull(**{"sys_flag": SUSPEND, **changes})))
    await until(lambda: len(broker.pull_waiters) == count)
    return task


async def test_a_waiting_pull_is_answered_by_the_next_message(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        pull = await pull_waiters(broker)
        await broker.call(a_send(b"at last"))
        response = await pull
        assert response.code == ResponseCode.SUCCESS
        assert [message.body for message in decode_all(response.body)] == [b"at last"]
        assert len(broker.pull_waiters) == 0


async def test_a_burst_is_answered_by_one_read(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker, connected(broker.server) as client:
        pull = await pull_waiters(broker)
        await client.send(b"".join(encode_frame(request_command(a_send(), opaque=n)) for n in range(1, 11)))
        assert len(decode_all((await pull).body)) == 10


async def test_a_message_that_many_wait_for_lets_others_have_their_turn(tmp_path: Path) -> None:
    """The pulls are answered in slices: each here takes 2 ms, and between them the loop turns."""
    async with in_process_broker(tmp_path) as broker:
        pulls = [await pull_waiters(broker, number + 1, consumer_group=f"g{number}") for number in range(30)]
        for waiting in broker.pull_waiters._by_queue.values():
            for pull in waiting:
                pull.resume = slowly(pull.resume)
        await broker.call(a_send())
        turns_taken = 0
        while not all(pull.done() for pull in pulls):
            await asyncio.sleep(0)
            turns_taken += 1
        assert turns_taken >= 5
        assert {(await pull).code for pull in pulls} == {ResponseCode.SUCCESS}


def slowly(resume: Callable[[PullWaiter, bool], None]) -> Callable[[PullWaiter, bool], None]:
    def resume_later(pull: PullWaiter, final: bool) -> None:
        time.sleep(0.002)
        resume(pull, final)

    return resume_later


async def test_only_the_pulls_of_that_queue_wake(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        first = await pull_waiters(broker, 1, queue_id=1)
        other = await pull_waiters(broker, 2, queue_id=2)
        await broker.call(a_send(queue_id=1))
        await first
        await turns()
        assert not other.done()
        assert len(broker.pull_waiters) == 1


async def test_all_groups_that_wait_for_a_queue_wake(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        pulls = [await pull_waiters(broker, number + 1, consumer_group=f"g{number}") for number in range(3)]
        await broker.call(a_send())
        assert [(await pull).code for pull in pulls] == [ResponseCode.SUCCESS] * 3


async def test_a_tag_that_is_not_wanted_does_not_wake(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        pull = await pull_waiters(broker, subscription="red")
        await broker.call(a_send(b"no", {"TAGS": "blue"}))
        await turns()
        assert len(broker.pull_waiters) == 1
        await broker.call(a_send(b"yes", {"TAGS": "red"}))
        response = await pull
        assert [message.body for message in decode_all(response.body)] == [b"yes"]
        assert response.next_begin_offset == 2


async def test_properties_that_are_not_wanted_do_not_wake(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        pull = await pull_waiters(broker, subscription="n > 5", expression_type="SQL92")
        for number in range(5):
            await broker.call(a_send(b"no", {"n": str(number)}))
        await turns()
        assert not pull.done()
        assert len(broker.pull_waiters) == 1
        await broker.call(a_send(b"yes", {"n": "6"}))
        response = await pull
        assert [message.body for message in decode_all(response.body)] == [b"yes"]


async def test_time_is_over_when_the_client_said_so(tmp_path: Path) -> None:
    clock = FakeClock()
    async with in_process_broker(tmp_path, clock) as broker:
        pull = await pull_waiters(broker, suspend_timeout_millis=15_000)
        await clock.advance(14.9)
        assert not pull.done()
        await clock.advance(0.2)
        response = await pull
        assert (response.code, response.remark) == (ResponseCode.PULL_NOT_FOUND, "NO_MATCHED_LOGIC_QUEUE")
        assert len(broker.pull_waiters) == 0


async def test_an_earlier_end_is_not_held_up_by_a_later_one(tmp_path: Path) -> None:
    clock = FakeClock()
    async with in_process_broker(tmp_path, clock) as broker:
        late = await pull_waiters(broker, 1, suspend_timeout_millis=20_000)
        early = await pull_waiters(broker, 2, suspend_timeout_millis=1_000)
        await clock.advance(1.1)
        assert (await early).code == ResponseCode.PULL_NOT_FOUND
        assert not late.done()


async def test_what_was_passed_over_is_reported_when_time_is_over(tmp_path: Path) -> None:
    clock = FakeClock()
    async with in_process_broker(tmp_path, clock) as broker:
        pull = await pull_waiters(broker, subscription="red")
        await broker.call(a_send(b"no", {"TAGS": "blue"}))
        await clock.advance(15.1)
        response = await pull
        assert (response.code, response.next_begin_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 1)


async def test_a_pull_that_waits_on_keeps_its_time(tmp_path: Path) -> None:
    clock = FakeClock()
    async with in_process_broker(tmp_path, clock) as broker:
        pull = await pull_waiters(broker, subscription="n > 5", expression_type="SQL92")
        await clock.advance(10)
        await broker.call(a_send(b"no", {"n": "1"}))
        await turns()
        await clock.advance(5.1)
        response = await pull
        assert (response.code, response.next_begin_offset) == (ResponseCode.PULL_NOT_FOUND, 1)


async def test_short_polling_waits_as_long_as_the_broker_says(tmp_path: Path) -> None:
    clock = FakeClock()
    async with in_process_broker(tmp_path, clock, long_polling=False, short_polling_ms=1000) as broker:
        pull = await pull_waiters(broker, suspend_timeout_millis=30_000)
        await clock.advance(1.1)
        assert (await pull).code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize("changes", [{"sys_flag": 4}, {"suspend_timeout_millis": 0}, {"suspend_timeout_millis": -1}])
async def test_a_pull_that_does_not_want_to_wait_is_answered_at_once(tmp_path: Path, changes: dict[str, int]) -> None:
    async with in_process_broker(tmp_path) as broker:
        response = await broker.call(a_pull(**{"sys_flag": SUSPEND, **changes}))
        assert response.code == ResponseCode.PULL_NOT_FOUND


async def test_an_offset_that_moved_is_answered_at_once(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        assert (await broker.call(a_pull(sys_flag=SUSPEND, queue_offset=7))).code == ResponseCode.PULL_OFFSET_MOVED


async def test_pulls_of_a_closed_connection_are_forgotten(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        async with connected(broker.server) as client:
            for number in range(3):
                await client.send(encode_frame(request_command(a_pull(sys_flag=SUSPEND, queue_id=number), opaque=9)))
            await until(lambda: len(broker.pull_waiters) == 3)
        await until(lambda: len(broker.pull_waiters) == 0)
        await broker.call(a_send())
        pull = await pull_waiters(broker, queue_offset=1)
        await broker.call(a_send())
        assert (await pull).code == ResponseCode.SUCCESS


async def test_a_connection_may_park_again_and_again(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        for number in range(50):
            pull = await pull_waiters(broker, queue_offset=number)
            await broker.call(a_send(b"%d" % number))
            assert decode_all((await pull).body)[0].body == b"%d" % number


async def test_a_broker_that_stops_answers_everybody_and_parks_no_more(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        pulls = [await pull_waiters(broker, number + 1, queue_id=number) for number in range(3)]
        broker.pull_waiters.respond_all()
        assert [(await pull).code for pull in pulls] == [ResponseCode.PULL_NOT_FOUND] * 3
        assert (await broker.call(a_pull(sys_flag=SUSPEND))).code == ResponseCode.PULL_NOT_FOUND


async def test_too_many_waiting_pulls_are_refused_with_the_limit(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, pulls_max=2) as broker:
        waiting = [await pull_waiters(broker, number + 1) for number in range(2)]
        with pytest.raises(RequestFailed) as caught:
            await broker.call(a_pull(sys_flag=SUSPEND))
        assert caught.value.code == ResponseCode.SYSTEM_BUSY
        assert "pullThreadPoolQueueCapacity = 2" in caught.value.remark
        await broker.call(a_send())
        await asyncio.gather(*waiting)
        assert len(broker.pull_waiters) == 0


async def test_one_connection_does_not_take_all_places(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, pulls_per_connection_max=1) as broker, connected(broker.server) as other:
        await pull_waiters(broker)
        with pytest.raises(RequestFailed, match="on this connection"):
            await broker.call(a_pull(sys_flag=SUSPEND))
        await other.send(encode_frame(request_command(a_pull(sys_flag=SUSPEND), opaque=1)))
        await until(lambda: len(broker.pull_waiters) == 2)


@pytest.mark.parametrize("subscription", ["x" * 30_000, "||".join(map(str, range(500)))])
async def test_a_waiting_pull_counts_with_its_subscription(tmp_path: Path, subscription: str) -> None:
    memory = MemoryBudget(200_000)
    request = a_pull(sys_flag=SUSPEND, subscription=subscription)
    async with in_process_broker(tmp_path, memory=memory) as broker, connected(broker.server) as client:
        await client.send(b"".join(encode_frame(request_command(request, opaque=number)) for number in range(1, 21)))
        refused = await client.read()
        assert (refused.code, "the memory of all connections" in (refused.remark or "")) == (
            ResponseCode.SYSTEM_BUSY,
            True,
        )
        assert 2 <= len(broker.pull_waiters) <= 8
        broker.pull_waiters.respond_all()
        assert memory.used == 0


async def test_a_waiting_pull_holds_neither_its_header_nor_a_body(tmp_path: Path) -> None:
    """Twenty thousand may wait on one connection."""
    async with in_process_broker(tmp_path) as broker, connected(broker.server) as client:
        command = request_command(a_pull(sys_flag=SUSPEND), opaque=7)
        command.ext_texts, command.body = {**command.ext, "unknown": "x" * 30_000}, b"x" * 1_000_000
        await client.send(encode_frame(command))
        await until(lambda: len(broker.pull_waiters) == 1)
        (pull,) = (pull for waiting in broker.pull_waiters._by_queue.values() for pull in waiting)
        assert len(pull.call.command.body) + len(bytes(pull.call.command.raw_ext)) + len(pull.call.command.ext) == 0
        await broker.call(a_send(b"at last"))
        response = await client.read()
        assert (response.opaque, response.code) == (7, ResponseCode.SUCCESS)


async def test_an_arrival_looks_at_its_own_queue_only(tmp_path: Path) -> None:
    """Ten thousand pulls wait for one queue; a message of another touches none of them."""
    async with in_process_broker(tmp_path) as broker, connected(broker.server) as client:
        request = a_pull(sys_flag=SUSPEND, queue_id=3, subscription="red")
        await client.send(b"".join(encode_frame(request_command(request, opaque=n)) for n in range(1, 10_001)))
        await until(lambda: len(broker.pull_waiters) == 10_000)
        response = await broker.call(a_send(queue_id=0))
        assert response.code == ResponseCode.SUCCESS
        await turns()
        assert len(broker.pull_waiters) == 10_000
        await broker.call(a_send(queue_id=3, properties={"TAGS": "red"}))
        responses = await _read_all(client, 10_000)
        assert responses == set(range(1, 10_001))


async def _read_all(client: RawClient, count: int) -> set[int]:
    return {(await client.read()).opaque for _ in range(count)}
