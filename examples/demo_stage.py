"""What every part of the demo stands on: topics, consumers that collect, and a row for the table."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ariane.client.admin import Admin
from ariane.client.consumer.message import Received
from ariane.client.consumer.push import PushConsumer
from ariane.client.producer.producer import Producer

PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True)
class Row:
    """What one kind of message came to."""

    sent: int
    received: int
    shown: str
    ok: bool


@dataclass(frozen=True, slots=True)
class Stage:
    nameserver: str
    root: Path
    admin: Admin
    producer: Producer
    """Shared by all kinds that need no producer of their own."""

    async def topic(self, name: str, queues: int = 4) -> str:
        """A topic that the nameserver knows."""
        await self.admin.topics.create(name, queues=queues, wait_s=PATIENCE_S)
        return name


Kind = Callable[[Stage], Awaitable[Row]]


@dataclass
class Inbox:
    """Keeps what a handler is given, and tells when it is enough."""

    messages: list[Received] = field(default_factory=list)
    _arrival: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, message: Received) -> None:
        self.messages.append(message)
        self._arrival.set()

    async def wait_for(self, count: int, patience_s: float = PATIENCE_S) -> None:
        """Returns when there are `count` messages, or when there is no more hope: the row shows how many came."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
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
    stage: Stage, topic: str, expression: str = "*", *, sql: str | None = None, **options: Any
) -> AsyncIterator[Inbox]:
    """A push consumer in a group named after the topic."""
    inbox = Inbox()
    consumer = PushConsumer(
        stage.nameserver, **{"group": f"{topic}-readers", "start": "earliest", "handler": inbox.take, **options}
    )
    consumer.subscribe(topic, expression, sql=sql)
    async with consumer:
        yield inbox


def bodies(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]
