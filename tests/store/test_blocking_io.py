"""Generators that yield blocking calls: on the event loop a thread executes the calls, in a tool they run inline."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from ariane.store.blocking_io import IoSteps, run_if_cached, run_in_executor, run_sync, until_cached

Run = Callable[[IoSteps[list[str]]], Awaitable[list[str]]]


def steps(*names: str | None) -> IoSteps[list[str]]:
    """Records which thread executed each call; the call of that name fails."""
    done: list[str] = []

    def call(name: str) -> None:
        if name == "fails":
            raise OSError(5, "Input/output error")
        done.append(f"{name} by {threading.current_thread().name}")

    for name in names:
        try:
            yield None if name is None else lambda name=name: call(name)  # type: ignore[misc]
        except OSError as error:
            done.append(str(error.strerror))
    return done


def test_a_tool_does_every_blocking_call_itself() -> None:
    assert run_sync(steps("one", None, "two")) == ["one by MainThread", "two by MainThread"]


async def test_on_the_loop_threads_do_the_blocking_calls_in_order() -> None:
    first, second = await run_in_executor(steps("one", None, "two"))
    assert first.startswith("one by ")
    assert second.startswith("two by ")
    assert "MainThread" not in first + second


async def test_a_failed_blocking_call_is_reported_to_the_steps() -> None:
    assert run_sync(steps("fails", "one")) == ["Input/output error", "one by MainThread"]
    failed, _ = await run_in_executor(steps("fails", "one"))
    assert failed == "Input/output error"


async def test_steps_without_a_blocking_call_do_not_suspend() -> None:
    others: list[str] = []
    asyncio.get_running_loop().call_soon(others.append, "had a turn")
    assert await run_in_executor(steps()) == []
    assert others == []
    assert await run_in_executor(steps(None)) == []
    assert others == ["had a turn"]


def test_steps_can_be_given_up_at_the_first_blocking_call() -> None:
    assert run_if_cached(steps()) == []
    assert run_if_cached(steps("one")) is None


def test_what_the_steps_do_not_expect_is_the_callers() -> None:
    def fails() -> IoSteps[None]:
        yield lambda: 1 / 0

    with pytest.raises(ZeroDivisionError):
        run_sync(fails())


def test_blocking_calls_are_run_until_there_is_none() -> None:
    left = [1, 2, 3]
    run_sync(until_cached(lambda: left.pop if left else None))
    assert left == []


def test_blocking_calls_that_never_end_are_given_up() -> None:
    done: list[int] = []
    run_sync(until_cached(lambda: lambda: done.append(1)))
    assert 1 < len(done) < 100
