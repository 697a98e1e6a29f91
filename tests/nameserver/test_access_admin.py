"""Administration of a cluster where broker and nameserver have access control, as programs and commands do it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ariane.client.admin import Admin
from ariane.client.producer.producer import Producer
from ariane.client.settings import ClientSettings
from ariane.errors import RequestFailed
from ariane.settings import Secret
from tests.broker.brokers import running_broker
from tests.nameserver.test_access import SECRETS, guarded


@dataclass(frozen=True)
class Cluster:
    nameserver: str

    def settings(self, account: str | None) -> ClientSettings:
        if account is None:
            return ClientSettings(nameservers=self.nameserver)
        return ClientSettings(nameservers=self.nameserver, access_key=account, secret_key=Secret(SECRETS[account]))


@asynccontextmanager
async def cluster(tmp_path: Path, *, broker_guarded: bool) -> AsyncIterator[Cluster]:
    keys = {"namesrv_access_key": "broker1", "namesrv_secret_key": Secret(SECRETS["broker1"])}
    acl = {"acl_enable": broker_guarded, "acl_file": tmp_path / "accounts.yml"}
    async with guarded(tmp_path) as address, running_broker(tmp_path, [address], None, **keys, **acl):
        yield Cluster(address)


async def test_an_administrator_changes_what_the_nameserver_has(tmp_path: Path) -> None:
    async with cluster(tmp_path, broker_guarded=True) as servers:
        async with Admin(settings=servers.settings("administrator")) as admin:
            await admin.topics.create("orders", order=True)
            assert await admin.topics.order_conf("orders") == {"broker-a": 4}
            await admin.topics.delete("orders")
            assert "orders" not in await admin.topics.names()
            assert await admin.topics.order_conf("orders") is None


@pytest.mark.parametrize("account", [None, "reader1", "broker1"])
async def test_others_read_routes_and_change_nothing(tmp_path: Path, account: str | None) -> None:
    async with cluster(tmp_path, broker_guarded=True) as servers:
        async with Admin(settings=servers.settings("administrator")) as admin:
            await admin.topics.create("orders")
        async with Admin(settings=servers.settings(account)) as other:
            assert "orders" in await other.topics.names()
            assert (await other.topics.route("orders")).broker_datas[0].broker_name == "broker-a"
            with pytest.raises(RequestFailed, match="PUT_KV_CONFIG"):
                await other.topics.set_order_conf("orders", {"broker-a": 4})
            assert await other.topics.order_conf("orders") is None


async def test_clients_without_an_account_use_a_broker_without_access_control(tmp_path: Path) -> None:
    async with cluster(tmp_path, broker_guarded=False) as servers:
        async with Admin(settings=servers.settings(None)) as admin:
            await admin.topics.create("orders")
        async with Producer(servers.nameserver, group="shop") as producer:
            await producer.send("orders", b"hello")
