"""A broker on a real socket that answers what a test wants, and a real nameserver that knows it."""

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
from tests.nameserver.servers import caller, nameserver, registration
from tests.transport.peers import PATIENCE_S, serving

SENDS: dict[int, type[Send]] = {
    RequestCode.SEND_MESSAGE_V2: SendMessageV2,
    RequestCode.SEND_BATCH_MESSAGE: SendBatch,
    RequestCode.SEND_REPLY_MESSAGE_V2: SendReplyV2,
}
Script = Callable[[Command], Response | bytes | None]
"""What to answer a send with: an answer, raw bytes, or None for silence."""


@dataclass
class ScriptedBroker:
    """Answers sends with `script` entries first, then with success. Everything it heard is kept."""

    name: str = "broker-a"
    script: deque[Script] = field(default_factory=deque)
    heard: list[Command] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    address: str = ""
    life: AsyncExitStack = field(default_factory=AsyncExitStack)

    def receive(self, connection: Connection, command: Command) -> ReceiveResult:
        if connection not in self.connections:
            self.connections.append(connection)
        self.heard.append(command)
        response = self._answer(command)
        if command.is_oneway or response is None:
            return None
        return response if isinstance(response, bytes) else encode_frame(response_command(command, response))

    def _answer(self, command: Command) -> Response | bytes | None:
        if command.code not in SENDS:
            return Response()
        return self.script.popleft()(command) if self.script else stored(command)

    async def stop(self) -> None:
        """Gone, though the nameserver does not know it yet."""
        await self.life.aclose()

    def heard_of(self, code: RequestCode) -> list[Command]:
        return [command for command in self.heard if command.code == code]

    def sends(self) -> list[Send]:
        """The sends, typed, with their bodies."""
        return [
            read_request(declaration_of(SENDS[command.code]), command)  # type: ignore[misc]
            for command in self.heard
            if command.code in SENDS
        ]

    async def until_heard(self, code: RequestCode, count: int = 1) -> list[Command]:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.heard_of(code)) < count:  # noqa: ASYNC110 - bytes of another end of a socket have no event
                await asyncio.sleep(0.001)
        return self.heard_of(code)


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
            await stack.enter_async_context(broker.life)
            server = await broker.life.enter_async_context(serving(broker.receive))
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
