"""The nameserver over real sockets: every request, expiry, persistence, and hostile input."""

import asyncio
import logging
import os
import signal
from pathlib import Path

import pytest

from ariane.errors import RequestFailed, TransportError
from ariane.model.route import BrokerData, QueueData
from ariane.model.topic import DataVersion, Permission, TopicConfig, TopicSysFlag
from ariane.rpc.caller import Caller
from ariane.testing import FakeClock
from ariane.wire.codes import RequestCode, ResponseCode, Serialization
from ariane.wire.frame import Command, encode_frame
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
    UpdateNameserverSettings,
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
from tests.nameserver.servers import (
    SETTINGS,
    caller,
    corrupted,
    nameserver,
    nameserver_process,
    registration,
    with_settings,
)
from tests.transport.peers import RawClient, until


async def error_of(call: "object") -> RequestFailed:
    with pytest.raises(RequestFailed) as caught:
        await call  # type: ignore[misc]
    return caught.value


async def has_route(client: Caller, address: str, topic: str) -> bool:
    try:
        await client.call(address, GetRoute(topic))
    except RequestFailed as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return False
    return True


@pytest.mark.parametrize("serialization", Serialization)
@pytest.mark.parametrize("compressed", [False, True])
async def test_a_registered_broker_is_found_by_its_topics(serialization: Serialization, compressed: bool) -> None:
    async with nameserver() as address, caller(serialization) as client:
        topic = TopicConfig(topic_name="orders", read_queue_nums=8, write_queue_nums=4)
        await client.call(address, registration(topic, "TBW102", compressed=compressed))
        route = (await client.call(address, GetRoute("orders"))).body
        assert route.queue_datas == [
            QueueData(broker_name="broker-a", read_queue_nums=8, write_queue_nums=4, perm=Permission.READ_WRITE)
        ]
        assert route.broker_datas == [
            BrokerData(cluster="DefaultCluster", broker_name="broker-a", broker_addrs={0: "127.0.0.1:10911"})
        ]


async def test_an_unknown_topic_is_code_17_with_a_hint() -> None:
    async with nameserver() as address, caller() as client:
        error = await error_of(client.call(address, GetRoute("nowhere")))
        assert error.code == ResponseCode.TOPIC_NOT_EXIST
        assert "nowhere" in error.remark
        assert "create the topic" in error.remark


async def raw_route(address: str, version: int, standard_only: bool = False) -> bytes:
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    ext = {"topic": "orders"} | ({"acceptStandardJsonOnly": "true"} if standard_only else {})
    client = RawClient(reader, writer)
    await client.send(encode_frame(Command(code=RequestCode.GET_ROUTEINFO_BY_TOPIC, version=version, ext_texts=ext)))
    body = (await client.read()).body
    writer.close()
    await writer.wait_closed()
    return body


async def test_trap_03_old_clients_get_bare_broker_ids_and_new_ones_quoted() -> None:
    async with nameserver() as address, caller() as client:
        await client.call(address, registration("orders"))
        bare, quoted = b'"brokerAddrs":{0:"127.0.0.1:10911"}', b'"brokerAddrs":{"0":"127.0.0.1:10911"}'
        assert bare in await raw_route(address, version=317)
        assert bare in await raw_route(address, version=400)
        assert quoted in await raw_route(address, version=401)
        assert quoted in await raw_route(address, version=317, standard_only=True)
        body = await raw_route(address, version=317)
        assert b" " not in body
        assert b'"topicSynFlag":0' in body
        assert b'"topicSysFlag":0' in body


async def test_a_slave_learns_its_master() -> None:
    async with nameserver() as address, caller() as client:
        first = await client.call(address, registration("orders"))
        assert (first.master_addr, first.ha_server_addr, first.body) == (None, None, None)
        slave = await client.call(address, registration("orders", address="127.0.0.1:10921", broker_id=1))
        assert (slave.master_addr, slave.ha_server_addr) == ("127.0.0.1:10911", "127.0.0.1:10912")
        route = (await client.call(address, GetRoute("orders"))).body
        assert route.broker_datas[0].broker_addrs == {0: "127.0.0.1:10911", 1: "127.0.0.1:10921"}


async def test_trap_12_a_body_that_does_not_match_its_checksum_is_refused() -> None:
    async with nameserver() as address, caller() as client:
        error = await error_of(client.call(address, corrupted(registration("orders"))))
        assert error.code == ResponseCode.SYSTEM_ERROR
        assert "checksum" in error.remark
        assert not await has_route(client, address, "orders")


