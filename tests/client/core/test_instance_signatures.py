"""Clients at brokers that require signatures of version 2: every kind of client works, and nothing can be replayed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ariane.client.admin.admin import Admin
from ariane.client.consumer.push import PushConsumer
from ariane.client.core.instance import Instance
from ariane.client.producer.producer import Producer
from ariane.client.producer.transactional import COMMIT, UNKNOWN, TransactionProducer
from ariane.client.settings import ClientSettings
from ariane.errors import RequestFailed, SendFailed
from ariane.model.topic import TopicConfig
from ariane.settings import Secret
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.offsets import GetMaxOffset
from tests.broker.brokers import RunningCluster, running_cluster

ACCOUNTS = """
accounts:
- {accessKey: shop-key, secretKey: secret-of-shop, defaultGroupPerm: SUB, topicPerms: [orders=PUB|SUB]}
- {accessKey: admin-key, secretKey: secret-of-admin, admin: true}
"""


@asynccontextmanager
async def servers(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    async with running_cluster(tmp_path, acl_enable=True, acl_file=file, acl_require_v2=True) as cluster:
        topics = cluster.broker.parts.topics
        topics.put(TopicConfig(topic_name="orders", read_queue_nums=2, write_queue_nums=2))
        await cluster.broker.broker.registration.announced()
        yield cluster


def settings(cluster: RunningCluster, key: str = "shop", secret: str | None = None) -> ClientSettings:
    secret_key = Secret(secret or f"secret-of-{key}")
    return ClientSettings(nameservers=cluster.nameserver, access_key=f"{key}-key", secret_key=secret_key)


async def test_producers_consumers_and_transactions_work(tmp_path: Path) -> None:
    received: list[bytes] = []
    async with servers(tmp_path) as cluster:
        wanted = settings(cluster)

        async def handle(message: object) -> None:
            received.append(message.body)  # type: ignore[attr-defined]

        consumer = PushConsumer(group="billing", settings=wanted, handler=handle, start="earliest")
        consumer.subscribe("orders")
        async with (
            Producer(group="shop", settings=wanted, trace=False) as producer,
            TransactionProducer(
                group="payers", settings=wanted, execute=lambda message, arg: COMMIT, check=lambda message: UNKNOWN
            ) as transactional,
            consumer,
        ):
            for number in range(4):
                assert (await producer.send("orders", b"%d" % number)).is_ok
            await transactional.send_in_transaction("orders", b"paid")
            async with asyncio.timeout(20):
                while len(received) < 5:  # noqa: ASYNC110 - the consumer runs by itself
                    await asyncio.sleep(0.01)
        assert sorted(received) == [b"0", b"1", b"2", b"3", b"paid"]
        signatures = cluster.broker.parts.access
        assert signatures is not None
        assert (signatures.signatures.replays, signatures.signatures.lockout.failures) == (0, 0)


async def test_an_administrator_works_and_a_wrong_secret_does_not(tmp_path: Path) -> None:
    async with servers(tmp_path) as cluster:
        async with Admin(settings=settings(cluster, "admin")) as admin:
            await admin.topics.create("made")
        assert cluster.broker.parts.topics.get("made") is not None
        async with Producer(group="shop", settings=settings(cluster, secret="wrong-secret")) as producer:
            with pytest.raises(SendFailed, match="Check signature failed"):
                await producer.send("orders", b"x")


async def test_requests_at_once_on_a_new_connection_are_all_served(tmp_path: Path) -> None:
    """Each is refused with the challenge first, and sent again."""
    async with servers(tmp_path) as cluster, Instance.open(settings(cluster)) as instance:
        calls = [instance.call(cluster.broker.address, GetMaxOffset("orders", 0)) for _ in range(50)]
        assert {response.offset for response in await asyncio.gather(*calls)} == {0}
        with pytest.raises(RequestFailed) as caught:
            await instance.call(cluster.broker.address, GetMaxOffset("other", 0))
        assert caught.value.code == ResponseCode.NO_PERMISSION
