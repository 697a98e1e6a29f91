"""A client instance: identity, signatures, forks, heartbeats."""

import os
import subprocess
import sys

import pytest

from ariane.client.core.instance import Instance
from ariane.client.core.lifecycle import NonTransactionalProducer
from ariane.client.settings import ClientSettings, settings_for
from ariane.errors import ClientClosed, ClientError, SettingsError
from ariane.settings import Secret
from ariane.testing import FakeClock
from ariane.wire.codes import RequestCode
from ariane.wire.requests.clients import GetRunningInfo, Heartbeat, HeartbeatData
from ariane.wire.requests.topics import GetCluster
from ariane.wire.signature import verify
from tests.client.scripted_broker import Cluster, cluster


def settings(where: Cluster | str, **changes: object) -> ClientSettings:
    return ClientSettings(
        nameservers=where if isinstance(where, str) else where.nameserver,
        **changes,  # type: ignore[arg-type]
    )


async def test_a_client_is_named_by_its_address_and_process() -> None:
    async with Instance.open(settings("127.0.0.1:9876")) as first, Instance.open(settings("127.0.0.1:9876")) as second:
        assert first.client_id.startswith(f"127.0.0.1@{os.getpid()}#")
        assert first.client_id != second.client_id


async def test_instance_and_unit_are_part_of_the_name() -> None:
    wanted = settings("127.0.0.1:9876", instance_name="till", unit_name="north", client_ip="10.1.2.3")
    async with Instance.open(wanted) as instance:
        assert instance.client_id == "10.1.2.3@till@north"


async def test_a_client_opens_with_an_unresolvable_nameserver() -> None:
    async with Instance.open(settings("no-such-host.invalid:9876")) as instance:
        assert instance.client_id.startswith("127.0.0.1@")


async def test_a_server_of_apache_gets_its_own_signatures_one_way_or_not() -> None:
    async with cluster("T") as servers:
        servers.broker.secret = "12345678"
        wanted = settings(servers, access_key="rocket", secret_key=Secret("12345678"), security_token=Secret("tok"))
        async with Instance.open(wanted) as instance:
            await instance.call(servers.broker.address, Heartbeat(body=HeartbeatData(client_id="c")))
            await instance.oneway(servers.broker.address, GetRunningInfo("g", "c"))
            one_way = (await servers.broker.wait_for_request(RequestCode.GET_CONSUMER_RUNNING_INFO))[0]
    for command in (servers.broker.received[1], one_way):
        assert command.ext["AccessKey"] == "rocket"
        assert command.ext["SecurityToken"] == "tok"
        assert verify("12345678", command.ext, command.body)
        assert not verify("87654321", command.ext, command.body)


async def test_a_server_that_checks_nothing_gets_no_signature() -> None:
    """It could be recorded there, and replayed at a server that checks."""
    async with cluster("T") as servers:
        wanted = settings(servers, access_key="rocket", secret_key=Secret("12345678"))
        async with Instance.open(wanted) as instance:
            await instance.oneway(servers.broker.address, GetRunningInfo("g", "c"))
            await instance.call(servers.broker.address, Heartbeat(body=HeartbeatData(client_id="c")))
            await servers.broker.wait_for_request(RequestCode.GET_CONSUMER_RUNNING_INFO)
    for command in servers.broker.received:
        assert "Signature" not in command.ext
        assert command.ext["SignatureV2"] == ""


async def test_without_an_access_key_nothing_is_signed() -> None:
    async with cluster("T") as servers, Instance.open(settings(servers)) as instance:
        await instance.call(servers.broker.address, Heartbeat(body=HeartbeatData(client_id="c")))
        assert servers.broker.received[0].ext == {}


def test_a_key_without_its_secret_is_refused() -> None:
    with pytest.raises(SettingsError, match="come together"):
        ClientSettings(access_key="rocket")


@pytest.mark.parametrize("text", ["", ";", "nowhere", "host:port", "1.2.3.4:99999"])
def test_a_list_of_nameservers_without_an_address_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="HOST:PORT"):
        ClientSettings(nameservers=text)


