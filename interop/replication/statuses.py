"""Checks of the statuses of sends to a master, with and without a slave that has the message."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ariane.client.producer.producer import Producer
from ariane.client.producer.result import SendStatus
from ariane.client.settings import ClientSettings
from interop.broker.check_context import eventually
from interop.broker.client import NotOffered
from interop.broker.rows import Rows
from interop.replication.pair import Pair
from interop.report import expect

TOPIC = "StatusTopic"
SENDS = 3
SEND_TIMEOUT_S = 15.0
"""More than `slaveTimeout`, 3 s, also on a busy machine."""

STATUS_CHECKS: Rows[Pair] = Rows()


@asynccontextmanager
async def producer_of(pair: Pair, group: str) -> AsyncIterator[Producer]:
    settings = ClientSettings(nameservers=pair.nameserver)
    async with Producer(settings=settings, group=group, send_timeout_s=SEND_TIMEOUT_S) as producer:
        yield producer


async def _statuses(pair: Pair, *, wait_stored: bool = True) -> list[SendStatus]:
    async with producer_of(pair, "statuses") as producer:
        return [(await producer.send(TOPIC, b"hello", wait_stored=wait_stored)).status for _ in range(SENDS)]


async def _expect(pair: Pair, status: SendStatus, *, wait_stored: bool = True) -> None:
    statuses = await _statuses(pair, wait_stored=wait_stored)
    expect(set(statuses) == {status}, f"{', '.join(statuses)}, not {status}")


def _require_waiting(pair: Pair) -> None:
    if (pair.master.vendor.version or "").startswith("5"):
        raise NotOffered("a SYNC_MASTER of Apache 5 waits for no slave by default: inSyncReplicas is 1, itself")


@STATUS_CHECKS.row("ASYNC_MASTER without a slave: SEND_OK")
async def asynchronous(pair: Pair) -> None:
    await pair.master.start(brokerRole="ASYNC_MASTER")
    await pair.create_topic(TOPIC)
    await _expect(pair, SendStatus.SEND_OK)


@STATUS_CHECKS.row("SYNC_MASTER without a slave: SLAVE_NOT_AVAILABLE")
async def alone(pair: Pair) -> None:
    await pair.master.stop()
    await pair.master.start(brokerRole="SYNC_MASTER")
    await pair.create_topic(TOPIC)
    _require_waiting(pair)
    await _expect(pair, SendStatus.SLAVE_NOT_AVAILABLE)


@STATUS_CHECKS.row("without a slave, WAIT=false: SEND_OK")
async def unwanted(pair: Pair) -> None:
    await _expect(pair, SendStatus.SEND_OK, wait_stored=False)


@STATUS_CHECKS.row("with a slave: SEND_OK, and the slave has the message")
async def together(pair: Pair) -> None:
    await pair.slave.start()
    await pair.until_level(TOPIC)
    _require_waiting(pair)
    await _until_ok(pair)
    for _ in range(SENDS):
        await _expect(pair, SendStatus.SEND_OK)
        ours, theirs = await pair.log_end(pair.master), await pair.log_end(pair.slave)
        expect(theirs >= ours, f"the slave's log ends at {theirs}, the master's at {ours}")


async def _until_ok(pair: Pair) -> None:
    """A master of Apache counts a slave when it has accepted the connection, ours when it has reported."""

    async def is_ok() -> bool:
        return set(await _statuses(pair)) == {SendStatus.SEND_OK}

    await eventually(is_ok, "SEND_OK with a slave")


@STATUS_CHECKS.row("slave paused: FLUSH_SLAVE_TIMEOUT, and SEND_OK when it goes on")
async def paused(pair: Pair) -> None:
    _require_waiting(pair)
    with pair.slave.paused():
        await _expect(pair, SendStatus.FLUSH_SLAVE_TIMEOUT)
    await _until_ok(pair)
    await pair.until_level(TOPIC)


@STATUS_CHECKS.row("slave killed: SLAVE_NOT_AVAILABLE, and SEND_OK when it is back")
async def killed(pair: Pair) -> None:
    _require_waiting(pair)
    await pair.slave.kill()
    await _expect(pair, SendStatus.SLAVE_NOT_AVAILABLE)
    await pair.slave.start()
    await pair.until_level(TOPIC)
    await _until_ok(pair)
