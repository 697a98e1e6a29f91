"""Pairs of brokers for the tools that show masters and slaves: real ones whose slave comes and goes, and scripted peers
that say what Apache's say, or anything."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ariane.broker.settings import BrokerRole
from ariane.model.topic import TopicConfig
from ariane.rpc.caller import Caller
from ariane.transport.connection import Connection, ReceiveResult
from ariane.wire.codes import RequestCode, ResponseCode
from ariane.wire.exchange import response_command
from ariane.wire.fields import Response
from ariane.wire.frame import Command, encode_frame
from tests.broker.brokers import RunningBroker, running_broker
from tests.broker.in_process_broker import TOPIC, a_send
from tests.broker.test_server_replication import slave_of
from tests.nameserver.servers import caller, nameserver, registration
from tests.transport.peers import serving, until


@dataclass
class Pairs:
    """A master, registered, whose slaves are started and stopped by the test."""

    nameserver: str
    calls: Caller
    path: Path
    master: RunningBroker
    master_stack: AsyncExitStack
    slaves: dict[int, tuple[RunningBroker, AsyncExitStack]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.master.parts.store.store.components.commit_log.max_offset

    async def start_slave(self, member: int = 1, **changes: Any) -> RunningBroker:
        """Connected, unless it is refused: see `start_refused`."""
        slave = await self.start_refused(member, **changes)
        port = self.master.broker.replication.master
        assert port is not None
        await until(lambda: [each for each in port.slaves() if each.member == member])
        return slave

    async def start_refused(self, member: int = 1, **changes: Any) -> RunningBroker:
        stack = AsyncExitStack()
        slave: RunningBroker = await stack.enter_async_context(
            slave_of(self.path, [self.nameserver], member, **changes)
        )
        self.slaves[member] = slave, stack
        return slave

    async def stop_slave(self, member: int = 1) -> None:
        await self.slaves.pop(member)[1].aclose()
        port = self.master.broker.replication.master
        assert port is not None
        await until(lambda: not [each for each in port.slaves() if each.member == member])

    async def stop_master(self) -> None:
        await self.master_stack.aclose()
        for slave, _ in self.slaves.values():
            follower = slave.broker.replication.slave
            assert follower is not None
            await until(lambda follower=follower: follower.status.master is None)  # type: ignore[misc]

    async def send(self, *bodies: bytes) -> None:
        for body in bodies:
            await self.calls.call(self.master.address, a_send(body, {"WAIT": "false"}))

    async def is_level(self, member: int = 1) -> None:
        """The slave has dispatched all of the master's log, and the master knows it."""
        port = self.master.broker.replication.master
        assert port is not None
        await until(lambda: [s.dispatched for s in port.slaves() if s.member == member] == [self.end])


@asynccontextmanager
async def pairs(tmp_path: Path, role: BrokerRole = BrokerRole.SYNC_MASTER, **changes: Any) -> AsyncIterator[Pairs]:
    async with nameserver() as names, caller() as calls, AsyncExitStack() as master_stack:
        master = await master_stack.enter_async_context(
            running_broker(tmp_path / "master", [names], role=role, **changes)
        )
        master.parts.topics.put(TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4))
        made = Pairs(names, calls, tmp_path, master, master_stack)
        try:
            yield made
        finally:
            for _, stack in made.slaves.values():
                await stack.aclose()


# --- scripted members ---

Bodies = dict[RequestCode, bytes | Response]


def table(**pairs: object) -> bytes:
    """The body of GET_BROKER_RUNTIME_INFO."""
    return json.dumps({"table": {name: str(value) for name, value in pairs.items()}}).encode()


def settings(**pairs: object) -> bytes:
    return "".join(f"{name}={value}\n" for name, value in pairs.items()).encode()


UNSUPPORTED = Response(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=" request type 907 not supported")


def apache(role: str, end: int, *, begin: int = 0, behind: int = 0, **more: object) -> Bodies:
    """What a broker of 4.9 tells."""
    runtime = {"commitLogMinOffset": begin, "commitLogMaxOffset": end, "dispatchBehindBytes": behind}
    return {
        RequestCode.GET_BROKER_RUNTIME_INFO: table(**runtime, brokerVersionDesc="V4_9_7"),
        RequestCode.GET_BROKER_CONFIG: settings(**{"brokerRole": role, "mappedFileSizeCommitLog": 1 << 30, **more}),
        RequestCode.GET_BROKER_HA_STATUS: UNSUPPORTED,
    }


@asynccontextmanager
async def members(*scripts: tuple[int, Bodies | str], name: str = "broker-a") -> AsyncIterator[str]:
    """Brokers of one name that say what is scripted, by id, registered with the nameserver that is yielded.

    Of one that is not there, or that somebody else plays, the address."""
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(nameserver())
        calls = await stack.enter_async_context(caller())
        for broker_id, bodies in scripts:
            address = bodies if isinstance(bodies, str) else await _started(stack, bodies)
            request = registration(TOPIC, broker=name, address=address, broker_id=broker_id)
            await calls.call(names, request)
        yield names


async def _started(stack: AsyncExitStack, bodies: Bodies) -> str:
    server = await stack.enter_async_context(serving(_receive(bodies)))
    return str(server.address)


def _receive(bodies: Bodies) -> Callable[[Connection, Command], ReceiveResult]:
    def receive(connection: Connection, command: Command) -> ReceiveResult:
        body = bodies.get(RequestCode(command.code), UNSUPPORTED)
        if isinstance(body, Response):
            return encode_frame(response_command(command, body))
        return encode_frame(response_command(command, Response(), body))

    return receive
