"""`admin.cluster.replicas()` with real masters and slaves, and with peers that say what Apache's say, or nonsense."""

import asyncio
import json
from pathlib import Path

import pytest

from ariane.broker.settings import BrokerRole
from ariane.client.admin import Admin
from ariane.client.admin.replicas import ReplicaSet
from ariane.errors import ClientError
from ariane.model.ids import QueueOffset
from ariane.replication import metadata
from ariane.replication.settings import ReplicationSettings
from ariane.wire.codes import RequestCode, ResponseCode
from ariane.wire.fields import Response
from ariane.wire.requests.offsets import UpdateConsumerOffset
from tests.broker.in_process_broker import GROUP, TOPIC
from tests.client.replica_peers import Bodies, apache, members, pairs, table
from tests.nameserver.servers import registration
from tests.transport.peers import until

HA, RUNTIME, CONFIG = (
    RequestCode.GET_BROKER_HA_STATUS,
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_BROKER_CONFIG,
)


@pytest.fixture(autouse=True)
def frequent_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "FIRST_SYNC_S", 0.02)
    monkeypatch.setattr(metadata, "SYNC_INTERVAL_S", 0.02)


async def the_set(namesrv: str, timeout_s: float = 5.0) -> ReplicaSet:
    async with Admin(namesrv, timeout_s=timeout_s) as admin:
        (found,) = await admin.cluster.replicas()
        return found


# --- real brokers ---


async def test_a_living_pair_is_level_and_without_trouble(tmp_path: Path) -> None:
    async with pairs(tmp_path) as pair:
        slave = await pair.start_slave()
        await pair.send(b"one", b"two")
        await pair.is_level()
        found = await the_set(pair.nameserver)
        assert (found.cluster, found.name, found.troubles, found.failures) == ("DefaultCluster", "broker-a", [], [])
        first, second = found.members
        assert (first.role, first.is_master, first.state, first.end) == ("SYNC_MASTER", True, "ok", pair.end)
        assert (first.behind_bytes, first.behind_s, first.is_connected) == (None, None, None)
        assert (second.role, second.broker_id, second.address) == ("SLAVE", 1, slave.address)
        assert (second.state, second.end, second.dispatched) == ("connected", pair.end, pair.end)
        assert (second.behind_bytes, second.behind_s, second.reason) == (0, 0, None)
        assert second.connected_ms is not None
        assert second.metadata_ms is not None
        assert second.unknown == ()


async def test_a_slave_that_stopped_is_shown_until_it_comes_back(tmp_path: Path) -> None:
    async with pairs(tmp_path) as pair:
        await pair.start_slave()
        await pair.send(b"one")
        await pair.is_level()
        had = pair.end
        await pair.stop_slave()
        await pair.send(b"two")
        found = await the_set(pair.nameserver)
        (slave,) = found.slaves
        assert (slave.is_registered, slave.broker_id, slave.state) == (False, 1, "not connected")
        assert (slave.end, slave.behind_bytes) == (had, pair.end - had)
        assert slave.behind_s is not None
        assert slave.lost_ms is not None
        assert found.has_no_slave_in_reach
        assert len(found.troubles) == 2
        await pair.start_slave()
        await pair.is_level()
        found = await the_set(pair.nameserver)
        assert (len(found.slaves), found.troubles) == (1, [])


async def test_a_name_without_a_master_has_slaves_that_say_why(tmp_path: Path) -> None:
    async with pairs(tmp_path, BrokerRole.ASYNC_MASTER) as pair:
        await pair.start_slave()
        await pair.send(b"one")
        await pair.is_level()
        end = pair.end
        await pair.stop_master()
        found = await the_set(pair.nameserver)
        assert found.master is None
        (slave,) = found.slaves
        assert (slave.state, slave.end, slave.dispatched, slave.behind_bytes) == ("not connected", end, end, None)
        assert slave.reason
        assert found.troubles == [
            "broker-a has no master: nothing can be sent to it",
            f"slave 1 of broker-a ({slave.address}) is not connected to its master: {slave.reason}",
        ]


