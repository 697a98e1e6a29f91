"""Several batches into the log at once: what they would leave one by one, in the log, the queues and the index."""

import errno
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.errors import MessageRefused, StoreFull
from ariane.model.message import HostPort
from ariane.store.append.batch import AppendedBatch, BatchKeys, DraftBatchGroup
from ariane.store.message_store import MessageStore
from ariane.testing import FakeClock
from ariane.wire.host import encode_host
from ariane.wire.record.batch import BatchColumns, join_batch
from ariane.wire.record.uniform_batch import BatchPlan, UniformBatch, uniform_sizes_of
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import BOOT, HOST, bodies, draft, entries, opened, opened_gated, put

OTHER_HOST = encode_host(HostPort(IPv4Address("192.0.2.8"), 50_001))
V6 = encode_host(HostPort(IPv6Address("::1"), 10911))
PLAN = BatchPlan(2, 0, 0, 1, HOST, 0)


def columns_of(plans: list[BatchPlan], contents: list[bytes], **changes: Any) -> DraftBatchGroup:
    """Message by message, whatever their lengths, each with two keys."""
    count = sum(plan.messages for plan in plans)
    texts = [b"UNIQ_KEY\x01U%03d\x02KEYS\x01k%03d\x02" % (n, n) for n in range(count)]
    keys = BatchKeys([key for n in range(count) for key in (f"U{n:03d}", f"k{n:03d}")], 2)
    items = BatchColumns([contents[n % len(contents)] for n in range(count)], texts, list(range(count)))
    codes = np.arange(count, dtype=np.int64) % 3 - 1
    fields = {"topic": "orders", "items": items, "tags_codes": codes, "keys": keys, **changes}
    return DraftBatchGroup(plans=plans, **fields)


def table_of(drafts: DraftBatchGroup) -> DraftBatchGroup:
    """The same, of one length each, as a table."""
    assert isinstance(drafts.items, BatchColumns)
    data = join_batch(*drafts.items)
    shape = uniform_sizes_of(data)
    assert shape is not None
    table = UniformBatch.of(data, shape)
    assert table is not None
    drafts.items, drafts.keys = table, [table.texts()[:, 9:13], table.texts()[:, 19:23]]
    return drafts


def everything(disk: SimulatedDisk, store: MessageStore) -> Any:
    """The bytes of log and index, and the entries of all queues."""
    parts = store.components
    parts.dispatcher.write_index()
    log = [bytes(segment.file.view()) for segment in parts.commit_log.segments]
    index = [
        bytes(disk.open(parts.layout.index / name, writable=False).view()) for name in disk.names(parts.layout.index)
    ]
    return log, index, {(queue.topic, queue.queue_id): entries(queue) for queue in parts.queues}


plans = st.builds(
    BatchPlan,
    messages=st.integers(1, 6),
    queue_id=st.integers(0, 2),
    sys_flag=st.sampled_from([0, 1, 2, 0x30]),
    born_timestamp_ms=st.integers(0, 2**63 - 1),
    born_host=st.sampled_from([HOST, OTHER_HOST]),
    reconsume_times=st.integers(0, 2**31 - 1),
)
mixed_runs = st.lists(plans | plans.map(lambda plan: plan._replace(born_host=V6)), min_size=1, max_size=5)
runs = (
    st.lists(plans, min_size=1, max_size=5)
    | mixed_runs.map(lambda run: [plan._replace(born_host=V6) for plan in run])
    | mixed_runs
)
shared = st.fixed_dictionaries(
    {
        "properties_end": st.sampled_from([b"", b"\x02"]),
        "topic": st.sampled_from(["orders", "o", "t" * 127]),
    }
)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(runs, st.lists(st.binary(min_size=1, max_size=900), min_size=1, max_size=4), st.booleans(), shared),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1) | st.none(),
)
def test_batches_that_are_appended_together_leave_what_each_would_leave(
    chunks: list[tuple[list[BatchPlan], list[bytes], bool, dict[str, Any]]], with_checksum: bool, code: int | None
) -> None:
    (one_disk, one), (other_disk, other) = (
        (disk, opened(disk, FakeClock(), seal_records=with_checksum, segment_bytes=20_000))
        for disk in (SimulatedDisk(), SimulatedDisk())
    )
    for run, contents, is_table, fields in chunks:
        put(one, draft(b"between", key="single"))
        put(other, draft(b"between", key="single"))
        drafts = columns_of(run, contents[:1] if is_table else contents, **fields)
        if code is not None:
            drafts.tags_codes = code
        expected = [other.append_batch(batch) for batch in drafts.each()]
        appended = one.append_batches(table_of(drafts) if is_table else drafts)
        assert [list(each) for each in appended if isinstance(each, AppendedBatch)] == [
            list(each) for each in expected if isinstance(each, AppendedBatch)
        ]
        assert list(map(type, appended)) == list(map(type, expected))
    assert everything(one_disk, one) == everything(other_disk, other)


