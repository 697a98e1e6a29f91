"""What every key of replication in a `broker.conf` does: loaded from a file, on running brokers, over sockets."""

import asyncio
import inspect
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ariane.broker.server import running
from ariane.broker.settings import BrokerSettings
from ariane.broker.settings.rocketmq_keys import UNSUPPORTED
from ariane.clock import Clock
from ariane.errors import RequestFailed
from ariane.model.topic import TopicConfig
from ariane.replication.frames import classic_report
from ariane.replication.master import Master
from ariane.replication.settings import ReplicationSettings
from ariane.settings import describe, load
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.brokers import RegisterBroker
from ariane.wire.requests.topics import GetRoute
from tests.broker.brokers import SMALL_STORE, RunningBroker
from tests.broker.in_process_broker import TOPIC, a_pull, a_send
from tests.broker.test_server_replication import a_caller
from tests.nameserver.servers import nameserver
from tests.replication.peers import frames_until, is_closed, peer_of
from tests.transport.peers import until

SHOWN: dict[str, Callable[..., Any]] = {}


def shows(*keys: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Marks the test that shows what these keys do."""

    def marked(test: Callable[..., Any]) -> Callable[..., Any]:
        SHOWN.update(dict.fromkeys(keys, test))
        return test

    return marked


def test_every_key_of_replication_is_shown_by_a_test_that_sets_it() -> None:
    declared = {key.name for spec in describe(ReplicationSettings) for key in spec.keys}
    others = {"brokerRole", "brokerId", "haListenPort", "slaveReadEnable", "accessMessageInMemoryMaxRatio"}
    assert SHOWN.keys() == declared | others
    assert [key for key, test in SHOWN.items() if f"{key}=" not in inspect.getsource(test)] == []


@asynccontextmanager
async def broker_of(directory: Path, *lines: str) -> AsyncIterator[RunningBroker]:
    """A broker with these lines in its file, on free ports; a master has the topic."""
    file = directory.with_suffix(".conf")
    base = (
        "brokerName=broker-a", "listenPort=0", f"storePathRootDir={directory / 'store'}",
        f"mappedFileSizeCommitLog={SMALL_STORE['segment_bytes']}",
    )  # fmt: skip
    file.write_text("\n".join((*base, *lines)))
    loaded = load(BrokerSettings, section="broker", file=file, environ={}, flags={}, unsupported=UNSUPPORTED)
    async with running(loaded.settings, Clock()) as broker:
        if not loaded.settings.is_slave:
            broker.parts.topics.put(TopicConfig(topic_name=TOPIC))
        yield RunningBroker(str(broker.address), broker.settings, broker.parts, broker)


def port_of(broker: RunningBroker) -> Master:
    assert broker.broker.replication.master is not None
    return broker.broker.replication.master


def end_of(broker: RunningBroker) -> int:
    return broker.parts.store.store.components.commit_log.max_offset


@shows("brokerRole")
async def test_the_role_decides_what_a_send_gets(tmp_path: Path) -> None:
    async with a_caller() as caller:
        for role, code in (("ASYNC_MASTER", ResponseCode.SUCCESS), ("SYNC_MASTER", ResponseCode.SLAVE_NOT_AVAILABLE)):
            async with broker_of(tmp_path / role, f"brokerRole={role}") as broker:
                assert (await caller.call(broker.address, a_send(b"x"))).code == code
        nobody = "haMasterAddress=127.0.0.1:1"
        async with broker_of(tmp_path / "slave", "brokerRole=SLAVE", "brokerId=1", nobody) as broker:
            with pytest.raises(RequestFailed) as refused:
                await caller.call(broker.address, a_send(b"x"))
            assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE


@shows("brokerId")
async def test_slaves_are_in_the_route_under_their_ids(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(nameserver())
        caller = await stack.enter_async_context(a_caller())
        named = f"namesrvAddr={address}"
        members = {0: await stack.enter_async_context(broker_of(tmp_path / "master", named))}
        for number in (1, 7):
            slave = broker_of(tmp_path / f"{number}", named, "brokerRole=SLAVE", f"brokerId={number}")
            members[number] = await stack.enter_async_context(slave)
        await until(lambda: {status.member for status in port_of(members[0]).slaves()} == {1, 7})
        await members[0].broker.registration.announced()
        (data,) = (await caller.call(address, GetRoute(topic=TOPIC))).body.broker_datas
        assert dict(data.broker_addrs) == {number: member.address for number, member in members.items()}


@shows("haMasterAddress")
async def test_a_slave_follows_the_address_of_its_file_without_a_nameserver(tmp_path: Path) -> None:
    async with a_caller() as caller, broker_of(tmp_path / "master") as master:
        await caller.call(master.address, a_send(b"x"))
        where = f"haMasterAddress={port_of(master).address}"
        async with broker_of(tmp_path / "slave", "brokerRole=SLAVE", "brokerId=1", where) as slave:
            follower = slave.broker.replication.slave
            assert follower is not None
            await until(lambda: follower.log.dispatched_to == end_of(master))
            await until(lambda: [status.behind_bytes for status in port_of(master).slaves()] == [0])


@shows("haListenPort")
async def test_the_replication_port_is_the_one_above_the_main_port_whatever_the_file_says(tmp_path: Path) -> None:
    async with broker_of(tmp_path / "master", "haListenPort=1") as master:
        assert port_of(master).address.port == int(master.address.rpartition(":")[2]) + 1
        async with peer_of(port_of(master)) as (_, writer):
            writer.write(bytes(8))
            await until(port_of(master).slaves)


@shows("brokerIP2")
async def test_slaves_learn_the_address_of_the_replication_port_from_the_nameserver(tmp_path: Path) -> None:
    async with (
        nameserver() as address,
        a_caller() as caller,
        broker_of(tmp_path / "master", f"namesrvAddr={address}", "brokerIP2=127.0.0.2") as master,
    ):
        request = RegisterBroker(
            broker_name="broker-a", broker_addr="127.0.0.1:1", cluster_name="DefaultCluster", broker_id=9
        )
        response = await caller.call(address, request)
        assert (response.master_addr, response.ha_server_addr) == (
            master.address,
            f"127.0.0.2:{port_of(master).address.port}",
        )


@shows("haSendHeartbeatInterval")
async def test_an_idle_slave_gets_heartbeats_as_often_as_the_file_says(tmp_path: Path) -> None:
    """By default the connection would be closed for its silence before the first one."""
    async with (
        broker_of(tmp_path / "master", "haSendHeartbeatInterval=20", "haHousekeepingInterval=3000") as master,
        peer_of(port_of(master)) as (reader, writer),
    ):
        writer.write(bytes(8))
        assert await reader.readexactly(24) == struct.pack(">qiqi", 0, 0, 0, 0)


@shows("haHousekeepingInterval")
async def test_a_silent_connection_is_closed_after_the_time_of_the_file(tmp_path: Path) -> None:
    async with (
        broker_of(tmp_path / "master", "haHousekeepingInterval=200") as master,
        peer_of(port_of(master)) as (reader, writer),
    ):
        writer.write(bytes(8))
        await is_closed(reader)
        await until(lambda: [lost.reason for lost in port_of(master).lost()] == ["nothing was received for 0.2 s"])


@shows("haTransferBatchSize")
async def test_a_frame_to_a_slave_of_apache_is_not_longer_than_the_file_says(tmp_path: Path) -> None:
    for number, (lines, longest) in enumerate(((["haTransferBatchSize=1024"], 1024), ([], 32 * 1024))):
        async with a_caller() as caller, broker_of(tmp_path / f"{number}", *lines) as master:
            await caller.call(master.address, a_send(bytes(100_000)))
            async with peer_of(port_of(master)) as (reader, writer):
                writer.write(classic_report(0))
                frames = await frames_until(reader, end_of(master))
            assert max(len(body) for _, _, body in frames) == longest


@shows("haSlaveFallbehindMax")
async def test_a_slave_that_is_further_behind_is_not_waited_for(tmp_path: Path) -> None:
    """Else the send would wait for ten minutes."""
    lines = ("brokerRole=SYNC_MASTER", "slaveTimeout=600000", "haSlaveFallbehindMax=1000")
    async with (
        a_caller() as caller,
        broker_of(tmp_path / "master", *lines) as master,
        peer_of(port_of(master)) as (_, writer),
    ):
        writer.write(bytes(8))
        await until(port_of(master).slaves)
        response = await caller.call(master.address, a_send(bytes(2000)))
        assert response.code == ResponseCode.SLAVE_NOT_AVAILABLE


@shows("slaveTimeout")
async def test_a_send_waits_for_a_slave_as_long_as_the_file_says(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        caller = await stack.enter_async_context(a_caller())
        sends = []
        for timeout_ms in (50, 600_000):
            lines = ("brokerRole=SYNC_MASTER", f"slaveTimeout={timeout_ms}")
            master = await stack.enter_async_context(broker_of(tmp_path / f"{timeout_ms}", *lines))
            _, writer = await stack.enter_async_context(peer_of(port_of(master)))
            writer.write(bytes(8))
            await until(port_of(master).slaves)
            before = end_of(master)
            sends.append(asyncio.ensure_future(caller.call(master.address, a_send(b"x"), 600)))
            await until(lambda: end_of(master) > before)  # noqa: B023 - called in this iteration
        assert (await sends[0]).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert not sends[1].done()
        writer.write(classic_report(end_of(master)))
        assert (await sends[1]).code == ResponseCode.SUCCESS


@shows("slaveReadEnable", "accessMessageInMemoryMaxRatio")
@pytest.mark.parametrize(
    ("lines", "suggested"),
    [
        (("slaveReadEnable=true", "accessMessageInMemoryMaxRatio=0"), 1),
        (("slaveReadEnable=true", "accessMessageInMemoryMaxRatio=40"), 0),
        (("slaveReadEnable=true",), 0),
        (("slaveReadEnable=false", "accessMessageInMemoryMaxRatio=0"), 0),
        (("accessMessageInMemoryMaxRatio=0",), 0),
    ],
)
async def test_who_is_further_behind_than_memory_reaches_is_sent_to_a_slave(
    tmp_path: Path, lines: tuple[str, ...], suggested: int
) -> None:
    async with a_caller() as caller, broker_of(tmp_path / "master", *lines) as master:
        for _ in range(3):
            await caller.call(master.address, a_send(b"x"))
        assert (await caller.call(master.address, a_pull())).suggest_which_broker_id == suggested


@shows("offsetCheckInSlave")
@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("offsetCheckInSlave=true", (ResponseCode.PULL_OFFSET_MOVED, 1)),
        ("offsetCheckInSlave=false", (ResponseCode.PULL_RETRY_IMMEDIATELY, 77)),
    ],
)
async def test_a_slave_moves_a_consumer_only_if_the_file_says_so(
    tmp_path: Path, line: str, outcome: tuple[int, int]
) -> None:
    async with nameserver() as address, a_caller() as caller:
        named = f"namesrvAddr={address}"
        async with (
            broker_of(tmp_path / "master", named) as master,
            broker_of(tmp_path / "slave", named, "brokerRole=SLAVE", "brokerId=1", line) as slave,
        ):
            await caller.call(master.address, a_send(b"x"))
            follower = slave.broker.replication.slave
            assert follower is not None
            await until(lambda: follower.log.dispatched_to == end_of(master))
            await until(lambda: slave.parts.topics.get(TOPIC) is not None)
            response = await caller.call(slave.address, a_pull(queue_offset=77))
            assert (response.code, response.next_begin_offset) == outcome
