"""A scripted broker on a real socket, whose responses a test defines, registered at a real nameserver."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from ariane.clock import Clock
from ariane.model.ids import QueueOffset
from ariane.model.topic import TopicConfig
from ariane.rpc.caller import Caller
from ariane.transport.connection import Connection, ReceiveResult
from ariane.wire.codes import RequestCode, ResponseCode
from ariane.wire.exchange import declaration_of, read_request, response_command
from ariane.wire.fields import Response
from ariane.wire.frame import Command, encode_frame
from ariane.wire.record.batch import decode_batch
from ariane.wire.requests.send import Send, SendBatch, SendMessageV2, SendReplyV2, SendResponse
from ariane.wire.signature import verify
from tests.nameserver.servers import caller, nameserver, registration
from tests.transport.peers import PATIENCE_S, serving

SENDS: dict[int, type[Send]] = {
    RequestCode.SEND_MESSAGE_V2: SendMessageV2,
    RequestCode.SEND_BATCH_MESSAGE: SendBatch,
    RequestCode.SEND_REPLY_MESSAGE_V2: SendReplyV2,
}
Script = Callable[[Command], Response | bytes | None]
"""The response to a send: a Response, raw bytes, or None for no response."""


@dataclass
class ScriptedBroker:
    """Responds to sends with the entries of `script` first, then with success. Records all requests."""

    name: str = "broker-a"
    script: deque[Script] = field(default_factory=deque)
    received: list[Command] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    address: str = ""
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    secret: str | None = None
    """Of the account that must sign, as Apache's brokers check it."""

    def receive(self, connection: Connection, command: Command) -> ReceiveResult:
        if connection not in self.connections:
            self.connections.append(connection)
        self.received.append(command)
        response = self._response(command)
        if command.is_oneway or response is None:
            return None
        return response if isinstance(response, bytes) else encode_frame(response_command(command, response))

    def _response(self, command: Command) -> Response | bytes | None:
        if self.secret is not None and not verify(self.secret, command.ext, command.body):
            remark = "org.apache.rocketmq.acl.common.AclException: Check signature failed for accessKey=rocket"
            return Response(code=ResponseCode.SYSTEM_ERROR, remark=remark)
        if command.code not in SENDS:
            return Response()
        return self.script.popleft()(command) if self.script else stored(command)

    async def stop(self) -> None:
        """Stops it without unregistering at the nameserver."""
        await self.stack.aclose()

    def received_of(self, code: RequestCode) -> list[Command]:
        return [command for command in self.received if command.code == code]

    def sends(self) -> list[Send]:
        """The decoded send requests."""
        return [
            read_request(declaration_of(SENDS[command.code]), command)  # type: ignore[misc]
            for command in self.received
            if command.code in SENDS
        ]

    async def wait_for_request(self, code: RequestCode, count: int = 1) -> list[Command]:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.received_of(code)) < count:  # noqa: ASYNC110 - there is no event for received bytes
                await asyncio.sleep(0.001)
        return self.received_of(code)


def stored(command: Command, *, code: int = 0, first_offset: int = 7) -> SendResponse:
    """Success, with as many ids as the batch has messages."""
    request = command.fields(SENDS[command.code])
    count = 1
    if request.is_batch:
        count = len(decode_batch(command.body, count_max=10_000))
    ids = ",".join(f"7F00000100002A9F{index:016X}" for index in range(count))
    return SendResponse(code=code, msg_id=ids, queue_id=request.queue_id, queue_offset=QueueOffset(first_offset))


def refusal(code: ResponseCode, remark: str = "no") -> Script:
    return lambda _command: Response(code=code, remark=remark)


def silence(_command: Command) -> None:
    return None


@dataclass
class Cluster:
    nameserver: str
    brokers: list[ScriptedBroker]

    @property
    def broker(self) -> ScriptedBroker:
        return self.brokers[0]


@asynccontextmanager
async def cluster(*topics: str | TopicConfig, brokers: int = 1, clock: Clock | None = None) -> AsyncIterator[Cluster]:
    """Brokers named broker-a, broker-b, ... that all have `topics`, registered at a nameserver."""
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(nameserver(clock=clock))
        calls = await stack.enter_async_context(caller())
        built = []
        for letter in "abcdef"[:brokers]:
            broker = ScriptedBroker(f"broker-{letter}")
            await stack.enter_async_context(broker.stack)
            server = await broker.stack.enter_async_context(serving(broker.receive))
            broker.address = str(server.address)
            await register(calls, names, broker, *topics)
            built.append(broker)
        yield Cluster(names, built)


async def register(
    calls: Caller, names: str, broker: ScriptedBroker, *topics: str | TopicConfig, counter: int = 1
) -> None:
    configs = [
        topic
        if isinstance(topic, TopicConfig)
        else TopicConfig(topic_name=topic, read_queue_nums=4, write_queue_nums=4)
        for topic in topics
    ]
    request = registration(*configs, broker=broker.name, address=broker.address, counter=counter)
    await calls.call(names, request)