@pytest.mark.parametrize("make", [lambda drafts: drafts, table_of], ids=["columns", "table"])
class TestEither:
    def test_batches_that_do_not_fit_the_file_together_are_appended_one_by_one(self, make: Any) -> None:
        store = opened(SimulatedDisk())
        appended = store.append_batches(make(columns_of([PLAN] * 4, [bytes(1000)])))
        files = [{offset // 8192 for offset in batch.physical_offsets} for batch in appended]  # type: ignore[union-attr]
        assert files == [{0}, {0}, {0}, {1}]
        assert len(bodies(store, "orders", 0)) == 8

    def test_a_batch_that_is_refused_does_not_take_the_others_with_it(self, make: Any) -> None:
        store = opened(SimulatedDisk())
        drafts = make(columns_of([PLAN, PLAN._replace(queue_id=-1), PLAN], [b"a"]))
        assert [type(outcome) for outcome in store.append_batches(drafts)] == [
            AppendedBatch,
            MessageRefused,
            AppendedBatch,
        ]
        assert bodies(store, "orders", 0) == [b"a"] * 4

    @pytest.mark.parametrize("field", ["born_timestamp_ms", "reconsume_times", "queue_id"])
    def test_a_field_out_of_its_range_is_refused(self, make: Any, field: str) -> None:
        store = opened(SimulatedDisk())
        beyond: dict[str, Any] = {field: 2**63}
        (refused,) = store.append_batches(make(columns_of([PLAN._replace(**beyond)], [b"a"])))
        assert isinstance(refused, MessageRefused)

    def test_a_write_that_fails_leaves_nothing(self, make: Any) -> None:
        disk = SimulatedDisk()
        store = opened(disk)
        put(store, draft(b"before"))
        disk.fail_writes(OSError(errno.ENOSPC, "No space left on device"))
        assert [type(outcome) for outcome in store.append_batches(make(columns_of([PLAN] * 2, [b"a"])))] == [
            StoreFull
        ] * 2
        disk.fail_writes(None)
        assert store.components.dispatcher.pending_key_count == 0
        put(store, draft(b"after"))
        assert bodies(store, "orders", 0) == [b"before", b"after"]

    def test_they_are_there_after_a_crash_of_the_process(self, make: Any) -> None:
        disk = SimulatedDisk()
        store = opened(disk)
        (_, last) = store.append_batches(make(columns_of([PLAN] * 2, [b"a"])))
        again = opened(disk.crash_process(), boot=BOOT)
        assert bodies(again, "orders", 0) == [b"a"] * 4
        again.components.dispatcher.write_index()
        assert again.components.index is not None
        found = again.components.index.query("orders", "k003", 10, 0, 2**62).offsets
        assert found == [last.physical_offsets[1]]  # type: ignore[union-attr]

    def test_listeners_learn_once_for_each_queue_and_tags_code(self, make: Any) -> None:
        store = opened(SimulatedDisk())
        put(store, draft(b"before"))
        arrivals: list[tuple[str, int, int, int]] = []
        store.components.dispatcher.on_arrival(lambda *arrival: arrivals.append(arrival))
        drafts = make(columns_of([PLAN, PLAN._replace(queue_id=1), PLAN], [b"a"]))
        drafts.tags_codes = 7
        store.append_batches(drafts)
        assert sorted(arrivals) == [("orders", 0, 5, 7), ("orders", 1, 2, 7)]

    def test_with_a_gate_each_message_is_visible_when_its_own_record_is_confirmed(self, make: Any) -> None:
        store = opened_gated(SimulatedDisk())
        assert store.gate is not None
        store.gate.begin_epoch(1)
        (before,) = put(store, draft(b"before", queue_id=2))  # several batches go to a file that is there
        store.gate.confirm(before.end, epoch=1)
        drafts = make(columns_of([PLAN, PLAN._replace(queue_id=1), PLAN], [b"a"]))
        batches = [batch for batch in store.append_batches(drafts) if isinstance(batch, AppendedBatch)]
        ends = [appended.end for batch in batches for appended in batch]
        shown = [1, 0, 0]
        for end in ends:
            assert not store.gate.confirm(end - 1, epoch=1) or shown == self._visible(store)
            store.gate.confirm(end, epoch=1)
            shown = self._visible(store)
            assert sum(shown) == ends.index(end) + 2
        assert shown == [1, 4, 2]

    def _visible(self, store: MessageStore) -> list[int]:
        return [queue.visible_end for queue in store.components.queues.of_topic("orders").values()]

    def test_without_keys_nothing_is_indexed(self, make: Any) -> None:
        store = opened(SimulatedDisk())
        drafts = make(columns_of([PLAN], [b"a"]))
        drafts.keys = BatchKeys([], 0) if isinstance(drafts.keys, BatchKeys) else []
        store.append_batches(drafts)
        assert store.components.dispatcher.pending_key_count == 0
        assert drafts.each()[0].keys.texts == []
