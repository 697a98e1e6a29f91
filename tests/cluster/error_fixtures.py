"""Real servers to be wrong with, and what a refusal must have: a class, a cause, a cure, and whether to try again."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from ariane.client.consumer.lite_pull import LitePullConsumer
from ariane.client.consumer.pull import PullConsumer
from ariane.client.core.instance import Instance
from ariane.client.producer.producer import Producer
from ariane.client.producer.result import SendResult
from ariane.client.settings import ClientSettings
from ariane.errors import ArianeError
from ariane.settings import Secret
from ariane.wire.requests.topics import UpdateTopic
from tests.broker.brokers import running_cluster
from tests.client.cluster_fixture import PATIENCE_S, Ground, fresh

E = TypeVar("E", bound=ArianeError)

IMPATIENT = ClientSettings(route_poll_interval_s=0.2, heartbeat_interval_s=0.2, nameserver_timeout_s=1.0)
"""For those who wait until a server is back."""


async def refused(work: Awaitable[object], kind: type[E], *words: str, retriable: bool, exit_status: int) -> E:
    """The error that `work` ends with, which says all of `words`."""
    with pytest.raises(kind) as caught:
        await work
    error = caught.value
    assert type(error) is kind
    assert (error.retriable, error.exit_status) == (retriable, exit_status)
    for word in words:
        assert re.search(re.escape(word), str(error)), f"{word!r} is not in: {error}"
    return error


async def sent_in_the_end(producer: Producer, topic: str, body: bytes) -> SendResult:
    """As a program does it that knows `retriable`."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await producer.send(topic, body)
            except ArianeError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(0.05)


async def create(ground: Ground, topic: str, perm: int = 6) -> None:
    """A topic of one queue under exactly this name, or what was said of it replaced; returns when routes tell it."""
    request = UpdateTopic(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=1,
        write_queue_nums=1,
        perm=perm,
        topic_filter_type="SINGLE_TAG",
    )
    await ground.instance.call(ground.broker, request)
    async with asyncio.timeout(PATIENCE_S):
        while await _perm(ground, topic) != perm:  # noqa: ASYNC110 - the nameserver tells nobody
            await asyncio.sleep(0.01)


async def _perm(ground: Ground, topic: str) -> int | None:
    route = await ground.instance.routes.find(topic, fresh=True)
    return None if route is None else route.queue_datas[0].perm


@asynccontextmanager
async def guarded_ground(tmp_path: Path, accounts: str) -> AsyncIterator[Ground]:
    """A broker that asks everybody for a signature; the ground is `the-boss`, who must be among the accounts."""
    file = tmp_path / "plain_acl.yml"
    file.write_text(accounts)
    async with running_cluster(tmp_path, acl_enable=True, acl_file=file) as cluster:
        settings = ClientSettings(
            nameservers=cluster.nameserver, access_key="the-boss", secret_key=Secret("bosses-secret")
        )
        async with Instance.open(settings) as instance:
            yield Ground(cluster.nameserver, cluster.broker.address, instance)


async def stored(ground: Ground, topic: str) -> int:
    """How many messages the topic has: what a refused send must not change."""
    async with PullConsumer(ground.nameserver, group=fresh("counters")) as consumer:
        return sum([await consumer.max_offset(queue) for queue in await consumer.queues(topic)])


async def bodies_of(nameserver: str, topic: str, wanted: int) -> list[bytes]:
    """`wanted` messages of the topic, or as many as come."""
    bodies: list[bytes] = []
    consumer = LitePullConsumer(nameserver, group=fresh("readers"), start="earliest", settings=IMPATIENT)
    async with consumer, asyncio.timeout(PATIENCE_S):
        consumer.subscribe(topic)
        while len(bodies) < wanted:
            bodies += [message.body for message in await consumer.poll()]
    return bodies


@contextmanager
def deaf_port() -> Iterator[str]:
    """An address that is taken and at which nobody listens."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"
