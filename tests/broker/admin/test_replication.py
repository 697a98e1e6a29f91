"""GET_BROKER_HA_STATUS at a master and a slave that run: who follows, who is gone, who was refused, and why."""

import asyncio
import json
from pathlib import Path

import pytest

from ariane.broker.settings import BrokerRole
from ariane.clock import Clock
from ariane.model.topic import TopicConfig
from ariane.replication import metadata
from ariane.replication.settings import ReplicationSettings
from ariane.rpc.caller import Caller
from ariane.transport.pool import Pool
from ariane.transport.settings import TransportSettings
from ariane.wire.exchange import request_command
from ariane.wire.frame import Command
from ariane.wire.requests.brokers import GetRuntimeInfo
from ariane.wire.requests.replication import GetHaStatus, HaStatus
from tests.broker.brokers import RunningBroker, running_broker
from tests.broker.in_process_broker import TOPIC, a_send
from tests.broker.test_server_replication import NO_MASTER, a_caller, a_pair, slave_of
from tests.nameserver.servers import nameserver
from tests.transport.peers import until


@pytest.fixture(autouse=True)
def frequent_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "FIRST_SYNC_S", 0.02)
    monkeypatch.setattr(metadata, "SYNC_INTERVAL_S", 0.02)


async def status_of(caller: Caller, broker: RunningBroker) -> HaStatus:
    return (await caller.call(broker.address, GetHaStatus())).body


def end_of(broker: RunningBroker) -> int:
    return broker.parts.store.store.components.commit_log.max_offset


