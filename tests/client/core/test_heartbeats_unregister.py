"""Unregistration is sent after the last heartbeat is answered, not concurrently."""

import asyncio
from dataclasses import dataclass, field

from ariane.client.core.instance import Instance
from ariane.client.core.lifecycle import NonTransactionalProducer
from ariane.client.settings import ClientSettings
from ariane.transport.connection import Connection
from ariane.wire.codes import RequestCode
from ariane.wire.exchange import response_command
from ariane.wire.fields import Response
from ariane.wire.frame import Command, encode_frame
from tests.nameserver.servers import caller, nameserver, registration
from tests.transport.peers import PATIENCE_S, serving


@dataclass
class SlowHeartbeatBroker:
    """A broker that responds to heartbeats when the test says so, and to other requests immediately."""

    received: list[int] = field(default_factory=list)
    greeted: asyncio.Event = field(default_factory=asyncio.Event)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def receive(self, _connection: Connection, command: Command) -> bytes:
        self.received.append(command.code)
        if command.code == RequestCode.HEART_BEAT:
            self.greeted.set()
            await self.may_answer.wait()
        return encode_frame(response_command(command, Response()))


async def test_unregistering_waits_for_the_response_to_a_heartbeat() -> None:
    broker = SlowHeartbeatBroker()
    async with nameserver() as names, caller() as calls, serving(broker.receive) as server:
        await calls.call(names, registration("T", address=str(server.address)))
        async with Instance.open(ClientSettings(nameservers=names)) as instance, asyncio.timeout(PATIENCE_S):
            await instance.routes.route("T")
            instance.register_producer("pg", NonTransactionalProducer("pg"))
            await broker.greeted.wait()
            farewell = asyncio.ensure_future(instance.unregister_producer("pg"))
            await calls.call(str(server.address), registration("T", address=str(server.address)))  # a turn for both
            assert RequestCode.UNREGISTER_CLIENT not in broker.received
            broker.may_answer.set()
            await farewell
    assert broker.received[-1] == RequestCode.UNREGISTER_CLIENT