async def test_a_refused_slave_says_what_it_logged(tmp_path: Path) -> None:
    secret, other = tmp_path / "secret", tmp_path / "other"
    secret.write_text("a-secret-of-the-master")
    other.write_text("another-secret-of-a-slave")
    async with pairs(tmp_path, replication=ReplicationSettings(secret_file=secret)) as pair:
        slave = await pair.start_refused(replication=ReplicationSettings(secret_file=other))
        follower = slave.broker.replication.slave
        assert follower is not None
        await until(lambda: "does not know our secret" in (follower.status.reason or ""))
        found = await the_set(pair.nameserver)
        (refused,) = found.slaves
        assert (refused.is_connected, "replication.secret_file" in str(refused.reason)) == (False, True)
        assert found.has_no_slave_in_reach


async def test_a_registered_slave_that_does_not_respond_is_unreachable(tmp_path: Path) -> None:
    async with pairs(tmp_path) as pair:
        await pair.start_slave()
        await pair.calls.call(pair.nameserver, registration(address="127.0.0.1:1", broker_id=2))
        found = await the_set(pair.nameserver)
        alive, dead = found.slaves
        assert (alive.state, dead.state, dead.broker_id) == ("connected", "unreachable", 2)
        assert (dead.is_connected, dead.end, dead.behind_bytes, dead.behind_s) == (False, None, None, None)
        assert len(found.troubles) == len(found.failures) == 1


async def test_one_name_may_be_asked_for(tmp_path: Path) -> None:
    async with pairs(tmp_path) as pair:
        async with Admin(pair.nameserver) as admin:
            assert len(await admin.cluster.replicas("broker-a")) == 1
            with pytest.raises(ClientError, match="the nameserver knows broker-a"):
                await admin.cluster.replicas("broker-q")


async def test_reads_go_to_the_slave_while_there_is_no_master(tmp_path: Path) -> None:
    async with pairs(tmp_path, BrokerRole.ASYNC_MASTER) as pair:
        slave = await pair.start_slave()
        await pair.send(b"one", b"two", b"three")
        commit = UpdateConsumerOffset(
            consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=QueueOffset(1), seek=True
        )
        await pair.calls.call(pair.master.address, commit)
        await pair.is_level()
        await until(lambda: slave.parts.offsets.get(GROUP, TOPIC, 0) == 1)
        await until(lambda: slave.parts.topics.get(TOPIC) is not None)
        await pair.stop_master()
        async with Admin(pair.nameserver) as admin:
            lag = await admin.groups.lag(GROUP, TOPIC)
            by_id = {queue.queue.queue_id: (queue.end, queue.offset, queue.lag) for queue in lag.queues}
            assert by_id[0] == (3, 1, 2)
            assert (await admin.topics.stats(TOPIC)).count == 3
            assert list((await admin.offsets.get(GROUP, TOPIC)).offsets.values()) == [1]
            with pytest.raises(ClientError, match="no master"):
                await admin.offsets.reset(GROUP, TOPIC, "earliest")


# --- what Apache's brokers tell ---


async def test_of_a_pair_of_4_9_only_the_distance_is_known() -> None:
    async with members((0, apache("ASYNC_MASTER", 1000)), (1, apache("SLAVE", 900, behind=100))) as names:
        found = await the_set(names)
        (slave,) = found.slaves
        assert (slave.state, slave.is_connected, slave.role) == ("unknown", None, "SLAVE")
        assert (slave.end, slave.dispatched, slave.behind_bytes, slave.behind_s) == (900, 800, 100, None)
        assert slave.unknown == ("connections between master and slave: a broker of 4.x does not tell them",)
        assert found.troubles == []


async def test_a_slave_of_4_9_with_all_there_is_is_not_behind() -> None:
    async with members((0, apache("SYNC_MASTER", 1000)), (1, apache("SLAVE", 1000))) as names:
        (slave,) = (await the_set(names)).slaves
        assert (slave.behind_bytes, slave.behind_s) == (0, 0)


async def test_a_slave_that_is_ahead_is_behind_by_nobody_knows_what() -> None:
    async with members((0, apache("ASYNC_MASTER", 1000)), (1, apache("SLAVE", 1200))) as names:
        (slave,) = (await the_set(names)).slaves
        assert (slave.behind_bytes, slave.behind_s) == (None, None)
        assert slave.reason == "its log ends 200 bytes beyond the master's"


def status(**fields: object) -> bytes:
    return json.dumps({"master": True, "masterCommitLogMaxOffset": 1000, "inSyncSlaveNums": 1, **fields}).encode()