@pytest.mark.parametrize(
    "invalid",
    [
        registration("orders", address="nowhere"),
        registration("orders", broker=""),
        registration("orders", broker="a\nb"),
        registration("orders", cluster="x" * 300),
        registration("orders", broker_id=-1),
    ],
)
async def test_a_broker_with_an_invalid_name_or_address_is_refused(invalid: RegisterBroker) -> None:
    async with nameserver() as address, caller() as client:
        await error_of(client.call(address, invalid))
        assert not await has_route(client, address, "orders")


async def test_an_unregistered_broker_is_gone() -> None:
    async with nameserver() as address, caller() as client:
        await client.call(address, registration("orders"))
        request = UnregisterBroker(
            broker_name="broker-a", broker_addr="127.0.0.1:10911", cluster_name="DefaultCluster", broker_id=0
        )
        await client.call(address, request)
        assert not await has_route(client, address, "orders")
        assert (await client.call(address, GetCluster())).body.broker_addr_table == {}


async def test_a_broker_is_dropped_when_its_connection_closes(caplog: pytest.LogCaptureFixture) -> None:
    async with nameserver() as address, caller() as client:
        async with caller() as broker:
            await broker.call(address, registration("orders"))
            assert await has_route(client, address, "orders")
        await until(lambda: any("connection closed" in record.message for record in caplog.records))
        assert not await has_route(client, address, "orders")


async def test_a_silent_broker_is_dropped_120_seconds_after_its_last_heartbeat() -> None:
    clock = FakeClock()
    patient = with_settings(transport=SETTINGS.transport.__class__(idle_timeout_s=3600, first_frame_timeout_s=3600))
    async with nameserver(patient, clock) as address, caller() as client:
        await client.call(address, registration("orders"))
        await clock.advance(115)
        assert await has_route(client, address, "orders")
        beat = BrokerHeartbeat(cluster_name="DefaultCluster", broker_addr="127.0.0.1:10911", broker_name="broker-a")
        await client.call(address, beat)
        await clock.advance(115)
        assert await has_route(client, address, "orders")
        await clock.advance(16)
        assert not await has_route(client, address, "orders")


async def test_a_broker_can_ask_whether_it_must_register_again() -> None:
    async with nameserver() as address, caller() as client:

        def request(counter: int) -> QueryDataVersion:
            return QueryDataVersion(
                broker_name="broker-a", broker_addr="127.0.0.1:10911", cluster_name="DefaultCluster", broker_id=0,
                body=DataVersion(timestamp=1_700_000_000_000, counter=counter),
            )  # fmt: skip

        assert (await client.call(address, request(1))).changed
        await client.call(address, registration("orders", counter=1))
        same = await client.call(address, request(1))
        assert (same.changed, same.body) == (False, DataVersion(timestamp=1_700_000_000_000, counter=1))
        assert (await client.call(address, request(2))).changed


async def test_write_permission_can_be_wiped_and_restored() -> None:
    async with nameserver() as address, caller() as client:
        await client.call(address, registration("orders", "payments"))
        assert (await client.call(address, WipeWritePermission("broker-a"))).wipe_topic_count == 2
        route = (await client.call(address, GetRoute("orders"))).body
        assert route.queue_datas[0].perm == Permission.READ
        assert (await client.call(address, AddWritePermission("broker-a"))).add_topic_count == 2
        route = (await client.call(address, GetRoute("orders"))).body
        assert route.queue_datas[0].perm == Permission.READ_WRITE


async def test_topics_are_listed_by_cluster_by_flag_and_all() -> None:
    async with nameserver() as address, caller() as client:
        unit = TopicConfig(topic_name="unit", topic_sys_flag=TopicSysFlag.UNIT)
        subscribed = TopicConfig(topic_name="subscribed", topic_sys_flag=TopicSysFlag.UNIT_SUBSCRIPTION)
        await client.call(address, registration("orders", unit, subscribed))
        await client.call(address, registration("west", broker="broker-b", address="127.0.0.1:10931", cluster="West"))

        async def names(request: object) -> set[str]:
            return set((await client.call(address, request)).body.topic_list)  # type: ignore[arg-type]

        assert await names(ListTopics()) == {"orders", "unit", "subscribed", "west"}
        assert await names(ListTopicsByCluster("West")) == {"west"}
        assert await names(ListUnitTopics()) == {"unit"}
        assert await names(ListUnitSubscribedTopics()) == {"subscribed"}
        assert await names(ListUnitSubscribedPlainTopics()) == {"subscribed"}
        system = (await client.call(address, ListSystemTopics())).body
        assert set(system.topic_list) == {"DefaultCluster", "West", "broker-a", "broker-b"}
        assert system.broker_addr in ("127.0.0.1:10911", "127.0.0.1:10931")
        await client.call(address, DeleteTopicInNameserver("orders"))
        assert not await has_route(client, address, "orders")


