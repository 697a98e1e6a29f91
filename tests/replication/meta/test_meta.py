"""The contract of a metadata store, held against etcd and against the one in memory: a difference is a bug."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable

import pytest

from ariane.clock import Clock
from ariane.errors import MetaLeaseGone, MetaRefused, MetaWatchEnded
from ariane.replication.meta import (
    Changes,
    Compare,
    Delete,
    Field,
    KeyValue,
    MetaStore,
    Put,
    Transaction,
    prefix_end,
)
from ariane.replication.meta.memory import MemoryClient, MemoryStore
from tests.replication.meta.etcd_servers import EtcdNode

_prefixes = itertools.count()


@pytest.fixture
def prefix() -> str:
    """No other test writes there."""
    return f"/ariane/test/{next(_prefixes)}/"


async def put(meta: MetaStore, key: str, value: bytes = b"value", lease: int = 0) -> int:
    outcome = await meta.transact(Transaction((), (Put(key, value, lease),)))
    assert outcome.succeeded
    return outcome.revision


async def only(meta: MetaStore, key: str) -> KeyValue:
    (found,) = (await meta.read(key)).keys
    return found


# --- keys and transactions ---


async def test_a_key_has_the_revisions_that_made_and_changed_it(meta: MetaStore, prefix: str) -> None:
    created = await put(meta, prefix + "a", b"one")
    changed = await put(meta, prefix + "a", b"\x00\xff two")
    assert changed > created
    assert await only(meta, prefix) == KeyValue(prefix + "a", b"\x00\xff two", created, changed, 0)


async def test_a_read_returns_all_keys_of_a_prefix_in_order_and_no_others(meta: MetaStore, prefix: str) -> None:
    for name in ("b/2", "b/10", "b/", "b0", "a"):
        await put(meta, prefix + name)
    reading = await meta.read(prefix + "b/")
    assert [kv.key.removeprefix(prefix) for kv in reading.keys] == ["b/", "b/10", "b/2"]
    assert (await meta.read(prefix + "nothing")).keys == ()


async def test_an_empty_value_is_a_value(meta: MetaStore, prefix: str) -> None:
    await put(meta, prefix + "a", b"")
    assert (await only(meta, prefix)).value == b""


async def test_a_read_has_the_revision_of_the_whole_store(meta: MetaStore, prefix: str) -> None:
    await put(meta, prefix + "a")
    revision = await put(meta, prefix.replace("test", "elsewhere") + "b")
    reading = await meta.read(prefix)
    assert reading.revision == revision > reading.keys[0].mod_revision


@pytest.mark.parametrize("field", [Field.CREATED, Field.MODIFIED, Field.LEASE])
async def test_a_missing_key_compares_as_zero(meta: MetaStore, prefix: str, field: Field) -> None:
    transaction = Transaction((Compare(prefix + "a", field, 0),), (Put(prefix + "b", b""),))
    assert (await meta.transact(transaction)).succeeded


async def test_only_one_of_two_writers_creates_a_key(connect: Callable[[], MetaStore], prefix: str) -> None:
    one, two = connect(), connect()

    def creation(value: bytes) -> Transaction:
        return Transaction((Compare(prefix + "a", Field.CREATED, 0),), (Put(prefix + "a", value),))

    outcomes = await asyncio.gather(one.transact(creation(b"one")), two.transact(creation(b"two")))
    assert sorted(outcome.succeeded for outcome in outcomes) == [False, True]
    winner = [b"one", b"two"][[outcome.succeeded for outcome in outcomes].index(True)]
    assert (await only(one, prefix)).value == winner


async def test_a_change_against_an_old_revision_does_nothing(meta: MetaStore, prefix: str) -> None:
    old = await put(meta, prefix + "a", b"one")
    await put(meta, prefix + "a", b"two")
    swap = Transaction((Compare(prefix + "a", Field.MODIFIED, old),), (Put(prefix + "a", b"three"),))
    before = await meta.read(prefix)
    assert not (await meta.transact(swap)).succeeded
    assert await meta.read(prefix) == before


async def test_a_key_that_was_deleted_and_made_again_has_another_creation(meta: MetaStore, prefix: str) -> None:
    first = await put(meta, prefix + "a")
    await meta.transact(Transaction((), (Delete(prefix + "a"),)))
    second = await put(meta, prefix + "a")
    for created, is_same in ((first, False), (second, True)):
        compare = Compare(prefix + "a", Field.CREATED, created)
        assert (await meta.transact(Transaction((compare,), ()))).succeeded is is_same


@pytest.mark.parametrize(("expected", "succeeds"), [(b"value", True), (b"other", False), (b"", False)])
async def test_a_value_can_be_compared(meta: MetaStore, prefix: str, expected: bytes, succeeds: bool) -> None:
    await put(meta, prefix + "a")
    compare = Compare(prefix + "a", Field.VALUE, expected)
    assert (await meta.transact(Transaction((compare,), ()))).succeeded is succeeds


async def test_a_comparison_of_a_missing_keys_value_fails(meta: MetaStore, prefix: str) -> None:
    assert not (await meta.transact(Transaction((Compare(prefix, Field.VALUE, b""),), ()))).succeeded


async def test_a_transaction_changes_all_its_keys_in_one_revision(meta: MetaStore, prefix: str) -> None:
    await put(meta, prefix + "gone")
    changes = (Put(prefix + "a", b"1"), Put(prefix + "b", b"2"), Delete(prefix + "gone"))
    outcome = await meta.transact(Transaction((), changes))
    reading = await meta.read(prefix)
    assert [(kv.value, kv.mod_revision) for kv in reading.keys] == [(b"1", outcome.revision), (b"2", outcome.revision)]


async def test_one_failed_comparison_of_several_is_enough(meta: MetaStore, prefix: str) -> None:
    revision = await put(meta, prefix + "a")
    compares = (Compare(prefix + "a", Field.MODIFIED, revision), Compare(prefix + "b", Field.CREATED, 7))
    assert not (await meta.transact(Transaction(compares, (Put(prefix + "c", b""),)))).succeeded
    assert len((await meta.read(prefix)).keys) == 1


async def test_the_same_key_twice_in_a_transaction_is_refused(meta: MetaStore, prefix: str) -> None:
    with pytest.raises(MetaRefused):
        await meta.transact(Transaction((), (Put(prefix, b"1"), Put(prefix, b"2"))))
    assert (await meta.read(prefix)).keys == ()


# --- leases ---


async def test_keys_of_a_revoked_lease_go_at_once_and_together(meta: MetaStore, prefix: str) -> None:
    lease = (await meta.grant(60)).id
    for name in ("a", "b"):
        await put(meta, prefix + name, lease=lease)
    await put(meta, prefix + "c")
    assert (await only(meta, prefix + "a")).lease == lease
    await meta.revoke(lease)
    assert [kv.key for kv in (await meta.read(prefix)).keys] == [prefix + "c"]
    await meta.revoke(lease)  # no error


async def test_a_key_that_is_put_again_without_its_lease_stays(meta: MetaStore, prefix: str) -> None:
    lease = (await meta.grant(60)).id
    await put(meta, prefix, lease=lease)
    await put(meta, prefix, b"stays")
    await meta.revoke(lease)
    assert (await only(meta, prefix)).value == b"stays"


async def test_a_lease_can_be_compared(meta: MetaStore, prefix: str) -> None:
    mine, other = (await meta.grant(60)).id, (await meta.grant(60)).id
    await put(meta, prefix, lease=mine)
    for lease, is_same in ((mine, True), (other, False), (0, False)):
        compare = Compare(prefix, Field.LEASE, lease)
        assert (await meta.transact(Transaction((compare,), ()))).succeeded is is_same


async def test_a_lease_lasts_while_it_is_kept_alive_and_then_ends(meta: MetaStore, prefix: str) -> None:
    kept, left = await meta.grant(2), await meta.grant(2)
    assert kept.ttl_s >= 2
    await put(meta, prefix + "kept", lease=kept.id)
    await put(meta, prefix + "left", lease=left.id)
    while len((await meta.read(prefix)).keys) > 1:
        assert await meta.keep_alive(kept.id) >= kept.ttl_s - 1
        await asyncio.sleep(0.05)
    assert (await only(meta, prefix)).key == prefix + "kept"
    with pytest.raises(MetaLeaseGone):
        await meta.keep_alive(left.id)


async def test_a_lease_that_is_gone_can_neither_be_renewed_nor_used(meta: MetaStore, prefix: str) -> None:
    lease = (await meta.grant(60)).id
    await meta.revoke(lease)
    with pytest.raises(MetaLeaseGone):
        await meta.keep_alive(lease)
    with pytest.raises(MetaLeaseGone):
        await put(meta, prefix, lease=lease)
    assert (await meta.read(prefix)).keys == ()


# --- watches ---


async def next_change(changes: AsyncIterator[Changes]) -> Changes:
    async for found in changes:
        if found.changes:
            return found
    raise AssertionError("a watch raises at its end")


async def test_a_watch_has_every_change_from_its_revision_on(connect: Callable[[], MetaStore], prefix: str) -> None:
    one, two = connect(), connect()
    await put(one, prefix + "before")
    first = await put(one, prefix + "a", b"1")
    await put(one, prefix.replace("test", "elsewhere") + "b")
    async with two.watch(prefix, first) as changes:
        past = await next_change(changes)
        second = await put(one, prefix + "b", b"2")
        live = await next_change(changes)
    assert past == Changes(past.revision, past.changes)
    assert [(change.key, change.revision) for change in past.changes] == [(prefix + "a", first)]
    assert live.changes[0].current == KeyValue(prefix + "b", b"2", second, second, 0)


async def test_a_watch_shows_a_transaction_as_a_whole_and_deletions(meta: MetaStore, prefix: str) -> None:
    begin = await put(meta, prefix + "gone")
    async with meta.watch(prefix, begin + 1) as changes:
        outcome = await meta.transact(Transaction((), (Put(prefix + "a", b""), Delete(prefix + "gone"))))
        found = await next_change(changes)
    assert {change.key: change.current is None for change in found.changes} == {
        prefix + "a": False,
        prefix + "gone": True,
    }
    assert {change.revision for change in found.changes} == {outcome.revision}


async def test_a_watch_shows_that_a_lease_ended(meta: MetaStore, prefix: str) -> None:
    lease = (await meta.grant(2)).id
    begin = await put(meta, prefix + "a", lease=lease)
    async with meta.watch(prefix, begin + 1) as changes:
        found = await next_change(changes)
    assert [(change.key, change.current) for change in found.changes] == [(prefix + "a", None)]


async def test_a_watch_from_a_compacted_revision_ends(
    request: pytest.FixtureRequest, connect: Callable[[], MetaStore], meta: MetaStore, prefix: str
) -> None:
    begin = await put(meta, prefix + "a")
    for number in range(3):
        last = await put(meta, prefix + "a", b"%d" % number)
    if isinstance(meta, MemoryClient):
        meta.store.compact(last)
    else:
        node: EtcdNode = request.getfixturevalue("etcd")
        node.post("/v3/kv/compaction", {"revision": str(last)})
    with pytest.raises(MetaWatchEnded):
        async with meta.watch(prefix, begin) as changes:
            await next_change(changes)
    assert (await only(meta, prefix)).value == b"2"


# --- beside the contract ---


def test_the_end_of_a_prefix_is_the_first_key_behind_it() -> None:
    assert prefix_end("/a/") == b"/a0"
    assert prefix_end("") == b"\0"


def test_a_new_leader_of_etcd_renews_every_lease() -> None:
    store = MemoryStore()
    lease = store.grant(3, now=0.0).id
    store.transact(Transaction((), (Put("a", b"", lease),)))
    store.renew_all(2.9)
    store.expire(5.8)
    assert len(store.read("").keys) == 1
    store.expire(6.0)
    assert store.read("").keys == ()


async def test_clients_of_one_store_in_memory_share_it() -> None:
    store = MemoryStore()
    one, two = MemoryClient(store, Clock()), MemoryClient(store, Clock())
    revision = await put(one, "a")
    assert (await two.read("a")).revision == revision
