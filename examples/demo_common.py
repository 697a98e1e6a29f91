"""Shared by all parts of the demo: topics, a consumer that collects messages, and the result of one part."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ariane import Admin, Producer, PushConsumer, Received

TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Result:
    """One row of the table that the demo prints."""

    sent: int
    received: int
    description: str
    ok: bool


@dataclass(frozen=True, slots=True)
class DemoCluster:
    """The running servers, and clients that several parts of the demo share."""

    nameserver: str
    root: Path
    admin: Admin
    producer: Producer

    async def topic(self, name: str, queues: int = 4) -> str:
        """Creates a topic and waits until the nameserver has its route."""
        await self.admin.topics.create(name, queues=queues, wait_s=TIMEOUT_S)
        return name


Demo = Callable[[DemoCluster], Awaitable[Result]]


@dataclass
class MessageCollector:
    """Its `collect` is a message handler that keeps all messages."""

    messages: list[Received] = field(default_factory=list)
    _arrival: asyncio.Event = field(default_factory=asyncio.Event)

    async def collect(self, message: Received) -> None:
        self.messages.append(message)
        self._arrival.set()

    async def wait_for(self, count: int, timeout_s: float = TIMEOUT_S) -> None:
        """Returns when there are `count` messages, or after the timeout: the result shows how many arrived."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while len(self.messages) < count:
                    self._arrival.clear()
                    await self._arrival.wait()

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    @property
    def count(self) -> int:
        return len(self.messages)


@contextlib.asynccontextmanager
async def consuming(
    cluster: DemoCluster, topic: str, expression: str = "*", *, sql: str | None = None, **options: Any
) -> AsyncIterator[MessageCollector]:
    """Runs a push consumer of group `<topic>-readers`; `options` are those of PushConsumer."""
    collector = MessageCollector()
    consumer = PushConsumer(
        cluster.nameserver,
        **{"group": f"{topic}-readers", "start": "earliest", "handler": collector.collect, **options},
    )
    consumer.subscribe(topic, expression, sql=sql)
    async with consumer:
        yield collector


def bodies(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]
