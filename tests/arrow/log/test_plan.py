"""Plans: which parts of a store are read, and that they hold the selected messages."""

import shutil
from pathlib import Path
from typing import Any

from ariane.arrow.decode import decode_records
from ariane.arrow.filter import OffsetRange
from ariane.arrow.log.plan import plan_log
from ariane.arrow.log.read import ReadReport, read_split
from ariane.arrow.log.split import ScanStrategy
from ariane.arrow.schema import COLUMNS
from ariane.store.consume_queue.queue import ConsumeQueue
from ariane.store.message_store import MessageStore
from ariane.testing import FakeClock
from tests.arrow.expected_rows import rows_of
from tests.arrow.log_fixtures import bodies, fill, open_store, read_store, rows_of_plan, text
from tests.store.stores import draft, put

BOTH = ["body", "topic", "queueId", "queueOffset", "physicalOffset"]


def test_a_closed_store_is_read_to_its_end(tmp_path: Path) -> None:
    fill(tmp_path)
    rows = read_store(tmp_path, BOTH)
    assert bodies(rows) == [text(number) for number in range(200)]
    assert len(list((tmp_path / "commitlog").iterdir())) > 2
    assert bodies(read_store(tmp_path, BOTH, bytes_per_split=3000)) == bodies(rows)


def test_a_topic_is_read_by_its_queues_when_that_is_less(tmp_path: Path) -> None:
    fill(tmp_path)
    for topic, strategy in (("rare", ScanStrategy.QUEUES), ("orders", ScanStrategy.QUEUES)):
        plan = plan_log(tmp_path, topics=[topic])
        assert {split.strategy for split in plan.splits} == {strategy}
    assert {split.strategy for split in plan_log(tmp_path, topics=["rare", "orders"]).splits} == {ScanStrategy.SCAN}
    result = bodies(read_store(tmp_path, ["body"], topics=["rare"], bytes_per_split=1000))
    assert result == [text(number) for number in range(0, 200, 4)]


def test_keys_and_tags_lead_to_few_records(tmp_path: Path) -> None:
    fill(tmp_path)
    report = ReadReport()
    rows = rows_of_plan(plan_log(tmp_path, topics=["orders"], keys=["k3"]), ["body"], report)
    assert bodies(rows) == [text(number) for number in range(200) if number % 7 == 3 and number % 4]
    assert report.records < 40
    tagged = bodies(read_store(tmp_path, ["body"], topics=["orders"], tags=["b"]))
    assert tagged == [text(number) for number in range(200) if number % 2 and number % 4]


def test_without_an_index_keys_are_searched_for_in_the_log(tmp_path: Path) -> None:
    fill(tmp_path)
    shutil.rmtree(tmp_path / "index")
    assert {split.strategy for split in plan_log(tmp_path, keys=["k3"]).splits} == {ScanStrategy.SCAN}
    result = bodies(read_store(tmp_path, ["body"], keys=["k3"]))
    assert result == [text(number) for number in range(200) if number % 7 == 3]


async def test_a_time_range_is_found_by_binary_search(tmp_path: Path) -> None:
    clock = FakeClock()
    store = open_store(tmp_path, clock, segment_bytes=1 << 21)
    began = clock.now_ms()
    for number in range(60):
        put(store, draft(text(number) + bytes(200_000), topic="orders"))
        await clock.advance(60)
    store.close()
    begin, end = began + 30 * 60_000, began + 33 * 60_000
    plan = plan_log(tmp_path, starting_timestamp_ms=begin, ending_timestamp_ms=end)
    assert sum(split.end - split.begin for split in plan.splits) < (plan.end - plan.begin) / 3
    rows = rows_of_plan(plan, ["body"])
    assert [body.rstrip(b"\0") for body in bodies(rows)] == [text(number) for number in (30, 31, 32)]


