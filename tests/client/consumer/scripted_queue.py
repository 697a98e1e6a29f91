"""A scripted broker with one queue, on a real socket: a test defines its responses to pulls."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from ariane.model.ids import RETRY_PREFIX, QueueOffset
from ariane.model.topic import TopicConfig
from ariane.transport.connection import Connection, ReceiveResult
from ariane.wire.codes import RequestCode, ResponseCode
from ariane.wire.exchange import REQUESTS, read_request, response_command
from ariane.wire.fields import Response
from ariane.wire.frame import Command, encode_frame
from ariane.wire.record.layout import encode
from ariane.wire.requests.clients import (
    ConsumerIds,
    ConsumerIdsResponse,
    Heartbeat,
    LockedQueues,
    LockQueues,
    LockResponse,
)
from ariane.wire.requests.offsets import OffsetResponse, UpdateConsumerOffset, UpdateOffsetResponse
from ariane.wire.requests.pull import Pull, PullResponse
from ariane.wire.requests.send import SendResponse
from tests.client.cluster_fixture import PATIENCE_S
from tests.client.consumer.test_queues import message
from tests.nameserver.servers import caller, nameserver, registration
from tests.transport.peers import serving

TOPIC, GROUP = "orders", "group"
Script = Callable[[Pull], Response | None]


@dataclass
class ScriptedQueue:
    """Responds to pulls with the entries of `pulls`; without entries a pull waits without end."""

    pulls: deque[Script] = field(default_factory=deque)
    responses: dict[int, Response] = field(default_factory=dict)
    """Responses to other requests than pulls, by code."""
    stored: int = 0
    received: list[tuple[int, Any]] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def receive(self, connection: Connection, command: Command) -> ReceiveResult:
        if connection not in self.connections:
            self.connections.append(connection)
        request = read_request(REQUESTS[command.code], command)
        self.received.append((command.code, request))
        self._changed.set()
        response = self._response(command.code, request)
        if response is None or command.is_oneway:
            return None
        return encode_frame(response_command(command, response))

    def received_of(self, code: RequestCode) -> list[Any]:
        return [request for received, request in self.received if received == code]

    async def wait_for_request(self, code: RequestCode, count: int = 1) -> list[Any]:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.received_of(code)) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.received_of(code)

    def _response(self, code: int, request: Any) -> Response | None:
        if isinstance(request, Pull):
            # Pulls of the retry topic get no response.
            return self.pulls.popleft()(request) if request.topic == TOPIC and self.pulls else None
        if code in self.responses:
            return self.responses[code]
        match request:
            case Heartbeat(body=data) if data is not None:
                self.members = [data.client_id]
            case LockQueues(body=wanted) if wanted is not None:
                return LockResponse(body=LockedQueues(locked=wanted.mq_set))
            case UpdateConsumerOffset():
                return UpdateOffsetResponse()
        return self._by_code(code)

    def _by_code(self, code: int) -> Response:
        match code:
            case RequestCode.GET_CONSUMER_LIST_BY_GROUP:
                return ConsumerIdsResponse(body=ConsumerIds(consumer_id_list=self.members))
            case RequestCode.QUERY_CONSUMER_OFFSET | RequestCode.GET_MIN_OFFSET | RequestCode.GET_MAX_OFFSET:
                return OffsetResponse(offset=QueueOffset(self.stored))
            case RequestCode.SEND_MESSAGE_V2:
                return SendResponse(msg_id="7F00000100002A9F" + "0" * 16, queue_id=0, queue_offset=QueueOffset(0))
            case _:
                return Response()


def found(*bodies: bytes, at: int = 0, suggest: int = 0, spoil: Callable[[bytes], bytes] = bytes) -> Script:
    """The messages from offset `at` on; `spoil` changes the bytes of the response body."""
    records = b"".join(encode(replace(message(at + index, body), topic=TOPIC)) for index, body in enumerate(bodies))
    end = QueueOffset(at + len(bodies))
    return lambda _request: PullResponse(
        suggest_which_broker_id=suggest,
        next_begin_offset=end,
        min_offset=QueueOffset(0),
        max_offset=end,
        body=spoil(records),
    )


def nothing(code: ResponseCode = ResponseCode.PULL_NOT_FOUND, at: int = 0, suggest: int = 0) -> Script:
    return lambda _request: PullResponse(
        code=code,
        suggest_which_broker_id=suggest,
        next_begin_offset=QueueOffset(at),
        min_offset=QueueOffset(0),
        max_offset=QueueOffset(at),
    )


def refusal(code: ResponseCode) -> Script:
    return lambda _request: Response(code=code, remark="no")


@asynccontextmanager
async def scripted_queue(*brokers: ScriptedQueue) -> AsyncIterator[str]:
    """The nameserver's address. The first broker is the master, the others are its slaves."""
    topics = [
        TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1) for name in (TOPIC, RETRY_PREFIX + GROUP)
    ]
    async with nameserver() as names, caller() as calls:
        async with _served(list(brokers)) as addresses:
            for broker_id, address in enumerate(addresses):
                await calls.call(names, registration(*topics, address=address, broker_id=broker_id))
            yield names


@asynccontextmanager
async def _served(brokers: list[ScriptedQueue]) -> AsyncIterator[list[str]]:
    if not brokers:
        yield []
        return
    async with serving(brokers[0].receive) as server, _served(brokers[1:]) as others:
        yield [str(server.address), *others]
