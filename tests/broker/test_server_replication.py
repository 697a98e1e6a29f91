"""A master and its slave as whole brokers with a nameserver: statuses of sends, what a slave serves, copied tables."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ariane.broker.settings import BrokerRole
from ariane.clock import Clock
from ariane.errors import RequestFailed
from ariane.model.ids import PhysicalOffset, QueueOffset
from ariane.model.topic import TopicConfig
from ariane.replication import metadata
from ariane.replication.settings import ReplicationSettings
from ariane.rpc.caller import Caller
from ariane.rpc.dispatcher import Dispatcher
from ariane.rpc.handlers import HandlerTable
from ariane.transport.pool import Pool
from ariane.transport.settings import TransportSettings
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Request
from ariane.wire.record.read import decode_all
from ariane.wire.requests.groups import DeleteGroup, UpdateGroup
from ariane.wire.requests.offsets import GetConsumerOffset, GetMaxOffset, UpdateConsumerOffset
from ariane.wire.requests.send import EndTransaction, SendBack, SendBatch
from ariane.wire.requests.topics import DeleteTopicInBroker, GetRoute, UpdateTopic
from tests.broker.brokers import RunningBroker, running_broker
from tests.broker.in_process_broker import GROUP, TOPIC, a_pull, a_send
from tests.nameserver.servers import nameserver
from tests.transport.peers import until

NO_MASTER = ReplicationSettings(master_address="127.0.0.1:1")
"""Of a slave whose master is not there."""


@dataclass(frozen=True)
class Pair:
    nameserver: str
    master: RunningBroker
    slave: RunningBroker
    caller: Caller

    async def is_level(self) -> None:
        """Waits until the slave has dispatched all of the master's log."""
        log = self.master.parts.store.store.components.commit_log
        slave = self.slave.broker.replication.slave
        assert slave is not None
        await until(lambda: slave.log.dispatched_to == log.max_offset)


@asynccontextmanager
async def a_caller() -> AsyncIterator[Caller]:
    async with Pool.open(TransportSettings(), Clock(), Dispatcher(HandlerTable.of()).receive) as pool:
        yield Caller(pool)


def slave_of(tmp_path: Path, nameservers: list[str], member: int = 1, **changes: Any) -> Any:
    settings = {"role": BrokerRole.SLAVE, "broker_id": member, **changes}
    return running_broker(tmp_path / f"slave-{member}", nameservers, **settings)


@asynccontextmanager
async def a_pair(
    tmp_path: Path, role: BrokerRole = BrokerRole.SYNC_MASTER, slave: dict[str, Any] | None = None, **changes: Any
) -> AsyncIterator[Pair]:
    """A slave that is connected to its master, and knows the master's topics."""
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(nameserver())
        caller = await stack.enter_async_context(a_caller())
        master = await stack.enter_async_context(running_broker(tmp_path / "master", [address], role=role, **changes))
        master.parts.topics.put(TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4))
        follower = await stack.enter_async_context(slave_of(tmp_path, [address], **(slave or {})))
        port = master.broker.replication.master
        assert port is not None
        await until(port.slaves)
        await until(lambda: follower.parts.topics.get(TOPIC) is not None)
        yield Pair(address, master, follower, caller)