def test_messages_that_no_queue_shows_are_read_only_with_raw(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(
        store,
        draft(b"half", sys_flag=4),
        draft(b"plain"),
        draft(b"rolled back", sys_flag=12),
        draft(b"done", sys_flag=8),
    )
    store.close()
    assert bodies(read_store(tmp_path, ["body"])) == [b"plain", b"done"]
    assert bodies(read_store(tmp_path, ["body"], raw=True)) == [b"half", b"plain", b"rolled back", b"done"]


def test_records_of_a_deleted_topic_are_not_read_even_if_it_is_created_again(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, draft(b"old", "orders"), draft(b"other", "other"), draft(b"gone", "gone"))
    store.components.queues.delete_topic("orders")
    store.components.queues.delete_topic("gone")
    put(store, draft(b"new", "orders"))
    store.close()
    for selection in ({}, {"topics": ["orders", "other", "gone"]}, {"bytes_per_split": 100}):
        assert sorted(bodies(read_store(tmp_path, ["body"], **selection))) == [b"new", b"other"]
    assert bodies(read_store(tmp_path, ["body"], topics=["orders"])) == [b"new"]
    assert bodies(read_store(tmp_path, ["body"], topics=["orders"], raw=True)) == [b"old", b"new"]
    assert plan_log(tmp_path, topics=["gone"]).topics_missing == ["gone"]


def test_each_queue_of_a_topic_shows_its_own_records_only(tmp_path: Path) -> None:
    """A queue that was created again hides earlier records, whether rows lie before, after or around its beginning."""
    store = open_store(tmp_path)
    put(store, *(draft(text(number), "orders", number % 2) for number in range(40)))
    store.components.queues.delete_topic("orders")
    put(store, *(draft(text(number), "orders", 0) for number in range(40, 60)))
    put(store, *(draft(text(number), "orders", number % 2) for number in range(60, 80)))
    store.close()
    expected = [text(number) for number in range(40, 80)]
    [split] = plan_log(tmp_path).splits
    for batch_bytes in (1, 1000, 1 << 20):
        batches = list(read_split(split, ["body"], batch_bytes=batch_bytes))
        assert [body for batch in batches for body in batch.column(0).to_pylist()] == expected


def test_topics_of_one_length_are_not_mixed_up(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    names = ["same", "same", "aaaa", "same"]
    put(store, *(draft(text(number), name) for number, name in enumerate(names)))
    store.close()
    assert [row["topic"] for row in read_store(tmp_path, ["topic"])] == names
    assert bodies(read_store(tmp_path, ["body"], topics=["aaaa"])) == [text(2)]


def test_a_store_without_messages_has_no_splits(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    plan = plan_log(tmp_path)
    assert (plan.splits, plan.begin, plan.end) == ([], 0, 0)


def test_batches_have_the_requested_size(tmp_path: Path) -> None:
    fill(tmp_path)
    for topics in (None, ["rare"]):
        [split] = plan_log(tmp_path, topics=topics).splits
        sizes = [batch.num_rows for batch in read_split(split, ["body"], batch_bytes=1000)]
        assert max(sizes) <= 10
        assert sum(sizes) == (200 if topics is None else 50)


def pulled(store: MessageStore, queue: ConsumeQueue) -> list[dict[str, Any]]:
    """All rows of a queue, from answers to pulls."""
    rows: list[dict[str, Any]] = []
    while len(rows) < queue.max_offset:
        response = b"".join(store.reader.read(queue.topic, queue.queue_id, len(rows), 32).slices)
        rows += rows_of(decode_records(response, columns=list(COLUMNS)).batch)
    return rows


def test_a_scan_of_the_log_returns_the_messages_of_the_queues(tmp_path: Path) -> None:
    """Row for row, and with the same bytes, what a consumer would be sent."""
    fill(tmp_path)
    store = open_store(tmp_path)
    by_queue = {(queue.topic, queue.queue_id): pulled(store, queue) for queue in store.components.queues}
    store.close()
    for (topic, queue_id), pulled_rows in by_queue.items():
        assert read_store(tmp_path, queues=[OffsetRange(topic, queue_id)]) == pulled_rows
        assert len(pulled_rows) > 10
    rows = sorted((row for rows in by_queue.values() for row in rows), key=lambda row: int(row["physicalOffset"]))
    assert read_store(tmp_path) == rows
