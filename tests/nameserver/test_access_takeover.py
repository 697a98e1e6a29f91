"""A registration takes the place of a live broker only with the right to do so; without access control as in Apache."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ariane.errors import RequestFailed
from ariane.model.address import Address
from ariane.rpc.caller import Caller
from ariane.testing import FakeClock
from ariane.wire.codes import ResponseCode
from ariane.wire.exchange import request_command
from ariane.wire.fields import Request
from ariane.wire.frame import FrameDecoder, encode_frame
from ariane.wire.requests.brokers import BrokerHeartbeat, QueryDataVersion, UnregisterBroker
from ariane.wire.requests.topics import GetRoute
from ariane.wire.signature import ACCESS_KEY, SIGNATURE, content_to_sign, sign
from tests.nameserver.servers import caller, nameserver, registration
from tests.nameserver.test_access import IDENTITY, SECRETS, client_of, guarded, is_allowed
from tests.transport.peers import until

HELD, OTHER = "127.0.0.1:10911", "127.0.0.1:4711"


@asynccontextmanager
async def held(tmp_path: Path, account: str = "brokers", **settings: Any) -> AsyncIterator[tuple[str, AsyncExitStack]]:
    """A nameserver with access control where `account` has registered broker-a at HELD, with its connection."""
    async with guarded(tmp_path, **settings) as address, AsyncExitStack() as connection:
        client = await connection.enter_async_context(client_of(account))
        await client.call(address, registration("orders", address=HELD))
        yield address, connection


async def master(client: Caller, address: str) -> str:
    return (await client.call(address, GetRoute("orders"))).body.broker_datas[0].broker_addrs[0]


@pytest.mark.parametrize(("account", "allowed"), [("brokers", False), ("broker1", True), ("administrator", True)])
async def test_a_live_name_is_replaced_only_by_an_account_with_that_name(
    tmp_path: Path, account: str, allowed: bool
) -> None:
    async with held(tmp_path) as (address, _), client_of(account) as other:
        assert await is_allowed(other, address, registration("orders", address=OTHER)) == allowed
        assert await master(other, address) == (OTHER if allowed else HELD)


async def test_the_refusal_names_the_holder_and_the_ways_out(tmp_path: Path) -> None:
    async with held(tmp_path) as (address, _), client_of("brokers") as other:
        with pytest.raises(RequestFailed) as refused:
            await other.call(address, registration("orders", address=OTHER))
    assert refused.value.code == ResponseCode.NO_PERMISSION
    for word in ("broker-a", HELD, "stop it", "120 s", "brokers"):
        assert word in (refused.value.remark or "")


async def test_a_broker_returns_with_another_address_after_its_connection_closed(tmp_path: Path) -> None:
    async with held(tmp_path) as (address, connection), client_of("brokers") as other:
        await connection.aclose()
        await until_allowed(other, address)
        assert await master(other, address) == OTHER


async def until_allowed(client: Caller, address: str) -> None:
    for _ in range(1000):  # the nameserver sees the close a moment later
        if await is_allowed(client, address, registration("orders", address=OTHER)):
            return
    pytest.fail("still refused")


async def test_a_broker_returns_with_another_address_after_its_expiry(tmp_path: Path) -> None:
    """A machine that lost its power closes no connection. The scan for dead brokers may be late."""
    clock = FakeClock()
    async with held(tmp_path, clock=clock, scan_interval_s=3600.0, first_scan_delay_s=3600.0) as (address, _):
        async with client_of("brokers") as other:
            await clock.advance(100)
            assert not await is_allowed(other, address, registration("orders", address=OTHER))
            await clock.advance(21)
            assert await is_allowed(other, address, registration("orders", address=OTHER))


async def test_another_account_of_the_same_host_is_not_the_broker(tmp_path: Path) -> None:
    """Once it were, the address would be its own, and the name could go anywhere."""
    async with held(tmp_path, account="broker1") as (address, _), client_of("brokers") as other:
        for request in (
            registration("orders", "stolen", address=HELD, counter=2),
            BrokerHeartbeat(**IDENTITY),
            QueryDataVersion(**IDENTITY),
            UnregisterBroker(**IDENTITY),
        ):
            assert not await is_allowed(other, address, request), request
        assert await master(other, address) == HELD


async def test_a_broker_that_connects_again_is_itself(tmp_path: Path) -> None:
    async with held(tmp_path) as (address, _), client_of("brokers") as again:
        assert await is_allowed(again, address, registration("orders", "new", address=HELD, counter=2))


async def test_an_address_of_a_live_broker_is_not_taken_under_another_name(tmp_path: Path) -> None:
    async with held(tmp_path) as (address, _), client_of("brokers") as other:
        assert not await is_allowed(other, address, registration("orders", broker="broker-z", address=HELD))
        assert (await other.call(address, GetRoute("orders"))).body.broker_datas[0].broker_name == "broker-a"


async def test_a_slave_of_the_same_name_is_no_takeover(tmp_path: Path) -> None:
    async with held(tmp_path) as (address, _), client_of("brokers") as slave:
        assert await is_allowed(slave, address, registration("orders", address=OTHER, broker_id=1))
        (data,) = (await slave.call(address, GetRoute("orders"))).body.broker_datas
        assert data.broker_addrs == {0: HELD, 1: OTHER}


@pytest.mark.parametrize(
    "request_",
    [
        UnregisterBroker(**{**IDENTITY, "broker_name": "broker-b"}),
        QueryDataVersion(**{**IDENTITY, "broker_name": "broker-b"}),
        BrokerHeartbeat(**{**IDENTITY, "broker_name": "broker-b"}),
    ],
    ids=lambda request: type(request).__name__,
)
async def test_nobody_speaks_for_a_live_broker_under_another_name(tmp_path: Path, request_: Any) -> None:
    async with held(tmp_path) as (address, _), client_of("brokers") as other:
        assert not await is_allowed(other, address, request_)
        assert await master(other, address) == HELD


async def from_another_host(address: str, request: Request[Any]) -> int:
    """The response code to a request, signed for `brokers`, from another address than 127.0.0.1."""
    command = request_command(request, opaque=1)
    ext = command.ext | {ACCESS_KEY: "brokers"}
    signature = sign(SECRETS["brokers"], content_to_sign(ext, command.body, with_unique_key_query=False))
    command.ext_texts = ext | {SIGNATURE: signature}
    port = Address.parse(address).port
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
    try:
        writer.write(encode_frame(command))
        decoder = FrameDecoder()
        while True:
            decoder.feed(await reader.read(65536))
            for response in decoder:
                return response.code
    finally:
        writer.close()


@pytest.mark.parametrize(
    "request_",
    [
        registration("orders", "stolen", address=HELD, counter=2),
        UnregisterBroker(**IDENTITY),
        QueryDataVersion(**IDENTITY),
        BrokerHeartbeat(**IDENTITY),
    ],
    ids=lambda request: type(request).__name__,
)
async def test_another_host_does_not_speak_for_a_live_broker(tmp_path: Path, request_: Any) -> None:
    async with held(tmp_path) as (address, _), caller() as client:
        assert await from_another_host(address, request_) == ResponseCode.NO_PERMISSION
        assert await from_another_host(address, registration("other", broker="broker-b", address=OTHER)) == 0
        assert await master(client, address) == HELD


async def test_without_access_control_the_newest_registration_counts_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "ariane.nameserver.handlers")
    async with nameserver() as address, caller() as first, caller() as second:
        await first.call(address, registration("orders", address=HELD))
        await second.call(address, registration("orders", address=OTHER))
        assert await master(first, address) == OTHER
        await until(lambda: any("displaced another" in record.message for record in caplog.records))
    (record,) = (record for record in caplog.records if "displaced another" in record.message)
    assert (vars(record)["address"], vars(record)["displaced"]) == (OTHER, HELD)
