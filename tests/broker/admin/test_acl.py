"""Requests about accounts over a real connection, with the guard in front of the handlers."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ariane.broker.acl.guard import AccessControl
from ariane.broker.admin.acl import AccessHandlers
from ariane.broker.settings import BrokerSettings
from ariane.clock import Clock
from ariane.errors import RequestFailed
from ariane.rpc.dispatcher import Dispatcher
from ariane.rpc.handlers import HandlerTable
from ariane.store.disk import RealDisk
from ariane.transport.pool import Pool
from ariane.transport.settings import TransportSettings
from ariane.wire.codes import ResponseCode
from ariane.wire.exchange import read_response, request_command
from ariane.wire.fields import Request
from ariane.wire.requests.acl import (
    Account,
    DeleteAccount,
    GetAccessRules,
    GetAccessVersion,
    UpdateAccount,
    UpdateGlobalWhiteList,
)
from ariane.wire.signature import content_to_sign, sign
from tests.transport.peers import serving

FILE = """
accounts:
- {accessKey: administrator, secretKey: secret-of-1, admin: true, topicPerms: }
- {accessKey: account-2, secretKey: secret-of-2, defaultTopicPerm: PUB|SUB, groupPerms: [g=SUB]}
"""
SETTINGS = BrokerSettings(name="broker-a", cluster="C1", acl_file=Path("conf/plain_acl.yml"))


class SignedClient:
    def __init__(self, pool: Pool, address: str) -> None:
        self._pool = pool
        self._address = address

    async def call(self, request: Request[Any], key: str = "administrator", secret: str = "secret-of-1") -> Any:
        command = request_command(request, opaque=0)
        ext = command.ext | {"AccessKey": key}
        content = content_to_sign(ext, command.body, with_unique_key_query=False)
        command.ext_texts = ext | {"Signature": sign(secret, content)}
        return read_response(request, await self._pool.call(self._address, command, 10))


def written(directory: Path, content: str) -> Path:
    path = directory / "plain_acl.yml"
    path.write_text(content)
    return path


@asynccontextmanager
async def broker(directory: Path, *, acl: bool = True) -> AsyncIterator[SignedClient]:
    access = AccessControl(RealDisk(), written(directory, FILE), Clock()) if acl else None
    table = HandlerTable.of(AccessHandlers(SETTINGS, access))
    async with (
        serving(Dispatcher(table, guard=access.guard if access else None).receive) as server,
        Pool.open(TransportSettings(), Clock(), lambda *_: None) as pool,
    ):
        yield SignedClient(pool, str(server.address))


async def test_an_account_is_created_used_and_deleted(tmp_path: Path) -> None:
    async with broker(tmp_path) as client:
        await client.call(UpdateAccount(access_key="new-account", secret_key="secret-of-3", admin=True))
        await client.call(GetAccessVersion(), "new-account", "secret-of-3")
        await client.call(DeleteAccount("new-account"))
        with pytest.raises(RequestFailed, match="No acl config for new-account"):
            await client.call(GetAccessVersion(), "new-account", "secret-of-3")


async def test_the_list_contains_no_secret(tmp_path: Path) -> None:
    async with broker(tmp_path) as client:
        await client.call(UpdateGlobalWhiteList("10.1.2.{3,4},10.1.3.*"))
        shown = (await client.call(GetAccessRules())).body
    assert shown.global_white_addrs == ["10.1.2.{3,4}", "10.1.3.*"]
    assert shown.plain_access_configs == [
        Account(access_key="administrator", secret_key="********", admin=True),
        Account(access_key="account-2", secret_key="********", default_topic_perm="PUB|SUB", group_perms=["g=SUB"]),
    ]


@pytest.mark.parametrize("secret", [None, "", "********", "******", "*"])
async def test_an_account_that_is_sent_back_as_it_was_shown_keeps_its_secret(
    tmp_path: Path, secret: str | None
) -> None:
    """Apache's mqadmin requires -s, and dashboards send every field of their form."""
    async with broker(tmp_path) as client:
        shown = (await client.call(GetAccessRules())).body.plain_access_configs[1]
        await client.call(
            UpdateAccount(
                access_key=shown.access_key,
                secret_key=shown.secret_key if secret is None else secret,
                admin=True,
                default_topic_perm=shown.default_topic_perm,
                topic_perms="t=PUB",
                group_perms=",".join(shown.group_perms),
            )
        )
        again = (await client.call(GetAccessRules(), "account-2", "secret-of-2")).body.plain_access_configs[1]
    assert (again.admin, again.topic_perms, again.group_perms) == (True, ["t=PUB"], ["g=SUB"])
    assert "secret-of-2" in (tmp_path / "plain_acl.yml").read_text()


