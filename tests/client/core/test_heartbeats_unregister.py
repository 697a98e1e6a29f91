"""A part that leaves tells the brokers after its last heartbeat, not beside it."""

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
class SlowToGreet:
    """A broker that answers a heartbeat when the test says so, and anything else at once."""

    heard: list[int] = field(default_factory=list)
    greeted: asyncio.Event = field(default_factory=asyncio.Event)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def receive(self, _connection: Connection, command: Command) -> bytes:
        self.heard.append(command.code)
        if command.code == RequestCode.HEART_BEAT:
            self.greeted.set()
            await self.may_answer.wait()
        return encode_frame(response_command(command, Response()))


async def test_a_farewell_waits_for_the_answer_to_a_heartbeat() -> None:
    broker = SlowToGreet()
    async with nameserver() as names, caller() as calls, serving(broker.receive) as server:
        await calls.call(names, registration("T", address=str(server.address)))
        async with Instance.open(ClientSettings(nameservers=names)) as instance, asyncio.timeout(PATIENCE_S):
            await instance.routes.route("T")
            instance.register_producer("pg", NonTransactionalProducer("pg"))
            await broker.greeted.wait()
            farewell = asyncio.ensure_future(instance.unregister_producer("pg"))
            await calls.call(str(server.address), registration("T", address=str(server.address)))  # a turn for both
            assert RequestCode.UNREGISTER_CLIENT not in broker.heard
            broker.may_answer.set()
            await farewell
    assert broker.heard[-1] == RequestCode.UNREGISTER_CLIENT