async def test_a_master_tells_who_follows_it_and_how_far(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        for number in range(5):
            await pair.caller.call(pair.master.address, a_send(b"%d" % number))
        await pair.is_level()
        slave = pair.slave.broker.replication.slave
        assert slave is not None
        master = pair.master.broker.replication.master
        assert master is not None
        await until(lambda: [each.dispatched for each in master.slaves()] == [slave.log.dispatched_to])
        status = await status_of(pair.caller, pair.master)
        end = end_of(pair.master)
        assert (status.master, status.broker_role) == (True, "SYNC_MASTER")
        assert (status.master_commit_log_max_offset, status.in_sync_slave_nums) == (end, 1)
        (connection,) = status.ha_connection_info
        assert (connection.broker_id, connection.in_sync) == (1, True)
        assert (connection.slave_ack_offset, connection.diff, connection.behind_millis) == (end, 0, 0)
        assert (connection.transfer_from_where, connection.dispatched_offset) == (end, end)
        assert connection.addr.startswith("127.0.0.1:")
        assert pair.master.parts.booted_ms <= (connection.connected_timestamp or 0) <= pair.master.parts.clock.now_ms()
        assert status.lost_connections == []


async def test_a_slave_tells_whom_it_follows_and_what_it_has_copied(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        await pair.caller.call(pair.master.address, a_send(b"x"))
        await pair.is_level()
        await until(lambda: pair.slave.broker.replication.slave.status.behind_bytes == 0)  # type: ignore[union-attr]
        status = await status_of(pair.caller, pair.slave)
        assert (status.master, status.broker_role, status.ha_connection_info) == (False, "SLAVE", [])
        own, port = status.ha_client_runtime_info, pair.master.broker.replication.master
        assert port is not None
        assert own.master_addr == str(port.address)
        assert (own.max_offset, own.dispatched_offset) == (end_of(pair.master),) * 2
        assert (own.behind_bytes, own.behind_millis, own.reason) == (0, 0, None)
        assert own.connected_timestamp
        assert own.last_read_timestamp
        assert own.last_write_timestamp
        assert own.metadata_timestamp
        assert own.metadata_failure is None
        assert own.master_flush_offset is None, "not reported by the master: unknown, not 0"


async def test_runtime_info_has_the_role_and_the_master(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        of_master = (await pair.caller.call(pair.master.address, GetRuntimeInfo())).body.table
        of_slave = (await pair.caller.call(pair.slave.address, GetRuntimeInfo())).body.table
        assert (of_master["brokerRole"], of_master.get("masterAddr")) == ("SYNC_MASTER", None)
        assert (of_slave["brokerRole"], of_slave["masterAddr"]) == ("SLAVE", pair.master.address)
        await pair.caller.call(pair.master.address, a_send(b"x"))
        await pair.is_level()
        of_slave = (await pair.caller.call(pair.slave.address, GetRuntimeInfo())).body.table
        assert (of_slave["dispatchBehindBytes"], of_slave["commitLogMaxOffset"]) == ("0", str(end_of(pair.master)))


async def test_what_arrived_and_is_not_dispatched_counts_as_behind(tmp_path: Path) -> None:
    async with a_caller() as caller, running_broker(tmp_path / "a") as source:
        source.parts.topics.put(TopicConfig(topic_name=TOPIC))
        await caller.call(source.address, a_send(b"x" * 100))
        log = source.parts.store.store.components.commit_log
        data = bytes(log.window(0)[2][: log.max_offset])
        async with slave_of(tmp_path, [], replication=NO_MASTER) as slave:
            assert slave.parts.following is not None
            slave.parts.following.append(0, data[:50])
            table = (await caller.call(slave.address, GetRuntimeInfo())).body.table
            assert (table["commitLogMaxOffset"], table["dispatchBehindBytes"]) == ("50", "50")


async def test_a_slave_that_is_gone_is_remembered_with_what_it_had(tmp_path: Path) -> None:
    async with (
        nameserver() as address,
        a_caller() as caller,
        running_broker(tmp_path / "master", [address]) as master,
    ):
        master.parts.topics.put(TopicConfig(topic_name=TOPIC))
        port = master.broker.replication.master
        assert port is not None
        async with slave_of(tmp_path, [address]):
            await until(port.slaves)
            await caller.call(master.address, a_send(b"one"))
            await until(lambda: port.slaves()[0].behind_bytes == 0)
            had = end_of(master)
        await until(lambda: not port.slaves())
        await caller.call(master.address, a_send(b"two"))
        status = await status_of(caller, master)
        (lost,) = status.lost_connections
        assert (lost.broker_id, lost.slave_ack_offset, lost.reason) == (1, had, None)
        assert lost.lost_timestamp >= master.parts.booted_ms
        assert lost.behind_millis is not None
        assert status.ha_connection_info == []
        async with slave_of(tmp_path, [address]):
            await until(port.slaves)
            assert (await status_of(caller, master)).lost_connections == [], "it is back"


async def test_a_slave_without_its_master_says_why(tmp_path: Path) -> None:
    async with nameserver() as address, a_caller() as caller:
        async with slave_of(tmp_path, [address]) as slave:
            own = (await status_of(caller, slave)).ha_client_runtime_info
            assert (own.master_addr, own.connected_timestamp, own.behind_bytes) == (None, None, None)
            follower = slave.broker.replication.slave
            assert follower is not None
            await until(lambda: "no nameserver knows a master" in (follower.status.reason or ""))
            async with running_broker(tmp_path / "master", [address]) as master:
                await until(master.broker.replication.master.slaves)  # type: ignore[union-attr]
                await until(lambda: follower.status.master is not None)
            await until(lambda: follower.status.master is None)
            own = (await status_of(caller, slave)).ha_client_runtime_info
            assert own.reason
            assert own.behind_bytes is None, "nobody knows where the master's log ends now"
            assert own.behind_millis is not None, "but it had everything a moment ago"


async def test_a_slave_that_is_refused_is_known_at_both_ends(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a-secret-of-the-master")
    other = tmp_path / "other"
    other.write_text("another-secret-of-a-slave")
    async with (
        nameserver() as address,
        a_caller() as caller,
        running_broker(tmp_path / "master", [address], replication=ReplicationSettings(secret_file=secret)) as master,
        slave_of(tmp_path, [address], replication=ReplicationSettings(secret_file=other)) as slave,
    ):
        follower, port = slave.broker.replication.slave, master.broker.replication.master
        assert follower is not None
        assert port is not None
        await until(lambda: "does not know our secret" in (follower.status.reason or ""))
        own = (await status_of(caller, slave)).ha_client_runtime_info
        assert "replication.secret_file" in (own.reason or "")
        assert (await status_of(caller, master)).ha_connection_info == []


async def test_a_peer_that_lies_is_remembered_with_the_reason(tmp_path: Path) -> None:
    async with a_caller() as caller, running_broker(tmp_path / "master") as master:
        port = master.broker.replication.master
        assert port is not None
        reader, writer = await asyncio.open_connection(port.address.host, port.address.port)
        writer.write((999_999).to_bytes(8, "big"))
        assert await reader.read() == b""
        writer.close()
        await until(port.lost)
        status = await status_of(caller, master)
        (refused,) = status.lost_connections
        assert "beyond the master's" in (refused.reason or "")
        assert (refused.broker_id, refused.slave_ack_offset) == (None, None), "it never was a slave"


async def test_a_classic_slave_has_an_address_and_no_id(tmp_path: Path) -> None:
    async with a_caller() as caller, running_broker(tmp_path / "master", role=BrokerRole.SYNC_MASTER) as master:
        master.parts.topics.put(TopicConfig(topic_name=TOPIC))
        port = master.broker.replication.master
        assert port is not None
        _, writer = await asyncio.open_connection(port.address.host, port.address.port)
        writer.write(bytes(8))
        await until(port.slaves)
        await caller.call(master.address, a_send(b"x", {"WAIT": "false"}))
        (connection,) = (await status_of(caller, master)).ha_connection_info
        assert (connection.broker_id, connection.dispatched_offset) == (None, None)
        assert (connection.slave_ack_offset, connection.diff) == (0, end_of(master))
        assert connection.behind_millis is not None, "it had everything when the log was empty"
        writer.close()


async def test_the_body_has_the_names_of_apaches(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        body = (await raw_status(pair.master)).body
        status = json.loads(body)
        names = {"master", "masterCommitLogMaxOffset", "inSyncSlaveNums", "haConnectionInfo", "haClientRuntimeInfo"}
        assert names <= status.keys()
        (connection,) = status["haConnectionInfo"]
        assert {
            *("addr", "slaveAckOffset", "diff", "inSync", "transferredByteInSecond", "transferFromWhere")
        } <= connection.keys()
        of_slave = json.loads((await raw_status(pair.slave)).body)["haClientRuntimeInfo"]
        assert {
            *("masterAddr", "transferredByteInSecond", "maxOffset", "lastReadTimestamp", "lastWriteTimestamp")
        } <= of_slave.keys()


async def raw_status(broker: RunningBroker) -> Command:
    async with Pool.open(TransportSettings(), Clock(), lambda *_: None) as pool:
        return await pool.call(broker.address, request_command(GetHaStatus(), opaque=0), 10)