def test_nameservers_are_a_string_or_an_iterable() -> None:
    assert settings_for("a:1;b:2, http://c:3", None).nameserver_list == ("a:1", "b:2", "c:3")
    assert settings_for(["a:1", "b:2"], None).nameserver_list == ("a:1", "b:2")
    assert settings_for(None, ClientSettings(nameservers="z:9")).nameserver_list == ("z:9",)


async def test_the_vip_channel_is_two_ports_below() -> None:
    async with Instance.open(settings("127.0.0.1:9876", vip_channel=True)) as instance:
        assert instance.send_address("10.0.0.1:10911") == "10.0.0.1:10909"
    async with Instance.open(settings("127.0.0.1:9876")) as instance:
        assert instance.send_address("10.0.0.1:10911") == "10.0.0.1:10911"


async def test_a_closed_client_raises_client_closed() -> None:
    async with Instance.open(settings("127.0.0.1:9876")) as instance:
        pass
    with pytest.raises(ClientClosed, match="open a new one"):
        await instance.call("127.0.0.1:1", GetCluster())


FORKING = """
import asyncio, os
from ariane.client.core.instance import Instance
from ariane.client.settings import ClientSettings
from ariane.errors import ClientClosed

async def main():
    async with Instance.open(ClientSettings()) as instance:
        instance.check_usable()
        if os.fork() == 0:
            try:
                instance.check_usable()
            except ClientClosed as error:
                os.write(1, str(error).encode())
            os._exit(0)
        os.wait()

asyncio.run(main())
"""


def test_a_forked_child_gets_an_error_with_a_hint() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True)
    assert "make a new client in the child" in done.stdout


# --- heartbeats


async def test_a_heartbeat_is_sent_on_registration_and_every_thirty_seconds() -> None:
    clock = FakeClock()
    async with cluster("T") as servers, Instance.open(settings(servers), clock=clock) as instance:
        await instance.routes.route("T")
        instance.register_producer("pg", NonTransactionalProducer("pg"))
        (beat,) = await servers.broker.wait_for_request(RequestCode.HEART_BEAT)
        data = HeartbeatData.from_bytes(beat.body)
        assert data.client_id == instance.client_id
        assert [producer.group_name for producer in data.producer_data_set] == ["pg"]
        await clock.advance(29)
        assert len(servers.broker.received_of(RequestCode.HEART_BEAT)) == 1
        await clock.advance(1)
        await servers.broker.wait_for_request(RequestCode.HEART_BEAT, 2)


async def test_a_new_broker_in_a_route_gets_a_heartbeat_immediately() -> None:
    async with cluster("T") as servers, Instance.open(settings(servers)) as instance:
        instance.register_producer("pg", NonTransactionalProducer("pg"))
        await instance.routes.route("T")
        await servers.broker.wait_for_request(RequestCode.HEART_BEAT)


async def test_without_registered_clients_no_heartbeat_is_sent() -> None:
    async with cluster("T") as servers, Instance.open(settings(servers)) as instance:
        await instance.routes.route("T")
        await instance.heartbeat_now()
        assert servers.broker.received == []


async def test_brokers_get_an_unregistration_when_a_client_closes() -> None:
    async with cluster("T") as servers, Instance.open(settings(servers)) as instance:
        await instance.routes.route("T")
        instance.register_producer("pg", NonTransactionalProducer("pg"))
        await instance.heartbeat_now()
        await instance.unregister_producer("pg")
        (leave,) = servers.broker.received_of(RequestCode.UNREGISTER_CLIENT)
        assert leave.ext == {"clientID": instance.client_id, "producerGroup": "pg"}


async def test_a_broker_that_is_down_does_not_affect_the_others() -> None:
    async with cluster("T", brokers=2) as servers, Instance.open(settings(servers)) as instance:
        await instance.routes.route("T")
        await servers.brokers[0].stop()
        instance.register_producer("pg", NonTransactionalProducer("pg"))
        await instance.heartbeat_now()
        assert servers.brokers[1].received_of(RequestCode.HEART_BEAT)


async def test_one_client_has_one_producer_of_a_group() -> None:
    async with Instance.open(settings("127.0.0.1:9876")) as instance:
        instance.register_producer("pg", NonTransactionalProducer("pg"))
        with pytest.raises(ClientError, match="already has a producer"):
            instance.register_producer("pg", NonTransactionalProducer("pg"))
