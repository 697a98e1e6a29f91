"""A live cluster for tests: a nameserver and a broker, Ariane's or Apache's, with helpers for topics and messages."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from ariane.client.core.instance import Instance
from ariane.client.core.queue_bounds import readable_queues
from ariane.client.settings import ClientSettings
from ariane.model.route import MessageQueue
from ariane.wire.properties import encode_properties
from ariane.wire.requests.offsets import GetConsumerOffset
from ariane.wire.requests.send import SendMessageV2
from ariane.wire.requests.topics import UpdateTopic
from tests.broker.brokers import running_cluster

PATIENCE_S = 40
_NUMBERS = count(1)

# Retries start at level 3, so a second each: the tests wait for real deliveries.
QUICK_LEVELS = "1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s"


def fresh(name: str) -> str:
    """A topic or group that no other test uses."""
    return f"{name}-{next(_NUMBERS)}"


async def until(condition: Callable[[], bool]) -> None:
    """Polls: for the state of servers and of background tasks, which have no event."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@dataclass
class LiveCluster:
    nameserver: str
    broker: str
    instance: Instance

    async def topic(self, name: str = "topic", queues: int = 4, perm: int = 6) -> str:
        topic = fresh(name)
        request = UpdateTopic(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            topic_filter_type="SINGLE_TAG",
        )
        await self.instance.call(self.broker, request)
        async with asyncio.timeout(PATIENCE_S):
            while await self.instance.routes.find(topic, fresh=True) is None:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.01)
        return topic

    async def queues(self, topic: str) -> list[MessageQueue]:
        return readable_queues(topic, await self.instance.routes.route(topic))

    async def send(self, topic: str, *bodies: bytes, queue_id: int | None = None, **properties: str) -> None:
        """Sends one message after the other, to the queues in turn, or to `queue_id`."""
        queues = len(await self.queues(topic))
        for number, body in enumerate(bodies):
            request = SendMessageV2(
                producer_group="tests",
                topic=topic,
                default_topic="TBW102",
                default_topic_queue_nums=4,
                queue_id=number % queues if queue_id is None else queue_id,
                sys_flag=0,
                born_timestamp=self.instance.clock.now_ms(),
                flag=0,
                properties=encode_properties(properties).decode(),
                body=body,
            )
            await self.instance.call(self.broker, request)

    async def committed(self, group: str, topic: str) -> list[int]:
        return [
            (await self.instance.call(self.broker, GetConsumerOffset(group, topic, queue.queue_id))).offset
            for queue in await self.queues(topic)
        ]


@contextlib.asynccontextmanager
async def live_cluster_at(nameserver: str, broker: str) -> AsyncIterator[LiveCluster]:
    async with Instance.open(ClientSettings(nameservers=nameserver)) as instance:
        yield LiveCluster(nameserver, broker, instance)


@contextlib.asynccontextmanager
async def ariane_cluster(tmp_path: Path, **settings: Any) -> AsyncIterator[LiveCluster]:
    store = {"message_delay_levels": QUICK_LEVELS}
    async with running_cluster(tmp_path, store=store, **settings) as cluster:
        async with live_cluster_at(cluster.nameserver, cluster.broker.address) as live_cluster:
            yield live_cluster


@dataclass
class MessageCollector:
    """Collects messages of handlers, and waits for a number of them."""

    messages: list[Any] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, message: Any) -> None:
        self.messages.append(message)
        self._changed.set()

    def put_from_thread(self, loop: asyncio.AbstractEventLoop, message: Any) -> None:
        loop.call_soon_threadsafe(self.put, message)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_count(self, count: int) -> None:
        await self.until(lambda: len(self.messages) >= count)
