"""Who may do what at a nameserver with access control: every request code, every kind of account, real sockets."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ariane.acl.accounts import POLL_INTERVAL_S
from ariane.clock import Clock
from ariane.errors import RequestFailed, SettingsError
from ariane.model.topic import DataVersion
from ariane.nameserver.access import need_of
from ariane.nameserver.key_values import KeyValues
from ariane.nameserver.route_table import RouteTable
from ariane.nameserver.server import handler_table
from ariane.nameserver.settings import NameserverSettings
from ariane.rpc.caller import Caller
from ariane.rpc.dispatcher import Dispatcher
from ariane.rpc.handlers import HandlerTable
from ariane.rpc.signing import Signer
from ariane.settings import Secret
from ariane.testing import FakeClock
from ariane.transport.pool import Pool
from ariane.transport.settings import TransportSettings
from ariane.wire.codes import RequestCode, ResponseCode
from ariane.wire.exchange import request_command
from ariane.wire.fields import Request
from ariane.wire.requests.brokers import (
    AddWritePermission,
    BrokerHeartbeat,
    DeleteKeyValue,
    GetKeyValue,
    GetNameserverSettings,
    ListKeyValues,
    PutKeyValue,
    QueryDataVersion,
    RegisterBroker,
    UnregisterBroker,
    WipeWritePermission,
)
from ariane.wire.requests.topics import (
    DeleteTopicInNameserver,
    GetCluster,
    GetRoute,
    ListSystemTopics,
    ListTopics,
    ListTopicsByCluster,
    ListUnitSubscribedPlainTopics,
    ListUnitSubscribedTopics,
    ListUnitTopics,
)
from ariane.wire.signature import ACCESS_KEY, SIGNATURE, content_to_sign, sign
from tests.nameserver.servers import caller, nameserver, registration

ACCOUNTS = """
accounts:
- {accessKey: reader1, secretKey: secret-of-reader, defaultTopicPerm: SUB}
- {accessKey: broker1, secretKey: secret-of-broker, brokers: [broker-a]}
- {accessKey: brokers, secretKey: secret-of-brokers, brokers: ["*"]}
- {accessKey: administrator, secretKey: secret-of-admin, admin: true}
"""
SECRETS = {
    "reader1": "secret-of-reader",
    "broker1": "secret-of-broker",
    "brokers": "secret-of-brokers",
    "administrator": "secret-of-admin",
}
IDENTITY: dict[str, Any] = {
    "broker_name": "broker-a",
    "broker_addr": "127.0.0.1:10911",
    "cluster_name": "DefaultCluster",
    "broker_id": 0,
}

EVERYBODY: set[str | None] = {None, "reader1", "broker1", "administrator"}
BROKER: set[str | None] = {"broker1", "administrator"}
ADMIN: set[str | None] = {"administrator"}

TABLE: dict[RequestCode, tuple[Request[Any], set[str | None]]] = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: (GetRoute("orders"), EVERYBODY),
    RequestCode.GET_BROKER_CLUSTER_INFO: (GetCluster(), EVERYBODY),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: (ListTopics(), EVERYBODY),
    RequestCode.GET_TOPICS_BY_CLUSTER: (ListTopicsByCluster("DefaultCluster"), EVERYBODY),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: (ListSystemTopics(), EVERYBODY),
    RequestCode.GET_UNIT_TOPIC_LIST: (ListUnitTopics(), EVERYBODY),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: (ListUnitSubscribedTopics(), EVERYBODY),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: (ListUnitSubscribedPlainTopics(), EVERYBODY),
    RequestCode.GET_KV_CONFIG: (GetKeyValue("space", "key"), EVERYBODY),
    RequestCode.GET_KVLIST_BY_NAMESPACE: (ListKeyValues("space"), EVERYBODY),
    RequestCode.REGISTER_BROKER: (registration("orders"), BROKER),
    RequestCode.UNREGISTER_BROKER: (UnregisterBroker(**IDENTITY), BROKER),
    RequestCode.QUERY_DATA_VERSION: (QueryDataVersion(**IDENTITY, body=DataVersion()), BROKER),
    RequestCode.BROKER_HEARTBEAT: (BrokerHeartbeat(**IDENTITY), BROKER),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: (WipeWritePermission("broker-a"), ADMIN),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: (AddWritePermission("broker-a"), ADMIN),
    RequestCode.PUT_KV_CONFIG: (PutKeyValue("space", "key", "value"), ADMIN),
    RequestCode.DELETE_KV_CONFIG: (DeleteKeyValue("space", "key"), ADMIN),
    RequestCode.GET_NAMESRV_CONFIG: (GetNameserverSettings(), ADMIN),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: (DeleteTopicInNameserver("orders", None), ADMIN),
}


@asynccontextmanager
async def guarded(
    tmp_path: Path, content: str = ACCOUNTS, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[str]:
    file = tmp_path / "accounts.yml"
    file.write_text(content)
    async with nameserver(NameserverSettings(port=0, acl_enable=True, acl_file=file, **settings), clock) as address:
        yield address


@asynccontextmanager
async def client_of(account: str | None, secret: str | None = None) -> AsyncIterator[Caller]:
    """A connection of its own, signed for `account`."""
    if account is None:
        async with caller() as client:
            yield client
        return
    signer = Signer(account, Secret(secret or SECRETS[account]), Clock().now_ms)
    async with Pool.open(TransportSettings(), Clock(), Dispatcher(HandlerTable.of()).receive) as pool:
        yield Caller(pool, signer=signer)


async def is_allowed(client: Caller, address: str, request: Request[Any]) -> bool:
    try:
        await client.call(address, request)
    except RequestFailed as error:
        return error.code != ResponseCode.NO_PERMISSION
    return True


def test_every_request_of_the_nameserver_has_a_verdict() -> None:
    served = handler_table(NameserverSettings(), RouteTable(), KeyValues(None), Clock()).codes()
    assert {int(code) for code in TABLE} == served


def test_a_request_without_a_rule_needs_an_administrator() -> None:
    from ariane.wire.requests.brokers import GetRuntimeInfo

    assert need_of(GetRuntimeInfo).name == "ADMIN"


@pytest.mark.parametrize("account", [None, "reader1", "broker1", "administrator"])
async def test_every_request_by_every_kind_of_account(tmp_path: Path, account: str | None) -> None:
    async with guarded(tmp_path) as address, client_of("administrator") as admin, client_of(account) as client:
        await admin.call(address, PutKeyValue("space", "key", "value"))
        verdicts = {code: await is_allowed(client, address, request) for code, (request, _) in TABLE.items()}
    assert verdicts == {code: account in allowed for code, (_, allowed) in TABLE.items()}


@pytest.mark.parametrize("code", [code for code, (_, allowed) in TABLE.items() if allowed != EVERYBODY])
async def test_a_refused_request_changes_nothing(tmp_path: Path, code: RequestCode) -> None:
    request, _ = TABLE[code]
    async with guarded(tmp_path) as address, client_of("broker1") as broker, client_of("administrator") as admin:
        if not isinstance(request, RegisterBroker):
            await broker.call(address, registration("orders"))
        await admin.call(address, PutKeyValue("space", "key", "kept"))
        before = await state(admin, address)
        for account in (None, "reader1"):
            async with client_of(account) as client:
                with pytest.raises(RequestFailed) as refused:
                    await client.call(address, request)
                assert refused.value.code == ResponseCode.NO_PERMISSION
                assert f"{code.name} ({int(code)})" in (refused.value.remark or "")
        assert await state(admin, address) == before


async def state(admin: Caller, address: str) -> list[object]:
    found: list[object] = [(await admin.call(address, GetCluster())).body]
    found.append((await admin.call(address, ListTopics())).body)
    found.append((await admin.call(address, ListKeyValues("space"))).body)
    if (await admin.call(address, ListTopics())).body.topic_list:
        found.append((await admin.call(address, GetRoute("orders"))).body)
    return found


async def test_wrong_secrets_unknown_accounts_and_foreign_names_are_refused(tmp_path: Path) -> None:
    async with guarded(tmp_path) as address:
        for account, secret in (("broker1", "wrong-secret"), ("nobody1", "whatever")):
            async with client_of(account, secret) as client:
                assert not await is_allowed(client, address, registration("orders"))
        async with client_of("broker1") as client:
            assert not await is_allowed(client, address, registration("orders", broker="broker-b"))
            assert not await is_allowed(client, address, BrokerHeartbeat(**{**IDENTITY, "broker_name": "broker-b"}))
        async with client_of("brokers") as client:
            assert await is_allowed(client, address, registration("orders", broker="broker-b"))


async def test_an_unsigned_registration_gets_the_cause_and_the_ways_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "ariane.nameserver.access")
    async with guarded(tmp_path) as address, caller() as apache:
        with pytest.raises(RequestFailed) as refused:
            await apache.call(address, registration("orders"))
    for word in ("REGISTER_BROKER", "access control", "namesrvAccessKey", "globalWhiteRemoteAddresses"):
        assert word in (refused.value.remark or "")
    (record,) = caplog.records
    assert vars(record)["reason"] in (refused.value.remark or "")


async def test_a_broker_that_cannot_sign_registers_from_the_white_list(tmp_path: Path) -> None:
    content = "globalWhiteRemoteAddresses: [127.0.0.1]\n" + ACCOUNTS
    async with guarded(tmp_path, content) as address, caller() as apache, caller() as second:
        await apache.call(address, registration("orders"))
        assert (await apache.call(address, GetRoute("orders"))).body.broker_datas[0].broker_name == "broker-a"
        assert not await is_allowed(second, address, registration("orders", address="127.0.0.1:4711"))  # it is alive


async def test_apaches_signatures_are_accepted_unless_version_2_is_required(tmp_path: Path) -> None:
    command = request_command(PutKeyValue("space", "key", "value"), opaque=0)
    ext = command.ext | {ACCESS_KEY: "administrator"}
    content = content_to_sign(ext, command.body, with_unique_key_query=False)
    command.ext_texts = ext | {SIGNATURE: sign(SECRETS["administrator"], content)}
    codes = {}
    for required in (False, True):
        async with (
            guarded(tmp_path, acl_require_v2=required) as address,
            Pool.open(TransportSettings(), Clock(), Dispatcher(HandlerTable.of()).receive) as pool,
        ):
            codes[required] = (await pool.call(address, command, 10.0)).code
    assert codes == {False: ResponseCode.SUCCESS, True: ResponseCode.NO_PERMISSION}


async def test_a_recorded_registration_cannot_be_sent_again(tmp_path: Path) -> None:
    async with (
        guarded(tmp_path) as address,
        Pool.open(TransportSettings(), Clock(), Dispatcher(HandlerTable.of()).receive) as pool,
        caller() as client,
    ):
        signer, command = Signer("broker1", Secret(SECRETS["broker1"]), Clock().now_ms), None
        connection = await pool.connection(address)
        for _ in range(3):
            command = request_command(registration("orders"), opaque=0)
            signer.sign(command, connection)
            if not signer.learn(connection, command, await connection.call(command, 10.0)):
                break
        assert command is not None
        assert (await client.call(address, GetRoute("orders"))).body is not None
        assert (await connection.call(command, 10.0)).code == ResponseCode.NO_PERMISSION  # on its own connection
        async with Pool.open(TransportSettings(), Clock(), Dispatcher(HandlerTable.of()).receive) as thief:
            assert (await thief.call(address, command, 10.0)).code == ResponseCode.NO_PERMISSION


async def test_accounts_are_read_again_when_the_file_changes(tmp_path: Path) -> None:
    clock = FakeClock()
    async with guarded(tmp_path, "accounts: []\n", clock) as address, client_of("broker1") as client:
        assert not await is_allowed(client, address, registration("orders"))
        (tmp_path / "accounts.yml").write_text(ACCOUNTS)
        for _ in range(100):
            await clock.advance(POLL_INTERVAL_S)
            if await is_allowed(client, address, registration("orders")):
                return
        pytest.fail("the file was not read again")


async def test_a_nameserver_without_its_file_does_not_start(tmp_path: Path) -> None:
    settings = NameserverSettings(port=0, acl_enable=True, acl_file=tmp_path / "missing.yml")
    with pytest.raises(ExceptionGroup) as failed:
        async with nameserver(settings):
            pass
    assert failed.group_contains(SettingsError, match=r"missing\.yml does not exist")
