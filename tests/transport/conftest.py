"""Every transport test runs on both event loops that Ariane supports."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, LoopFactory]:
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