def connection(addr: str, ack: int = 1000, **more: object) -> dict[str, object]:
    return {"addr": addr, "slaveAckOffset": ack, "diff": 1000 - ack, "inSync": True, **more}


async def test_a_connection_without_an_id_is_matched_by_host_if_only_one_is_there() -> None:
    master: Bodies = {**apache("SYNC_MASTER", 1000), HA: status(haConnectionInfo=[connection("127.0.0.1:4711", 900)])}
    async with members((0, master), (1, apache("SLAVE", 900))) as names:
        found = await the_set(names)
        (slave,) = found.slaves
        assert (slave.state, slave.behind_bytes, slave.behind_s) == ("connected", 100, None)
    two = status(haConnectionInfo=[connection("127.0.0.1:4711"), connection("127.0.0.1:4712")])
    async with members((0, {**apache("SYNC_MASTER", 1000), HA: two}), (1, apache("SLAVE", 900))) as names:
        found = await the_set(names)
        assert [(slave.is_registered, slave.is_connected) for slave in found.slaves] == [
            (True, False),
            (False, True),
            (False, True),
        ]
        assert not found.has_no_slave_in_reach


# --- peers that say anything ---

NONSENSE: list[bytes] = [
    b"not json",
    b"[]",
    b'{"haConnectionInfo": 7}',
    b'{"master": true, "haConnectionInfo": [{"slaveAckOffset": "many"}]}',
    b'{"master": true, "haConnectionInfo": [{"slaveAckOffset": 99999999999999999999999999}]}',
    b'{"a": ' * 500,
    b"\xff\xfe",
]


@pytest.mark.parametrize("body", NONSENSE, ids=range(len(NONSENSE)))
async def test_a_status_that_cannot_be_read_is_not_asked(body: bytes) -> None:
    async with members((0, {**apache("SYNC_MASTER", 1000), HA: body}), (1, apache("SLAVE", 1000))) as names:
        found = await the_set(names)
        assert found.master is not None
        assert any(what.startswith("connections between master and slave") for what in found.master.unknown)
        assert [slave.is_connected for slave in found.slaves] == [None]
        assert not found.has_no_slave_in_reach, "nobody knows"


async def test_a_flood_of_connections_is_cut() -> None:
    many = status(haConnectionInfo=[connection(f"10.0.0.1:{port}", brokerId=port) for port in range(5000)])
    async with members((0, {**apache("SYNC_MASTER", 1000), HA: many})) as names:
        found = await the_set(names)
        assert len(found.slaves) == 64


async def test_numbers_that_are_none_are_unknown() -> None:
    odd: Bodies = {
        RUNTIME: table(commitLogMaxOffset="-5", commitLogMinOffset="١٢", dispatchBehindBytes="1" * 40),
        CONFIG: b"brokerRole=SLAVE\n\x00\x01=\n",
        HA: b'{"haClientRuntimeInfo": {"behindMillis": -3, "connectedTimestamp": -1}, "brokerRole": "SLAVE"}',
    }
    async with members((0, apache("ASYNC_MASTER", 1000)), (1, odd)) as names:
        (slave,) = (await the_set(names)).slaves
        assert (slave.begin, slave.end, slave.dispatched) == (None, None, None)
        assert (slave.behind_bytes, slave.behind_s) == (None, None)


async def test_a_broker_that_shows_nothing_is_asked_in_vain() -> None:
    refusal = Response(code=ResponseCode.NO_PERMISSION, remark="an administrator's signature is needed")
    closed = {**apache("SYNC_MASTER", 1000), CONFIG: refusal, HA: refusal}
    async with members((0, closed)) as names:
        found = await the_set(names)
        assert found.master is not None
        assert found.master.role is None
        assert len(found.master.unknown) == 2
        assert not found.has_no_slave_in_reach, "its role is not known"


async def test_a_peer_that_never_responds_is_unreachable() -> None:
    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with (
        server,
        members((0, apache("ASYNC_MASTER", 1000)), (1, f"{host}:{port}")) as names,
        Admin(names, timeout_s=0.2) as admin,
    ):
        (found,) = await admin.cluster.replicas()
        (slave,) = found.slaves
        assert (slave.state, slave.is_connected) == ("unreachable", None)
        assert len(found.failures) == 1
