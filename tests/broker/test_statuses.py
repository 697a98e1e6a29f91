"""What a SYNC_MASTER answers to every kind of write: with a slave that has it, with one that hangs, and without one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ariane.broker.settings import BrokerRole
from ariane.errors import RequestFailed
from ariane.model.topic import TopicConfig
from ariane.replication.settings import ReplicationSettings
from ariane.rpc.caller import Caller
from ariane.store.settings import FlushDiskType
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.send import Decision, SendBack, SendMessage, SendResponse
from tests.broker.brokers import RunningBroker, running_broker
from tests.broker.in_process_broker import GROUP, TOPIC, a_send
from tests.broker.send.test_handler_batch import a_batch, item
from tests.broker.test_server_replication import a_caller, slave_of
from tests.broker.transaction_fixtures import half_send, outcome_of
from tests.nameserver.servers import nameserver
from tests.transport.peers import until

OK = ResponseCode.SUCCESS
NONE = ResponseCode.SLAVE_NOT_AVAILABLE
LATE = ResponseCode.FLUSH_SLAVE_TIMEOUT


class Sender:
    def __init__(self, caller: Caller, master: RunningBroker) -> None:
        self.caller = caller
        self.master = master

    async def sent(self, request: object) -> SendResponse:
        return await self.caller.call(self.master.address, request)  # type: ignore[arg-type]

    async def first_version(self) -> int:
        """Code 10, which the fast path leaves."""
        fields = a_send(b"x")
        return (await self.sent(SendMessage(**{name: getattr(fields, name) for name in fields.__struct_fields__}))).code

    async def plain(self) -> int:
        return (await self.sent(a_send(b"x"))).code

    async def many_together(self) -> int:
        codes = {response.code for response in await asyncio.gather(*(self.sent(a_send(b"x")) for _ in range(20)))}
        (code,) = codes
        return code

    async def with_level(self) -> int:
        return (await self.sent(a_send(b"x", {"DELAY": "3"}))).code

    async def with_time(self) -> int:
        return (await self.sent(a_send(b"x", {"TIMER_DELAY_SEC": "100"}))).code

    async def batch(self) -> int:
        return (await self.sent(a_batch(item(b"a"), item(b"b")))).code

    async def half(self) -> int:
        return (await self.sent(half_send())).code

    async def commit(self) -> int:
        return await self._outcome(Decision.COMMIT)

    async def rollback(self) -> int:
        return await self._outcome(Decision.ROLLBACK)

    async def _outcome(self, decision: Decision) -> int:
        half = await self.sent(half_send())
        try:
            return (await self.sent(outcome_of(half, decision))).code
        except RequestFailed as error:
            return error.code

    async def send_back(self) -> int:
        """As Apache's broker, with SYSTEM_ERROR and the name of the status; the message is stored nevertheless."""
        stored = await self.sent(a_send(b"x"))
        try:
            request = SendBack(offset=int(stored.msg_id[-16:], 16), group=GROUP, delay_level=0)  # type: ignore[arg-type]
            return (await self.sent(request)).code
        except RequestFailed as error:
            return ResponseCode[error.remark.partition(":")[0]] if error.code == ResponseCode.SYSTEM_ERROR else -1


KINDS: list[Callable[[Sender], Awaitable[int]]] = [
    Sender.plain, Sender.first_version, Sender.many_together, Sender.with_level, Sender.with_time, Sender.batch,
    Sender.half, Sender.commit, Sender.rollback, Sender.send_back,
]  # fmt: skip

OUTCOMES = (Sender.commit, Sender.rollback)
"""Accepted, whatever a slave has of them: any other code would be an outcome that was refused, as in Apache."""

EACH_FLUSH = pytest.mark.parametrize("flush", [FlushDiskType.ASYNC, FlushDiskType.SYNC], ids=["async", "sync"])


@asynccontextmanager
async def a_sync_master(
    tmp_path: Path, nameservers: list[str], flush: FlushDiskType, **changes: float
) -> AsyncIterator[Sender]:
    async with (
        a_caller() as caller,
        running_broker(
            tmp_path / "master",
            nameservers,
            role=BrokerRole.SYNC_MASTER,
            store={"flush_disk_type": flush},
            replication=ReplicationSettings(**changes),  # type: ignore[arg-type]
        ) as master,
    ):
        master.parts.topics.put(TopicConfig(topic_name=TOPIC))
        yield Sender(caller, master)


@EACH_FLUSH
async def test_without_a_slave_every_kind_is_stored_and_says_so_at_once(tmp_path: Path, flush: FlushDiskType) -> None:
    async with a_sync_master(tmp_path, [], flush, slave_timeout_s=500) as sender:
        for kind in KINDS:
            before = sender.master.parts.store.store.components.commit_log.max_offset
            assert await kind(sender) == (OK if kind in OUTCOMES else NONE), kind
            assert sender.master.parts.store.store.components.commit_log.max_offset > before


@EACH_FLUSH
async def test_with_a_slave_that_hangs_every_kind_is_late(tmp_path: Path, flush: FlushDiskType) -> None:
    async with a_sync_master(tmp_path, [], flush, slave_timeout_s=0.05) as sender:
        port = sender.master.broker.replication.master
        assert port is not None
        _, writer = await asyncio.open_connection(port.address.host, port.address.port)
        writer.write(bytes(8))
        await until(port.slaves)
        for kind in KINDS:
            assert await kind(sender) == (OK if kind in OUTCOMES else LATE), kind
        assert (await sender.sent(a_send(b"x", {"WAIT": "false"}))).code == OK, "it does not wait"
        writer.close()


async def test_a_producer_that_does_not_wait_never_does(tmp_path: Path) -> None:
    """The slave would be waited for as long as the test lasts."""
    async with a_sync_master(tmp_path, [], FlushDiskType.SYNC, slave_timeout_s=500) as sender:
        port = sender.master.broker.replication.master
        assert port is not None
        _, writer = await asyncio.open_connection(port.address.host, port.address.port)
        writer.write(bytes(8))
        await until(port.slaves)
        for properties in (
            {"WAIT": "false"},
            {"WAIT": "false", "DELAY": "3"},
            {"WAIT": "false", "TIMER_DELAY_SEC": "9"},
        ):
            assert (await sender.sent(a_send(b"x", properties))).code == OK
        assert (await sender.sent(half_send(WAIT="false"))).code == OK
        assert (await sender.sent(a_batch(item(b"a", WAIT="false"), properties="WAIT\x01false\x02"))).code == OK
        writer.close()


@EACH_FLUSH
async def test_with_a_slave_every_kind_is_ok_and_the_slave_has_it(tmp_path: Path, flush: FlushDiskType) -> None:
    async with (
        nameserver() as address,
        a_sync_master(tmp_path, [address], flush, slave_timeout_s=500) as sender,
        slave_of(tmp_path, [address]) as slave,
    ):
        port = sender.master.broker.replication.master
        assert port is not None
        await until(port.slaves)
        for kind in KINDS:
            assert await kind(sender) == OK, kind
            assert slave.broker.replication.slave is not None
            end = sender.master.parts.store.store.components.commit_log.max_offset
            assert slave.broker.replication.slave.log.end >= end
