"""Start, close and failure of an opened client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ariane.client.core.lifecycle import Lifetime
from ariane.errors import ClientClosed, SettingsError
from ariane.lifecycle import background


@asynccontextmanager
async def refusing() -> AsyncIterator[str]:
    raise SettingsError("no")
    yield ""


async def test_start_fails_if_opening_fails() -> None:
    lifetime = Lifetime("thing", refusing)
    with pytest.raises(SettingsError, match="no"):
        await lifetime.start()
    await lifetime.close()


async def test_a_background_failure_closes_the_client_and_the_next_use_names_it() -> None:
    fail = asyncio.Event()
    closed = asyncio.Event()

    async def job() -> None:
        await fail.wait()
        raise ValueError("broken job")

    @asynccontextmanager
    async def opening() -> AsyncIterator[str]:
        try:
            async with background(job):
                yield "value"
        finally:
            closed.set()

    lifetime = Lifetime("thing", opening)
    assert await lifetime.start() == lifetime.value == "value"
    fail.set()
    await closed.wait()
    await asyncio.sleep(0)
    with pytest.raises(ClientClosed, match="stopped by a failure"):
        _ = lifetime.value
    await lifetime.close()


async def test_a_start_that_is_cancelled_opens_nothing() -> None:
    entered = asyncio.Event()
    left = asyncio.Event()

    @asynccontextmanager
    async def slow() -> AsyncIterator[str]:
        try:
            entered.set()
            await asyncio.Event().wait()
            yield ""
        finally:
            left.set()

    lifetime = Lifetime("thing", slow)
    starting = asyncio.ensure_future(lifetime.start())
    await entered.wait()
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await lifetime.close()
    assert left.is_set()
