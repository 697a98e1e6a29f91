import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from ariane.clock import Clock
from ariane.errors import CallTimeout, RequestFailed
from ariane.model.ids import QueueOffset
from ariane.rpc.caller import Caller
from ariane.rpc.dispatcher import Dispatcher
from ariane.rpc.handlers import Call, Encoded, HandlerTable, handles
from ariane.transport.pool import Pool
from ariane.transport.settings import TransportSettings
from ariane.wire.codes import RequestCode, ResponseCode, Serialization
from ariane.wire.exchange import request_command
from ariane.wire.fields import Response
from ariane.wire.frame import Command, encode_frame
from ariane.wire.requests.offsets import GetMaxOffset, GetMinOffset, OffsetResponse
from ariane.wire.requests.topics import GetCluster, GetRoute, RouteResponse
from tests.transport.peers import connected, serving

TOO_LARGE = 17 * 1024 * 1024


@dataclass
class Handlers:
    """One handler for each way an answer can come about."""

    seen: list[object] = field(default_factory=list)

    @handles(GetMaxOffset)
    def at_once(self, request: GetMaxOffset, call: Call) -> OffsetResponse:
        self.seen.append(request)
        if request.topic == "refuse":
            raise RequestFailed(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
        if request.topic == "bug":
            raise ZeroDivisionError("a secret detail")
        return OffsetResponse(offset=QueueOffset(request.queue_id + 1))

    @handles(GetMinOffset)
    async def later(self, request: GetMinOffset, call: Call) -> OffsetResponse:
        await asyncio.sleep(0)
        if request.topic == "bug":
            raise ZeroDivisionError("a secret detail")
        return OffsetResponse(offset=QueueOffset(-1))

    @handles(GetRoute)
    def encoded(self, request: GetRoute, call: Call) -> RouteResponse | Encoded:
        return Encoded(Response(), bytes(TOO_LARGE) if request.topic == "large" else b'{"queueDatas":[]}')


@asynccontextmanager
async def running(serialization: Serialization = Serialization.JSON) -> AsyncIterator[tuple[Caller, str, Handlers]]:
    handlers = Handlers()
    dispatcher = Dispatcher(HandlerTable.of(handlers))
    async with (
        serving(dispatcher.receive) as server,
        Pool.open(TransportSettings(), Clock(), Dispatcher(HandlerTable.of()).receive) as pool,
    ):
        yield Caller(pool, serialization), str(server.address), handlers


async def failure(call: Awaitable[object]) -> RequestFailed:
    with pytest.raises(RequestFailed) as caught:
        await call
    return caught.value


@pytest.mark.parametrize("serialization", Serialization)
async def test_a_call_is_a_struct_in_and_a_struct_out(serialization: Serialization) -> None:
    async with running(serialization) as (caller, address, handlers):
        assert (await caller.call(address, GetMaxOffset("orders", 4))).offset == 5
        assert (await caller.call(address, GetMinOffset("orders", 4))).offset == -1
        assert handlers.seen == [GetMaxOffset("orders", 4)]


@pytest.mark.parametrize("serialization", Serialization)
async def test_trap_01_the_answer_comes_in_the_serialisation_of_the_request(serialization: Serialization) -> None:
    async with serving(Dispatcher(HandlerTable.of(Handlers())).receive) as server, connected(server) as client:
        await client.send(encode_frame(request_command(GetMaxOffset("T", 0), opaque=3, serialization=serialization)))
        assert (await client.read()).serialization is serialization


async def test_trap_06_every_answer_says_a_version_that_lets_sql_consumers_pull() -> None:
    async with serving(Dispatcher(HandlerTable.of(Handlers())).receive) as server, connected(server) as client:
        await client.send(
            encode_frame(Command(code=RequestCode.GET_MAX_OFFSET, ext_texts={"topic": "T", "queueId": "0"}))
        )
        assert (await client.read()).version >= 232


async def test_trap_11_an_unknown_code_is_answered_at_once() -> None:
    async with running() as (caller, address, _):
        refused = await failure(caller.call(address, GetCluster()))
        assert refused.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert "GET_BROKER_CLUSTER_INFO (106)" in refused.remark


async def test_a_refusal_reaches_the_caller_with_its_code_and_words() -> None:
    async with running() as (caller, address, _):
        refused = await failure(caller.call(address, GetMaxOffset("refuse", 0)))
        assert refused.code == ResponseCode.TOPIC_NOT_EXIST
        assert "no such topic" in refused.remark


@pytest.mark.parametrize("failing", [GetMaxOffset("bug", 0), GetMinOffset("bug", 0)])
async def test_a_bug_is_logged_with_its_traceback_and_answered_without_details(
    failing: GetMaxOffset | GetMinOffset, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as (caller, address, _):
        refused = await failure(caller.call(address, failing))
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "secret" not in refused.remark
        (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert record.exc_info
        assert (await caller.call(address, GetMaxOffset("orders", 1))).offset == 2


async def test_a_missing_or_malformed_field_is_named_in_the_answer() -> None:
    async with serving(Dispatcher(HandlerTable.of(Handlers())).receive) as server, connected(server) as client:
        for ext, named in (({"topic": "T"}, "queueId"), ({"topic": "T", "queueId": "many"}, "many")):
            await client.send(encode_frame(Command(code=RequestCode.GET_MAX_OFFSET, ext_texts=ext)))
            response = await client.read()
            assert response.code == ResponseCode.SYSTEM_ERROR
            assert named in (response.remark or "")


async def test_an_answer_above_the_frame_limit_becomes_an_error_answer() -> None:
    async with running() as (caller, address, _):
        refused = await failure(caller.call(address, GetRoute("large")))
        assert "at most 16777216" in refused.remark


async def test_a_oneway_request_is_not_answered() -> None:
    async with running() as (caller, address, handlers):
        await caller.oneway(address, GetMaxOffset("oneway", 0))
        await caller.oneway(address, GetMaxOffset("bug", 0))
        assert (await caller.call(address, GetMaxOffset("orders", 1))).offset == 2
        assert len(handlers.seen) == 3


async def test_two_handlers_for_one_request_are_a_mistake_found_at_start() -> None:
    with pytest.raises(ValueError, match="GET_MAX_OFFSET has two handlers"):
        HandlerTable.of(Handlers(), Handlers())


async def test_a_silent_server_is_a_time_out_with_an_unknown_outcome() -> None:
    async with (
        serving(lambda connection, command: None) as server,
        Pool.open(TransportSettings(), Clock(), lambda connection, command: None) as pool,
    ):
        with pytest.raises(CallTimeout, match="outcome is unknown"):
            await Caller(pool).call(str(server.address), GetCluster(), timeout_s=0.05)
