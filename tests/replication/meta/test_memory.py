"""Faults of the store in memory, by which tests and simulations see what etcd does when it fails."""

import asyncio

import pytest

from ariane.errors import MetaOutcomeUnknown, MetaUnavailable, MetaWatchEnded
from ariane.replication.meta import Compare, Field, Put, Transaction
from ariane.replication.meta.memory import Fault, MemoryClient, MemoryStore
from ariane.testing.clock import FakeClock

CREATION = Transaction((Compare("a", Field.CREATED, 0),), (Put("a", b"mine"),))


@pytest.fixture
def client() -> MemoryClient:
    return MemoryClient(MemoryStore(), FakeClock())


async def test_nothing_is_done_while_no_endpoint_answers(client: MemoryClient) -> None:
    client.fault = Fault.UNAVAILABLE
    lease = client.store.grant(3, now=0).id
    for call in (client.read("a"), client.transact(CREATION), client.grant(3), client.keep_alive(lease)):
        with pytest.raises(MetaUnavailable):
            await call
    with pytest.raises(MetaWatchEnded):
        async with client.watch("a", 1):
            pass
    assert client.store.revision == 1


async def test_a_transaction_whose_answer_is_lost_was_done(client: MemoryClient) -> None:
    client.fault = Fault.ANSWER_LOST
    with pytest.raises(MetaOutcomeUnknown):
        await client.transact(CREATION)
    client.fault = None
    assert [kv.value for kv in (await client.read("a")).keys] == [b"mine"]


async def test_a_late_transaction_is_done_later_if_its_comparison_still_holds(client: MemoryClient) -> None:
    client.fault = Fault.LATE
    with pytest.raises(MetaOutcomeUnknown):
        await client.transact(CREATION)
    client.fault = None
    assert (await client.read("a")).keys == ()
    client.deliver_late()
    assert [kv.value for kv in (await client.read("a")).keys] == [b"mine"]
    client.deliver_late()
    assert (await client.read("a")).keys[0].create_revision == client.store.revision


async def test_a_stalled_watch_says_nothing_and_does_not_end(client: MemoryClient) -> None:
    client.are_watches_stalled = True
    async with client.watch("a", 1) as changes:
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)  # it has read what was there
        await client.transact(CREATION)
        await asyncio.sleep(0)
        assert not waiting.done()
        assert len((await client.read("a")).keys) == 1
        waiting.cancel()


async def test_a_lease_ends_by_the_clock_that_the_client_was_given() -> None:
    clock = FakeClock()
    client = MemoryClient(MemoryStore(), clock)
    lease = await client.grant(3)
    await client.transact(Transaction((), (Put("a", b"", lease.id),)))
    await clock.jump(2.9)
    assert len((await client.read("a")).keys) == 1
    await clock.jump(0.2)
    assert (await client.read("a")).keys == ()