@pytest.fixture(autouse=True)
def frequent_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are copied every 10 s; a test need not wait for that."""
    monkeypatch.setattr(metadata, "FIRST_SYNC_S", 0.02)
    monkeypatch.setattr(metadata, "SYNC_INTERVAL_S", 0.02)


async def test_a_send_to_a_sync_master_is_ok_only_when_a_slave_has_it(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(nameserver())
        caller = await stack.enter_async_context(a_caller())
        master = await stack.enter_async_context(
            running_broker(tmp_path / "master", [address], role=BrokerRole.SYNC_MASTER)
        )
        master.parts.topics.put(TopicConfig(topic_name=TOPIC))
        response = await caller.call(master.address, a_send(b"alone"))
        assert response.code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert response.queue_offset == 0, "it is stored"
        unwanted = await caller.call(master.address, a_send(b"no wait", {"WAIT": "false"}))
        assert unwanted.code == ResponseCode.SUCCESS
        async with slave_of(tmp_path, [address]) as slave:
            assert master.broker.replication.master is not None
            await until(master.broker.replication.master.slaves)
            for number in range(20):
                response = await caller.call(master.address, a_send(b"%d" % number))
                assert response.code == ResponseCode.SUCCESS
                end = master.parts.store.store.components.commit_log.max_offset
                assert slave.broker.replication.slave.log.end >= end
        await until(lambda: not master.broker.replication.master.slaves())  # type: ignore[union-attr]
        response = await caller.call(master.address, a_send(b"alone again"))
        assert response.code == ResponseCode.SLAVE_NOT_AVAILABLE


async def test_a_slave_that_hangs_makes_sends_time_out_as_stored(tmp_path: Path) -> None:
    async with (
        a_caller() as caller,
        running_broker(
            tmp_path / "master", role=BrokerRole.SYNC_MASTER, replication=ReplicationSettings(slave_timeout_s=0.05)
        ) as master,
    ):
        master.parts.topics.put(TopicConfig(topic_name=TOPIC))
        port = master.broker.replication.master
        assert port is not None
        _, writer = await asyncio.open_connection(port.address.host, port.address.port)
        writer.write(bytes(8))
        await until(port.slaves)
        for _ in range(3):
            response = await caller.call(master.address, a_send(b"x"))
            assert response.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert (await caller.call(master.address, GetMaxOffset(topic=TOPIC, queue_id=0))).offset == 3
        writer.close()


async def test_an_async_master_does_not_wait(tmp_path: Path) -> None:
    async with a_pair(tmp_path, BrokerRole.ASYNC_MASTER) as pair:
        for number in range(50):
            response = await pair.caller.call(pair.master.address, a_send(b"%d" % number))
            assert response.code == ResponseCode.SUCCESS
        await pair.is_level()


async def test_consumers_read_from_the_slave_what_was_sent_to_the_master(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        for number in range(10):
            await pair.caller.call(pair.master.address, a_send(b"%d" % number))
        await pair.is_level()
        response = await pair.caller.call(pair.slave.address, a_pull())
        assert [message.body for message in decode_all(response.body)] == [b"%d" % number for number in range(10)]
        assert response.suggest_which_broker_id == 0
        waiting = asyncio.ensure_future(
            pair.caller.call(pair.slave.address, a_pull(queue_offset=10, sys_flag=6, suspend_timeout_millis=10_000), 15)
        )
        await until(lambda: len(pair.slave.parts.pull_waiters) == 1)
        await pair.caller.call(pair.master.address, a_send(b"news"))
        assert [message.body for message in decode_all((await waiting).body)] == [b"news"], "woken at once"


async def test_an_offset_beyond_the_slaves_queue_is_kept_for_another_try(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        await pair.caller.call(pair.master.address, a_send(b"x"))
        await pair.is_level()
        response = await pair.caller.call(pair.slave.address, a_pull(queue_offset=77))
        assert response.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert response.next_begin_offset == 77
        assert (await pair.caller.call(pair.slave.address, a_pull(sys_flag=5, commit_offset=1))).code == 0
        assert pair.slave.parts.offsets.get(GROUP, TOPIC, 0) == -1, "the offset in a pull is ignored at a slave"


async def test_a_slave_may_check_offsets(tmp_path: Path) -> None:
    async with a_pair(tmp_path, slave={"replication": ReplicationSettings(offset_check_in_slave=True)}) as pair:
        await pair.caller.call(pair.master.address, a_send(b"x"))
        await pair.is_level()
        response = await pair.caller.call(pair.slave.address, a_pull(queue_offset=77))
        assert (response.code, response.next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, 1)


REFUSED: list[tuple[Request[Any], ResponseCode, str]] = [
    (a_send(), ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now"),
    (
        SendBatch(**{name: getattr(a_send(), name) for name in a_send().__struct_fields__} | {"batch": True}),
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "service not available now",
    ),
    (SendBack(offset=PhysicalOffset(0), group=GROUP, delay_level=0), ResponseCode.SYSTEM_ERROR, "SERVICE_NOT_AVAIL"),
    (
        EndTransaction(
            producer_group="shop",
            tran_state_table_offset=QueueOffset(0),
            commit_log_offset=PhysicalOffset(0),
            commit_or_rollback=8,
            from_transaction_check=False,
            msg_id="x",
            transaction_id="x",
        ),
        ResponseCode.SLAVE_NOT_AVAILABLE,
        "slave",
    ),
    (
        UpdateTopic(
            topic="new", default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6,
            topic_filter_type="SINGLE_TAG",
        ),
        ResponseCode.SYSTEM_ERROR,
        "from slave broker",
    ),
    (DeleteTopicInBroker(topic=TOPIC), ResponseCode.SYSTEM_ERROR, "from slave broker"),
    (UpdateGroup(), ResponseCode.SYSTEM_ERROR, "from slave broker"),
    (DeleteGroup(group_name=GROUP), ResponseCode.SYSTEM_ERROR, "from slave broker"),
]  # fmt: skip


async def test_a_slave_refuses_writes_with_apaches_codes(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        for request, code, remark in REFUSED:
            with pytest.raises(RequestFailed) as failed:
                await pair.caller.call(pair.slave.address, request)
            assert failed.value.code == code, request
            assert remark in failed.value.remark


async def test_topics_groups_and_offsets_are_copied_and_offsets_never_go_back(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        caller, master, slave = pair.caller, pair.master, pair.slave
        for _ in range(5):
            await caller.call(master.address, a_send())
        await pair.is_level()
        group = master.parts.groups.find(GROUP)
        await caller.call(master.address, a_commit(3))
        await until(lambda: slave.parts.offsets.get(GROUP, TOPIC, 0) == 3)
        await until(lambda: slave.parts.groups.get(GROUP) == group)
        assert slave.parts.topics.version == master.parts.topics.version
        await caller.call(slave.address, a_commit(5))
        assert slave.broker.replication.slave is not None
        before = _synced(slave)
        await until(lambda: _synced(slave) > before + 2)
        assert (
            await caller.call(slave.address, GetConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0))
        ).offset == 5
        master.parts.topics.delete(TOPIC)
        await until(lambda: slave.parts.topics.get(TOPIC) is None)


async def test_a_slave_registers_beside_its_master_and_leaves_alone(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        addresses = await _addresses(pair.caller, pair.nameserver)
        assert addresses == {0: pair.master.address, 1: pair.slave.address}
        await pair.slave.broker.registration._unregister_all()
        assert await _addresses(pair.caller, pair.nameserver) == {0: pair.master.address}


async def test_a_slave_finds_a_master_that_comes_back_elsewhere(tmp_path: Path) -> None:
    async with nameserver() as address, a_caller() as caller, slave_of(tmp_path, [address]) as slave:
        for round_ in range(3):
            async with running_broker(tmp_path / "master", [address]) as master:
                master.parts.topics.put(TopicConfig(topic_name=TOPIC))
                await caller.call(master.address, a_send(b"%d" % round_))
                log = master.parts.store.store.components.commit_log
                await until(lambda: slave.broker.replication.slave.log.dispatched_to == log.max_offset)  # noqa: B023
        await until(lambda: slave.parts.topics.get(TOPIC) is not None)
        response = await caller.call(slave.address, a_pull())
        assert [message.body for message in decode_all(response.body)] == [b"0", b"1", b"2"]


async def test_a_slave_of_another_file_size_does_not_follow(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        nameserver() as address,
        running_broker(tmp_path / "master", [address]),
        slave_of(tmp_path, [address], store={"segment_bytes": 1024 * 1024}),
    ):
        await until(lambda: any("mappedFileSizeCommitLog" in str(getattr(r, "reason", "")) for r in caplog.records))


async def test_a_slave_made_master_by_hand_has_everything(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        for number in range(30):
            await pair.caller.call(pair.master.address, a_send(b"%d" % number, {"KEYS": f"k{number}"}))
        await pair.caller.call(pair.master.address, a_commit(12))
        await until(lambda: pair.slave.parts.offsets.get(GROUP, TOPIC, 0) == 12)
        await pair.is_level()
    async with a_caller() as caller, running_broker(tmp_path / "slave-1") as promoted:
        assert promoted.parts.offsets.get(GROUP, TOPIC, 0) == 12
        assert (await caller.call(promoted.address, GetMaxOffset(topic=TOPIC, queue_id=0))).offset == 30
        assert (await caller.call(promoted.address, a_send(b"next"))).queue_offset == 30
        response = await caller.call(promoted.address, a_pull(queue_offset=29))
        assert [message.body for message in decode_all(response.body)] == [b"29", b"next"]


def a_commit(offset: int) -> UpdateConsumerOffset:
    return UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=QueueOffset(offset))


def _synced(slave: RunningBroker) -> int:
    assert slave.broker.replication.metadata is not None
    return slave.broker.replication.metadata.synced


async def _addresses(caller: Caller, address: str) -> dict[int, str]:
    route = (await caller.call(address, GetRoute(topic=TOPIC))).body
    (broker,) = route.broker_datas
    return dict(broker.broker_addrs)