async def test_a_mask_is_no_secret_for_a_new_account(tmp_path: Path) -> None:
    async with broker(tmp_path) as client:
        with pytest.raises(RequestFailed, match="account-3 is new") as caught:
            await client.call(UpdateAccount(access_key="account-3", secret_key="********"))
        assert caught.value.code == ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        await client.call(UpdateAccount(access_key="account-2", secret_key="another-secret", admin=True))
        await client.call(GetAccessVersion(), "account-2", "another-secret")


async def test_the_version_grows_with_each_change(tmp_path: Path) -> None:
    async with broker(tmp_path) as client:
        await client.call(UpdateGlobalWhiteList(""))
        response = await client.call(GetAccessVersion())
    version: Mapping[str, int] = json.loads(response.version)
    assert version["counter"] == 1
    assert json.loads(response.all_acl_file_version) == {"plain_acl.yml": version}
    assert (response.broker_name, response.cluster_name) == ("broker-a", "C1")
    assert response.broker_addr == str(SETTINGS.advertised)


@pytest.mark.parametrize(
    "admin_request",
    [
        UpdateAccount(access_key="account-2", admin=True),
        DeleteAccount("administrator"),
        GetAccessVersion(),
        UpdateGlobalWhiteList("*"),
        GetAccessRules(),
    ],
)
async def test_only_administrators_manage_accounts(tmp_path: Path, admin_request: Request[Any]) -> None:
    async with broker(tmp_path) as client:
        with pytest.raises(RequestFailed, match="Need admin permission") as caught:
            await client.call(admin_request, "account-2", "secret-of-2")
    assert caught.value.code == ResponseCode.NO_PERMISSION
    assert (tmp_path / "plain_acl.yml").read_text() == FILE


@pytest.mark.parametrize(
    ("admin_request", "code", "remark"),
    [
        (
            UpdateAccount(access_key="new-account"),
            ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
            "secretKey must be",
        ),
        (DeleteAccount("stranger"), ResponseCode.DELETE_ACL_CONFIG_FAILED, "account stranger does not exist"),
        (UpdateGlobalWhiteList("10.1"), ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED, "not an address pattern"),
    ],
)
async def test_an_invalid_change_is_rejected(
    tmp_path: Path, admin_request: Request[Any], code: ResponseCode, remark: str
) -> None:
    async with broker(tmp_path) as client:
        with pytest.raises(RequestFailed, match=remark) as caught:
            await client.call(admin_request)
    assert caught.value.code == code


async def test_a_file_that_an_editor_broke_refuses_changes(tmp_path: Path) -> None:
    async with broker(tmp_path) as client:
        written(tmp_path, "accounts: [")
        with pytest.raises(RequestFailed, match="is invalid") as caught:
            await client.call(DeleteAccount("account-2"))
    assert caught.value.code == ResponseCode.DELETE_ACL_CONFIG_FAILED


async def test_without_access_control_there_are_no_accounts(tmp_path: Path) -> None:
    async with broker(tmp_path, acl=False) as client:
        for request in (
            UpdateAccount(access_key="new-account"),
            DeleteAccount("x"),
            GetAccessVersion(),
            GetAccessRules(),
        ):
            with pytest.raises(RequestFailed, match="set aclEnable=true"):
                await client.call(request, "", "")  # signed with an empty key, as C++ clients do
