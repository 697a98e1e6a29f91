"""Signatures of version 2 at a server, over real sockets: what is verified, and that nothing is accepted twice."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.clock import Clock
from ariane.rpc.dispatcher import Dispatcher
from ariane.rpc.handlers import Call, HandlerTable, handles
from ariane.rpc.lockout import PAIR_FAILURES_MAX
from ariane.rpc.signature_checks import NUMBERS_AHEAD_MAX, TIME_WINDOW_MS, Signatures, UsedNumbers
from ariane.rpc.signing import Signer
from ariane.settings import Secret
from ariane.testing import FakeClock
from ariane.transport.connection import Connection
from ariane.transport.server import Server as Listening
from ariane.wire.codes import ResponseCode
from ariane.wire.exchange import request_command
from ariane.wire.fields import Request, Response
from ariane.wire.frame import Command, encode_frame
from ariane.wire.requests.topics import DeleteTopicInBroker, GetTopicConfig
from ariane.wire.signature import SIGNATURE, SIGNATURE_V2, content_to_sign, sign, verify_v2
from tests.transport.peers import RawClient, connected, serving

KEY, SECRET = "rocket-key", "12345678"
DELETE = DeleteTopicInBroker("orders")


@dataclass
class Handlers:
    deleted: list[str] = field(default_factory=list)

    @handles(DeleteTopicInBroker)
    def delete(self, request: DeleteTopicInBroker, call: Call) -> Response:
        self.deleted.append(request.topic)
        return Response()

    @handles(GetTopicConfig)
    def show(self, request: GetTopicConfig, call: Call) -> Response:
        return Response()


class Server:
    def __init__(self, clock: Clock, *, require_v2: bool = False) -> None:
        self.signatures = Signatures(clock, require_v2=require_v2)
        self.handlers = Handlers()

    def guard(self, connection: Connection, command: Command, request: Request[Any]) -> None:
        host = connection.peer.rpartition(":")[0]
        code, ext, body = command.code, command.ext, command.body
        self.signatures.use(
            connection, self.signatures.verify(connection, host, ext.get("AccessKey", ""), SECRET, code, ext, body)
        )


@asynccontextmanager
async def server(clock: Clock | None = None, **options: bool) -> AsyncIterator[tuple[Server, Listening]]:
    one = Server(clock or Clock(), **options)
    async with serving(Dispatcher(HandlerTable.of(one.handlers), guard=one.guard).receive) as listening:
        yield one, listening


class Client:
    """Signs as our clients do, and keeps the frames that it sent, as one who listens would."""

    def __init__(self, raw: RawClient, signer: Signer) -> None:
        self.raw = raw
        self.signer = signer
        self.frames: list[bytes] = []

    async def call(self, request: Request[Any]) -> Command:
        for _ in range(3):
            command = request_command(request, opaque=len(self.frames) + 1)
            self.signer.sign(command, self.raw)
            self.frames.append(encode_frame(command))
            response = await self.send(self.frames[-1])
            if not self.signer.learn(self.raw, command, response):
                break
        return response

    async def send(self, frame: bytes) -> Command:
        await self.raw.send(frame)
        return await self.raw.read()


@asynccontextmanager
async def client(listening: Listening, secret: str = SECRET, clock: Clock | None = None) -> AsyncIterator[Client]:
    async with connected(listening) as raw:
        yield Client(raw, Signer(KEY, Secret(secret), (clock or Clock()).now_ms))


async def test_a_client_asks_for_the_challenge_and_signs_with_it() -> None:
    async with server() as (one, address), client(address) as sender:
        assert (await sender.call(DELETE)).code == 0
        assert (await sender.call(DELETE)).code == 0
    assert one.handlers.deleted == ["orders", "orders"]
    assert len(sender.frames) == 3, "only the first request was refused, without a signature in it"
    assert b'"SignatureV2":""' in sender.frames[0]
    assert not any(b'"Signature":' in frame for frame in sender.frames)


async def test_a_recorded_request_is_worth_nothing_on_any_connection() -> None:
    async with server() as (one, address), server() as (other, other_address):
        async with client(address) as sender, client(address) as thief, client(other_address) as elsewhere:
            assert (await sender.call(DELETE)).code == 0
            for who in (sender, thief, elsewhere):
                response = await who.send(sender.frames[-1])
                assert response.code == ResponseCode.NO_PERMISSION
    assert (one.handlers.deleted, other.handlers.deleted) == (["orders"], [])
    assert (one.signatures.replays, other.signatures.replays) == (2, 1)


async def test_the_code_the_fields_and_the_body_are_covered() -> None:
    async with server() as (one, address), client(address) as sender:
        assert (await sender.call(GetTopicConfig("orders"))).code == 0
        command = request_command(GetTopicConfig("orders"), opaque=9)
        for change in ("code", "value", "name", "body", "time"):
            sender.signer.sign(command, sender.raw)
            ext = dict(command.ext)
            forged = Command(code=command.code, opaque=9, ext_texts=ext, body=command.body)
            if change == "code":
                forged.code = 215  # DELETE_TOPIC_IN_BROKER has the same fields
            elif change == "value":
                ext["topic"] = "other"
            elif change == "name":
                ext["x"] = ""  # Apache's signature does not notice a field without a value
            elif change == "body":
                forged.body = b"x"
            else:
                ext["SignedAt"] = str(int(ext["SignedAt"]) + 1)
            response = await sender.send(encode_frame(forged))
            assert response.code == ResponseCode.NO_PERMISSION, change
            assert "Check signature failed" in (response.remark or "")
    assert one.handlers.deleted == []


async def test_an_old_signature_is_refused_and_a_wrong_clock_corrected() -> None:
    clock, own = FakeClock(), FakeClock()
    await own.advance(10 * 24 * 3600)
    async with server(clock) as (one, address), client(address, clock=own) as sender:
        assert (await sender.call(DELETE)).code == 0, "ten days ahead, corrected by the server's time"
        command = request_command(DELETE, opaque=9)
        sender.signer.sign(command, sender.raw)
        await clock.advance(TIME_WINDOW_MS / 1000 + 1)
        refused = await sender.send(encode_frame(command))
        assert "5 minutes" in (refused.remark or "")
        assert (await sender.call(DELETE)).code == 0
    assert len(one.handlers.deleted) == 2


async def test_apaches_form_is_accepted_unless_version_2_is_required() -> None:
    command = request_command(DELETE, opaque=1)
    ext = command.ext | {"AccessKey": KEY}
    command.ext_texts = ext | {SIGNATURE: sign(SECRET, content_to_sign(ext, b"", with_unique_key_query=False))}
    for required in (False, True):
        async with server(require_v2=required) as (one, address), client(address) as sender:
            response = await sender.send(encode_frame(command))
            assert (response.code == 0) is not required
            assert len(one.handlers.deleted) == (not required)
            if required:
                assert "aclRequireV2" in (response.remark or "")
                assert (await sender.call(DELETE)).code == 0, "our own client signs as required"


async def test_repeated_bad_signatures_are_locked_out_and_open_connections_are_not() -> None:
    clock = FakeClock()
    async with server(clock) as (one, address), client(address) as honest, client(address, "wrong-secret") as guesser:
        assert (await honest.call(DELETE)).code == 0
        for _ in range(PAIR_FAILURES_MAX):
            assert "Check signature failed" in ((await guesser.call(DELETE)).remark or "")
        assert "too many bad signatures" in ((await guesser.call(DELETE)).remark or "")
        async with client(address) as late:
            assert "too many bad signatures" in ((await late.call(DELETE)).remark or "")
        assert (await honest.call(DELETE)).code == 0
        assert one.signatures.lockout.failures == PAIR_FAILURES_MAX
        await clock.advance(61)
        async with client(address) as late:
            assert (await late.call(DELETE)).code == 0


async def test_what_is_kept_for_a_connection_goes_with_it() -> None:
    async with server() as (one, address):
        async with client(address) as sender:
            await sender.call(DELETE)
            assert len(one.signatures._sessions) == 1
        async with client(address) as sender:
            await sender.call(DELETE)
            assert len(one.signatures._sessions) == 1


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), max_size=200))
def test_a_number_is_used_once(numbers: list[int]) -> None:
    used, seen = UsedNumbers(), set[int]()
    for number in numbers:
        assert used.use(number) is (number not in seen)
        seen.add(number)


def test_numbers_that_never_come_do_not_fill_the_memory() -> None:
    used = UsedNumbers()
    for number in range(2, 10 * NUMBERS_AHEAD_MAX, 2):
        assert used.use(number)
    assert len(used.ahead) <= NUMBERS_AHEAD_MAX
    assert not used.use(3), "too far behind to tell"


def test_a_text_that_no_header_can_hold_is_not_verified() -> None:
    assert not verify_v2(SECRET, 1, {"a": "\ud800", SIGNATURE_V2: "x"}, b"")
