"""Invocation of user handlers: results, exceptions, timeouts, handlers that do not wait."""

import asyncio
import contextvars
import logging
from typing import Any

import pytest
from msgspec.structs import replace

from ariane.client.consumer.invocation import HandlerCalls, HandlerOutcome, Retry
from ariane.client.consumer.message import Received
from ariane.client.core.user_calls import UserCalls
from tests.client.consumer.test_queues import message


def calls_of(handler: Any, **options: Any) -> HandlerCalls:
    return HandlerCalls(**{"batch": 1, "timeout_s": 10.0, "user": UserCalls(2), "default": handler, **options})


async def outcome_of(handler: Any, count: int = 1, **options: Any) -> HandlerOutcome:
    calls = calls_of(handler, **options)
    try:
        return await calls.run([message(offset) for offset in range(count)])
    finally:
        calls.user.close()


@pytest.mark.parametrize("returned", [None, True, 0, "anything", [1]])
async def test_a_handler_that_returns_has_consumed_the_message(returned: object) -> None:
    assert (await outcome_of(lambda _message: returned)).done == 1


async def test_false_and_retry_mean_not_consumed() -> None:
    assert await outcome_of(lambda _message: False) == HandlerOutcome(0)
    assert await outcome_of(lambda _message: Retry(delay_level=5)) == HandlerOutcome(0, 5)


@pytest.mark.parametrize(("done", "counted"), [(-1, 0), (0, 0), (2, 2), (9, 3)])
async def test_a_batch_may_be_partly_consumed(done: int, counted: int) -> None:
    assert (await outcome_of(lambda _messages: Retry(done=done), 3, batch=3)).done == counted


async def test_an_object_with_an_async_call_runs_on_the_loop() -> None:
    class Bill:
        async def __call__(self, message: Received) -> bool:
            return asyncio.get_running_loop() is loop

    loop = asyncio.get_running_loop()
    assert (await outcome_of(Bill())).done == 1


async def test_a_thread_sees_the_context_of_its_caller() -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")
    tenant.set("north")
    assert (await outcome_of(lambda _message: tenant.get() == "north")).done == 1


async def test_a_timeout_raised_by_the_handler_is_a_normal_failure() -> None:
    async def handle(message: Received) -> None:
        raise TimeoutError("the database")

    assert (await outcome_of(handle)).delay_level == 0


async def test_the_consume_timeout_sends_the_message_back_with_level_three() -> None:
    async def handle(message: Received) -> None:
        await asyncio.Event().wait()

    outcome = await outcome_of(handle, timeout_s=0.01)
    assert (outcome.done, outcome.delay_level) == (0, 3)


async def test_a_failure_is_logged_with_id_and_attempt(caplog: pytest.LogCaptureFixture) -> None:
    async def handle(message: Received) -> None:
        raise ValueError("no")

    with caplog.at_level(logging.ERROR):
        await calls_of(handle).run([replace(message(1), reconsume_times=2, properties={"UNIQ_KEY": "ABC"})])
    (record,) = caplog.records
    assert vars(record)["message_id"] == "ABC"
    assert vars(record)["attempt"] == 3


async def test_an_exception_in_on_error_is_harmless() -> None:
    reported: list[Received] = []

    async def on_error(message: Received, error: BaseException) -> None:
        reported.append(message)
        raise RuntimeError("worse")

    async def handle(message: Received) -> None:
        raise ValueError("no")

    assert (await outcome_of(handle, on_error=on_error)).done == 0
    assert len(reported) == 1


async def test_a_topic_without_a_handler_is_reported() -> None:
    outcome = await outcome_of(None)
    assert "no handler for topic orders" in str(outcome.error)


async def test_handlers_that_do_not_wait_get_message_after_message() -> None:
    seen: list[int] = []

    async def handle(message: Received) -> None:
        seen.append(message.queue_offset)
        if message.queue_offset == 2:
            await asyncio.sleep(0)
            seen.append(-1)

    done, rest = calls_of(handle).start([message(offset) for offset in range(5)])
    assert (done, seen) == (2, [0, 1, 2])
    assert rest is not None
    assert (await rest).done == 1
    assert seen == [0, 1, 2, -1], "other workers take the messages after it"


async def test_a_batch_whose_handler_waits_ends_the_sequence() -> None:
    seen: list[list[int]] = []

    async def handle(messages: list[Received]) -> None:
        seen.append([message.queue_offset for message in messages])
        if messages[0].queue_offset == 2:
            await asyncio.sleep(0)

    done, rest = calls_of(handle, batch=2).start([message(offset) for offset in range(6)])
    assert rest is not None
    assert (done, (await rest).done, seen) == (2, 2, [[0, 1], [2, 3]])


async def test_a_failure_before_the_first_wait_ends_the_sequence() -> None:
    async def handle(message: Received) -> None:
        if message.queue_offset == 1:
            raise ValueError("no")

    done, rest = calls_of(handle).start([message(offset) for offset in range(3)])
    assert rest is not None
    outcome = await rest
    assert (done, outcome.done, str(outcome.error)) == (1, 0, "no")


async def test_what_a_handler_returns_after_a_wait_counts() -> None:
    async def handle(message: Received) -> object:
        await asyncio.sleep(0)
        return Retry(delay_level=5)

    assert await outcome_of(handle) == HandlerOutcome(0, 5)


async def test_messages_of_handlers_that_do_not_wait_are_counted() -> None:
    async def handle(messages: list[Received]) -> None: ...

    calls = calls_of(handle, batch=2)
    assert calls.start([message(offset) for offset in range(5)]) == (5, None)
    assert calls.counts["orders"].consumed == 5


@pytest.mark.parametrize(
    ("returned", "outcome"), [(False, HandlerOutcome(0)), (Retry(delay_level=5), HandlerOutcome(0, 5))]
)
async def test_a_message_that_is_not_consumed_ends_the_sequence(returned: object, outcome: HandlerOutcome) -> None:
    async def handle(message: Received) -> object:
        return returned if message.queue_offset == 1 else None

    done, rest = calls_of(handle).start([message(offset) for offset in range(3)])
    assert rest is not None
    assert (done, await rest) == (1, outcome)


async def test_a_handler_may_handle_a_cancellation() -> None:
    async def handle(message: Received) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            survived.append(message)

    survived: list[Received] = []
    assert (await outcome_of(handle, timeout_s=0.01)).done == 1
    assert len(survived) == 1


async def test_a_timeout_of_the_handler_works_across_the_first_wait() -> None:
    async def handle(message: Received) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        await asyncio.sleep(0)

    assert (await outcome_of(handle)).done == 1
