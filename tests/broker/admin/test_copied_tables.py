"""What a slave copies beside the log, and what it is worth when it is made a master by hand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ariane.broker.admin.copied_tables import CopiedTables
from ariane.broker.settings import BrokerRole
from ariane.broker.transactions.pending import PROGRESS_GROUP
from ariane.model.system_topics import SCHEDULE, TIMER, TRANS_HALF
from ariane.model.topic import TopicConfig
from ariane.replication.metadata import Progress
from ariane.replication.settings import ReplicationSettings
from ariane.wire.codes import ResponseCode
from ariane.wire.record.read import decode_all
from ariane.wire.requests.groups import DeleteGroup
from ariane.wire.requests.offsets import UpdateConsumerOffset
from ariane.wire.requests.send import Decision
from ariane.wire.requests.topics import DeleteTopicInBroker
from tests.broker.brokers import RunningBroker, running_broker
from tests.broker.in_process_broker import GROUP, TOPIC, a_pull, a_send
from tests.broker.test_server_replication import (  # noqa: F401 - a fixture is used by its name
    NO_MASTER,
    Pair,
    a_caller,
    a_commit,
    a_pair,
    frequent_copies,
    slave_of,
)
from tests.broker.transaction_fixtures import half_send, outcome_of
from tests.nameserver.servers import nameserver
from tests.transport.peers import until

LEVELS = "1s 2s 1h"
STORE = {"message_delay_levels": LEVELS}


class Gate:
    """Between a slave and its master's replication port: what passes can be held back."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = ""

    @classmethod
    @asynccontextmanager
    async def to(cls, port: int) -> AsyncIterator["Gate"]:
        gate = cls(port)
        server = await asyncio.start_server(gate._accept, "127.0.0.1", 0)
        gate.address = "{}:{}".format(*server.sockets[0].getsockname())
        try:
            yield gate
        finally:
            server.close()
            for task in gate._tasks:
                task.cancel()
            await asyncio.gather(*gate._tasks, return_exceptions=True)

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", self._port)
        for source, target in ((reader, forth), (back, writer)):
            task = asyncio.ensure_future(self._copy(source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                await self._open.wait()
                target.write(data)
        except ConnectionError:
            pass
        finally:
            target.close()


@asynccontextmanager
async def a_gated_pair(tmp_path: Path, **changes: Any) -> AsyncIterator[tuple[Pair, Gate]]:
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(nameserver())
        caller = await stack.enter_async_context(a_caller())
        master = await stack.enter_async_context(running_broker(tmp_path / "master", [address], store=STORE, **changes))
        master.parts.topics.put(TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4))
        port = master.broker.replication.master
        assert port is not None
        gate = await stack.enter_async_context(Gate.to(port.address.port))
        replication = ReplicationSettings(master_address=gate.address)
        slave = await stack.enter_async_context(slave_of(tmp_path, [address], store=STORE, replication=replication))
        await until(port.slaves)
        await until(lambda: slave.parts.topics.get(TOPIC) is not None)
        yield Pair(address, master, slave, caller), gate


async def syncs(slave: RunningBroker, number: int = 3) -> None:
    """Waits until the tables were asked for so often again."""
    metadata = slave.broker.replication.metadata
    assert metadata is not None
    before = metadata.synced
    await until(lambda: metadata.synced >= before + number)


async def bodies_in(broker: RunningBroker, topic: str = TOPIC, queue_id: int = 0) -> list[bytes]:
    async with a_caller() as caller:
        response = await caller.call(broker.address, a_pull(topic=topic, queue_id=queue_id))
    return [message.body for message in decode_all(response.body)]


def queue_end(broker: RunningBroker, topic: str, queue_id: int = 0) -> int:
    queue = broker.parts.store.store.components.queues.get(topic, queue_id)
    return 0 if queue is None else queue.max_offset


# --- progress never runs ahead of the log -----------------------------------------------------------------------------


async def test_deliveries_that_a_slave_has_not_got_are_made_by_it_when_it_is_made_the_master(tmp_path: Path) -> None:
    async with a_gated_pair(tmp_path) as (pair, gate):
        caller, master, slave = pair.caller, pair.master, pair.slave
        await caller.call(master.address, a_send(b"by level", {"DELAY": "1"}))
        await caller.call(master.address, a_send(b"by time", {"TIMER_DELAY_MS": "1000"}))
        await pair.is_level()
        assert (queue_end(slave, SCHEDULE), queue_end(slave, TIMER)) == (1, 1)
        gate.close()
        await until(lambda: queue_end(master, TOPIC) == 2)
        await syncs(slave)
        assert master.parts.delayed.offsets() == {1: 1}
        assert slave.parts.delayed.offsets() == {1: 0}, "its log does not have the delivered message"
    async with running_broker(tmp_path / "slave-1", store=STORE) as promoted:
        await until(lambda: queue_end(promoted, TOPIC) == 2)
        assert sorted(await bodies_in(promoted)) == [b"by level", b"by time"]


async def test_progress_is_taken_over_once_the_log_has_what_it_rests_on(tmp_path: Path) -> None:
    async with a_gated_pair(tmp_path) as (pair, gate):
        caller, master, slave = pair.caller, pair.master, pair.slave
        await caller.call(master.address, a_send(b"by level", {"DELAY": "1"}))
        await caller.call(master.address, a_send(b"by time", {"TIMER_DELAY_MS": "1000"}))
        await caller.call(master.address, a_send(b"in an hour", {"DELAY": "3"}))
        await pair.is_level()
        gate.close()
        await until(lambda: queue_end(master, TOPIC) == 2)
        await caller.call(master.address, a_commit(2))
        await syncs(slave)
        assert slave.parts.offsets.get(GROUP, TOPIC, 0) == -1
        gate.open()
        await until(lambda: slave.parts.delayed.offsets() == {1: 1, 3: 0})
        await until(lambda: slave.parts.offsets.get(GROUP, TOPIC, 0) == 2)
        await syncs(slave)
    async with running_broker(tmp_path / "slave-1", store=STORE) as promoted:
        assert promoted.parts.delayed.offsets() == {1: 1, 3: 0}
        await until(lambda: promoted.parts.timer.behind == 0)
        async with a_caller() as caller:
            await caller.call(promoted.address, a_send(b"new", {"TIMER_DELAY_MS": "300"}))
            await until(lambda: queue_end(promoted, TOPIC) == 3)
        assert sorted(await bodies_in(promoted)) == [b"by level", b"by time", b"new"], "nothing is delivered twice"


async def test_a_transaction_whose_outcome_a_slave_has_not_got_is_checked_by_it_as_a_master(tmp_path: Path) -> None:
    async with a_gated_pair(tmp_path) as (pair, gate):
        caller, master, slave = pair.caller, pair.master, pair.slave
        half_messages = [await caller.call(master.address, half_send(b"%d" % number)) for number in range(3)]
        await caller.call(master.address, outcome_of(half_messages[0], Decision.COMMIT))
        await master.parts.checks.run_pass()
        await pair.is_level()
        await until(lambda: slave.parts.offsets.get(PROGRESS_GROUP, TRANS_HALF, 0) == 1)
        gate.close()
        await caller.call(master.address, outcome_of(half_messages[1], Decision.COMMIT))
        await master.parts.checks.run_pass()
        assert master.parts.offsets.get(PROGRESS_GROUP, TRANS_HALF, 0) == 2
        await syncs(slave)
        assert slave.parts.offsets.get(PROGRESS_GROUP, TRANS_HALF, 0) == 1
    async with running_broker(tmp_path / "slave-1", store=STORE) as promoted, a_caller() as caller:
        waiting = promoted.parts.transactions.open
        assert [waiting.is_open(offset) for offset in range(3)] == [False, True, True]
        assert await bodies_in(promoted) == [b"0"]
        for half in half_messages[1:]:
            await caller.call(promoted.address, outcome_of(half, Decision.COMMIT))
        assert await bodies_in(promoted) == [b"0", b"1", b"2"]


async def test_a_slave_made_master_by_hand_delivers_what_waits(tmp_path: Path) -> None:
    """Delay levels, delivery times, half messages: each once, none early."""
    async with a_pair(tmp_path, BrokerRole.ASYNC_MASTER, slave={"store": STORE}, store=STORE) as pair:
        caller, master, slave = pair.caller, pair.master, pair.slave
        due_ms = master.parts.clock.now_ms() + 4_000
        for number in range(5):
            await caller.call(master.address, a_send(b"soon %d" % number, {"DELAY": "1"}))
            await caller.call(master.address, a_send(b"soon too %d" % number, {"TIMER_DELAY_MS": "500"}))
            await caller.call(
                master.address, a_send(b"later %d" % number, {"TIMER_DELIVER_MS": str(due_ms)}, queue_id=1)
            )
        half = await caller.call(master.address, half_send(b"half", queue_id=2))
        await until(lambda: queue_end(master, TOPIC) == 10)
        await pair.is_level()
        await syncs(slave)
    async with running_broker(tmp_path / "slave-1", store=STORE) as promoted, a_caller() as caller:
        await caller.call(promoted.address, outcome_of(half, Decision.COMMIT))
        await until(lambda: queue_end(promoted, TOPIC, 1) == 5)
        assert promoted.parts.clock.now_ms() >= due_ms
        assert len(await bodies_in(promoted)) == 10
        assert sorted(await bodies_in(promoted, queue_id=1)) == [b"later %d" % number for number in range(5)]
        assert await bodies_in(promoted, queue_id=2) == [b"half"]


# --- what the master deletes, and resets ------------------------------------------------------------------------------


async def test_a_topic_deleted_at_the_master_vanishes_with_its_messages_and_offsets(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        caller, master, slave = pair.caller, pair.master, pair.slave
        for queue_id in (0, 0, 0, 1):
            await caller.call(master.address, a_send(queue_id=queue_id))
        await caller.call(master.address, a_commit(3))
        await until(lambda: slave.parts.offsets.get(GROUP, TOPIC, 0) == 3)
        await caller.call(master.address, DeleteTopicInBroker(topic=TOPIC))
        await until(lambda: slave.parts.topics.get(TOPIC) is None)
        await until(lambda: not slave.parts.store.store.components.queues.of_topic(TOPIC))
        assert slave.parts.offsets.get(GROUP, TOPIC, 0) == -1
        master.parts.topics.put(TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4))
        await caller.call(master.address, a_send(b"again"))
        await until(lambda: slave.parts.topics.get(TOPIC) is not None)
        await pair.is_level()
        assert await bodies_in(slave) == [b"again"]
    async with running_broker(tmp_path / "slave-1") as promoted:
        assert await bodies_in(promoted) == [b"again"]
        assert queue_end(promoted, TOPIC, 1) == 0


async def test_a_topic_that_is_created_again_at_once_has_none_of_its_old_messages_at_the_slave(tmp_path: Path) -> None:
    """Between two looks at the master's tables nothing seems to have changed."""
    async with a_pair(tmp_path) as pair:
        caller, master, slave = pair.caller, pair.master, pair.slave
        for queue_id in (0, 0, 0, 1):
            await caller.call(master.address, a_send(queue_id=queue_id))
        await caller.call(master.address, a_commit(3))
        await until(lambda: slave.parts.offsets.get(GROUP, TOPIC, 0) == 3)
        config = master.parts.topics.get(TOPIC)
        assert config is not None
        await caller.call(master.address, DeleteTopicInBroker(topic=TOPIC))
        master.parts.topics.put(config)
        for body in (b"1", b"2"):
            await caller.call(master.address, a_send(body))
        await caller.call(master.address, a_commit(1))
        await pair.is_level()
        await until(lambda: slave.parts.offsets.get(GROUP, TOPIC, 0) == 1)
        await until(lambda: slave.parts.topics.get(TOPIC) is not None)  # it was asked for in between, perhaps
        assert await bodies_in(slave) == [b"1", b"2"]
        await until(lambda: queue_end(slave, TOPIC, 1) == 0)


async def test_a_group_deleted_at_the_master_vanishes_with_its_offsets(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        caller, master, slave = pair.caller, pair.master, pair.slave
        await caller.call(master.address, a_send())
        await caller.call(master.address, a_commit(1))
        master.parts.groups.find(GROUP)
        await until(lambda: slave.parts.offsets.get(GROUP, TOPIC, 0) == 1 and slave.parts.groups.get(GROUP) is not None)
        await syncs(slave)
        await caller.call(master.address, DeleteGroup(group_name=GROUP, remove_offset=True))
        await until(lambda: slave.parts.groups.get(GROUP) is None)
        await until(lambda: slave.parts.offsets.get(GROUP, TOPIC, 0) == -1)


async def test_an_offset_that_was_reset_at_the_master_is_reset_but_not_one_that_was_committed_here(
    tmp_path: Path,
) -> None:
    async with a_pair(tmp_path) as pair:
        caller, master, slave = pair.caller, pair.master, pair.slave
        for _ in range(5):
            await caller.call(master.address, a_send())
            await caller.call(master.address, a_send(queue_id=1))
        for queue_id in (0, 1):
            await caller.call(master.address, offset_of(queue_id, 4))
        await until(lambda: [slave.parts.offsets.get(GROUP, TOPIC, queue_id) for queue_id in (0, 1)] == [4, 4])
        await pair.is_level()
        await caller.call(slave.address, offset_of(1, 5))
        for queue_id in (0, 1):
            master.parts.offsets.reset(GROUP, TOPIC, queue_id, 2)
        await until(lambda: slave.parts.offsets.get(GROUP, TOPIC, 0) == 2)
        await syncs(slave)
        assert slave.parts.offsets.get(GROUP, TOPIC, 1) == 5


def offset_of(queue_id: int, offset: int) -> UpdateConsumerOffset:
    return UpdateConsumerOffset(GROUP, TOPIC, queue_id, offset)  # type: ignore[arg-type]


async def test_a_commit_beyond_the_slaves_queue_is_refused_and_the_offset_stays(tmp_path: Path) -> None:
    async with a_gated_pair(tmp_path) as (pair, gate):
        await pair.caller.call(pair.master.address, a_send())
        await pair.is_level()
        gate.close()
        await pair.caller.call(pair.master.address, a_send())
        with pytest.raises(Exception, match="is not in queue 0") as failed:
            await pair.caller.call(pair.slave.address, a_commit(2))
        assert getattr(failed.value, "code", None) == ResponseCode.INVALID_PARAMETER
        await pair.caller.call(pair.slave.address, a_commit(1))


async def test_numbers_that_no_queue_can_have_are_left_out(tmp_path: Path) -> None:
    async with slave_of(tmp_path, [], store=STORE, replication=NO_MASTER) as slave:
        parts = slave.parts
        copied = CopiedTables(parts.store, parts.topics, parts.groups, parts.offsets, parts.delayed, parts.timer)
        offsets = {f"{TOPIC}@{GROUP}": {0: 5, 1: 2**63, 2: -3, 3: 2**90, -1: 4, 2**31: 4}, "no group": {0: 1}, "@": {}}
        await copied.copy_progress(Progress(True, offsets=offsets, delays={1: 7, 2: 2**63, 3: -1, 2**40: 1, -5: 1}))
        assert parts.offsets.of(GROUP, TOPIC) == {0: 5}
        assert parts.delayed._saved == {1: 7}
    async with slave_of(tmp_path, [], store=STORE, replication=NO_MASTER) as again:
        assert again.parts.offsets.of(GROUP, TOPIC) == {0: 5}