async def test_key_value_pairs_outlive_a_restart(tmp_path: Path) -> None:
    settings = with_settings(kv_config_path=tmp_path / "kvConfig.json", order_message_enable=True)
    async with nameserver(settings) as address, caller() as client:
        await client.call(address, PutKeyValue("ORDER_TOPIC_CONFIG", "orders", "broker-a:4"))
    async with nameserver(settings) as address, caller() as client:
        assert (await client.call(address, GetKeyValue("ORDER_TOPIC_CONFIG", "orders"))).value == "broker-a:4"
        assert (await client.call(address, ListKeyValues("ORDER_TOPIC_CONFIG"))).body.table == {"orders": "broker-a:4"}
        response = await client.call(address, registration("orders"))
        assert response.body is not None
        assert response.body.table == {"orders": "broker-a:4"}
        assert (await client.call(address, GetRoute("orders"))).body.order_topic_conf == "broker-a:4"
        await client.call(address, DeleteKeyValue("ORDER_TOPIC_CONFIG", "orders"))
        assert (await client.call(address, GetRoute("orders"))).body.order_topic_conf is None
        error = await error_of(client.call(address, GetKeyValue("ORDER_TOPIC_CONFIG", "orders")))
        assert error.code == ResponseCode.QUERY_NOT_FOUND


async def test_settings_can_be_read_but_not_changed() -> None:
    async with nameserver() as address, caller() as client:
        text = (await client.call(address, GetNameserverSettings())).body
        assert "orderMessageEnable=false\n" in text
        assert "assword" not in text
        error = await error_of(client.call(address, UpdateNameserverSettings(body="kvConfigPath=/etc/passwd\n")))
        assert error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert (await client.call(address, GetNameserverSettings())).body == text


async def test_the_configuration_is_printed_every_ten_minutes_at_debug_level(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    with caplog.at_level(logging.DEBUG, logger="ariane.nameserver.server"):
        async with nameserver(clock=clock) as address, caller() as client:
            await client.call(address, PutKeyValue("N", "k", "v"))
            await clock.advance(1201)
            printed = [record for record in caplog.records if record.message == "configuration"]
            assert [vars(record)["table"] for record in printed] == [{"N": {"k": "v"}}] * 2


async def test_a_changed_registration_changes_the_route_immediately() -> None:
    async with nameserver() as address, caller() as client:
        await client.call(address, registration(TopicConfig(topic_name="orders", write_queue_nums=4), counter=1))
        assert (await client.call(address, GetRoute("orders"))).body.queue_datas[0].write_queue_nums == 4
        await client.call(address, registration(TopicConfig(topic_name="orders", write_queue_nums=8), counter=2))
        assert (await client.call(address, GetRoute("orders"))).body.queue_datas[0].write_queue_nums == 8


async def test_when_one_of_two_nameservers_is_killed_the_other_still_answers() -> None:
    with nameserver_process() as (first, first_address), nameserver_process() as (_, second_address):
        async with caller() as broker, caller() as client:
            for address in (first_address, second_address):
                await broker.call(address, registration("orders", "TBW102"))
                assert await has_route(client, address, "orders")
            os.kill(first.pid, signal.SIGKILL)
            first.wait()
            assert await has_route(client, second_address, "orders")
            with pytest.raises(TransportError):
                await client.call(first_address, GetRoute("orders"))
            await broker.call(second_address, registration("orders", "TBW102"))
            assert await has_route(client, second_address, "orders")


async def test_trap_18_a_first_registration_with_a_single_topic_is_accepted() -> None:
    """5.x nameservers refuse it. Ariane's brokers send their system topics along; this nameserver accepts both."""
    async with nameserver() as address, caller() as client:
        await client.call(address, registration("orders"))
        assert await has_route(client, address, "orders")
        await client.call(address, registration("orders", "payments"))
        assert await has_route(client, address, "payments")


async def test_a_body_of_200_000_brackets_is_refused_while_others_are_served() -> None:
    async with nameserver() as address, caller() as hostile, caller() as client:
        deep = RegisterBroker(
            broker_name="b", broker_addr="127.0.0.1:1", cluster_name="c", broker_id=0, body=b"[" * 200_000
        )
        refused = asyncio.ensure_future(error_of(hostile.call(address, deep)))
        await client.call(address, registration("orders"))
        assert await has_route(client, address, "orders")
        assert "nests deeper" in (await refused).remark
