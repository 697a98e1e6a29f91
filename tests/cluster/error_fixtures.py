"""Real servers for error tests, and the checks of an error: class, cause, hint, and whether to retry."""

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
from tests.client.cluster_fixture import PATIENCE_S, LiveCluster, fresh

E = TypeVar("E", bound=ArianeError)

FAST_POLLING = ClientSettings(route_poll_interval_s=0.2, heartbeat_interval_s=0.2, nameserver_timeout_s=1.0)
"""For tests that wait until a server is back."""


async def assert_fails(work: Awaitable[object], kind: type[E], *words: str, retriable: bool, exit_status: int) -> E:
    """The error that `work` raises, whose message contains all of `words`."""
    with pytest.raises(kind) as caught:
        await work
    error = caught.value
    assert type(error) is kind
    assert (error.retriable, error.exit_status) == (retriable, exit_status)
    for word in words:
        assert re.search(re.escape(word), str(error)), f"{word!r} is not in: {error}"
    return error


async def send_with_retries(producer: Producer, topic: str, body: bytes) -> SendResult:
    """Retries as long as the error is `retriable`."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await producer.send(topic, body)
            except ArianeError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(0.05)


async def create(live_cluster: LiveCluster, topic: str, perm: int = 6) -> None:
    """Creates or replaces a topic with one queue; returns when its route is up to date."""
    request = UpdateTopic(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=1,
        write_queue_nums=1,
        perm=perm,
        topic_filter_type="SINGLE_TAG",
    )
    await live_cluster.instance.call(live_cluster.broker, request)
    async with asyncio.timeout(PATIENCE_S):
        while await _perm(live_cluster, topic) != perm:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.01)


async def _perm(live_cluster: LiveCluster, topic: str) -> int | None:
    route = await live_cluster.instance.routes.find(topic, fresh=True)
    return None if route is None else route.queue_datas[0].perm


@asynccontextmanager
async def acl_cluster(tmp_path: Path, accounts: str) -> AsyncIterator[LiveCluster]:
    """A broker with access control. The client is `the-boss`, which must be among the accounts."""
    file = tmp_path / "plain_acl.yml"
    file.write_text(accounts)
    async with running_cluster(tmp_path, acl_enable=True, acl_file=file) as cluster:
        settings = ClientSettings(
            nameservers=cluster.nameserver, access_key="the-boss", secret_key=Secret("bosses-secret")
        )
        async with Instance.open(settings) as instance:
            yield LiveCluster(cluster.nameserver, cluster.broker.address, instance)


async def stored(live_cluster: LiveCluster, topic: str) -> int:
    """How many messages the topic has; a refused send must not change it."""
    async with PullConsumer(live_cluster.nameserver, group=fresh("counters")) as consumer:
        return sum([await consumer.max_offset(queue) for queue in await consumer.queues(topic)])


async def bodies_of(nameserver: str, topic: str, count: int) -> list[bytes]:
    """Reads `count` messages of the topic."""
    bodies: list[bytes] = []
    consumer = LitePullConsumer(nameserver, group=fresh("readers"), start="earliest", settings=FAST_POLLING)
    async with consumer, asyncio.timeout(PATIENCE_S):
        consumer.subscribe(topic)
        while len(bodies) < count:
            bodies += [message.body for message in await consumer.poll()]
    return bodies


@contextmanager
def unused_port() -> Iterator[str]:
    """An address that is bound but not listening."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"
