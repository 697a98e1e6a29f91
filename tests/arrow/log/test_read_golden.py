"""Store directories of a real Apache RocketMQ 4.9.8, read without a broker: the messages that Java's client saw."""

import hashlib
import itertools
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ariane.arrow.filter import OffsetRange, Selection
from ariane.arrow.log.files import LogFiles
from ariane.arrow.log.plan import log_bounds, plan_log
from ariane.arrow.log.read import ReadReport, read_split
from ariane.arrow.log.split import LogSplit, ScanStrategy
from ariane.store.layout import Layout
from ariane.wire.record.read import RecordView, to_message, walk
from tests.arrow.expected_rows import expected_row
from tests.arrow.log_fixtures import read_store, rows_of_plan
from tests.store.golden_stores import held_by_another_process, unpack
from tests.wire.golden import golden_store

SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


@pytest.fixture(params=["clean", "killed"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def layout(name: str, tmp_path: Path) -> Layout:
    return unpack(name, tmp_path)


@cache
def as_rows(name: str) -> list[dict[str, Any]]:
    """What the row decoder reads from the same log."""
    log = golden_store(name).commit_log
    return [expected_row(to_message(log, view)) for view in walk(log) if isinstance(view, RecordView)]


def as_java_prints(row: dict[str, Any]) -> dict[str, Any]:
    names = (
        "topic",
        "queueId",
        "queueOffset",
        "msgId",
        "offsetMsgId",
        "physicalOffset",
        "storeSize",
        "sysFlag",
        "flag",
    )
    more = ("bodyCRC", "reconsumeTimes", "preparedTransactionOffset")
    return {
        **{name: row[name] for name in (*names, *more)},
        "bornTimestamp": row["bornTimestamp"] // 1000,
        "storeTimestamp": row["storeTimestamp"] // 1000,
        "bodyLength": len(row["body"]),
        "bodySha256": hashlib.sha256(row["body"]).hexdigest(),
        "properties": dict(row["properties"]),
    }


def test_the_whole_log_is_read_row_for_row(name: str, layout: Layout) -> None:
    assert read_store(layout.root) == as_rows(name)


def test_every_message_is_what_java_saw(name: str, layout: Layout) -> None:
    result = {
        (row["topic"], row["queueId"], row["queueOffset"]): as_java_prints(row) for row in read_store(layout.root)
    }
    for message in golden_store(name).messages:
        seen = result[message["topic"], message["queueId"], message["queueOffset"]]
        assert {key: message[key] for key in seen} == seen


@pytest.mark.parametrize("bytes_per_split", [3_000, 20_000, 100_000])
def test_splits_of_any_size_give_every_row_once_and_in_order(name: str, layout: Layout, bytes_per_split: int) -> None:
    assert len(plan_log(layout.root, bytes_per_split=bytes_per_split).splits) > 5
    assert read_store(layout.root, bytes_per_split=bytes_per_split) == as_rows(name)


@settings(max_examples=20, **SLOW)  # type: ignore[arg-type]
@given(st.data())
def test_any_bytes_may_be_the_edges_of_splits(name: str, layout: Layout, data: st.DataObject) -> None:
    end = log_bounds(layout, LogFiles(layout.commit_log)).end
    edges = sorted({0, end, *data.draw(st.lists(st.integers(1, end - 1), max_size=20))})
    result = []
    for begin, stop in itertools.pairwise(edges):
        split = LogSplit(
            store_root=str(layout.root),
            commit_log=str(layout.commit_log),
            begin=begin,
            end=stop,
            limit=end,
            strategy=ScanStrategy.SCAN,
            selection=Selection(),
            is_aligned=False,
        )
        report = ReadReport()
        batches = read_split(split, ["physicalOffset"], report=report)
        result += [offset for batch in batches for offset in batch.column(0).to_pylist()]
        assert report.bad == []
    assert result == [row["physicalOffset"] for row in as_rows(name)]


def chosen(name: str, **fields: Any) -> list[dict[str, Any]]:
    return [row for row in as_rows(name) if all(row[key] == value for key, value in fields.items())]


@pytest.mark.parametrize("bytes_per_split", [20_000, 1 << 27])
def test_one_topic_is_read_by_its_queues(name: str, layout: Layout, bytes_per_split: int) -> None:
    plan = plan_log(layout.root, topics=["GoldenOrder"], bytes_per_split=bytes_per_split)
    ways = {split.strategy for split in plan.splits}
    assert ways == (
        {ScanStrategy.QUEUES} if name == "clean" else {ScanStrategy.SCAN}
    )  # after a kill, Apache's queues may have holes
    result = read_store(layout.root, topics=["GoldenOrder"], bytes_per_split=bytes_per_split)
    assert result == chosen(name, topic="GoldenOrder")
    assert len(result) >= 200


def test_tags_are_found_by_their_hashes_in_the_queues(name: str, layout: Layout) -> None:
    result = read_store(layout.root, topics=["GoldenNormal"], tags=["TagA"])
    assert result == chosen(name, topic="GoldenNormal", tags="TagA")
    report = ReadReport()
    rows_of_plan(plan_log(layout.root, topics=["GoldenNormal"], tags=["TagA"]), ["tags"], report)
    assert name == "killed" or report.records == len(result)  # nothing else was read


def test_keys_are_found_by_the_index(name: str, layout: Layout) -> None:
    for topics in (["GoldenNormal"], None):
        result = read_store(layout.root, topics=topics, keys=["key-4"])
        assert result == [row for row in as_rows(name) if "key-4" in row["keys"] and row["topic"] == "GoldenNormal"]
        assert len(result) == (12 if name == "clean" else 24)
    report = ReadReport()
    rows_of_plan(plan_log(layout.root, keys=["key-4"]), ["keys"], report)
    assert name == "killed" or report.records < 20


def test_a_message_is_found_by_its_unique_key(name: str, layout: Layout) -> None:
    fields = as_rows(name)[100]
    assert fields in read_store(layout.root, keys=[fields["uniqueKey"]])


def test_queues_and_offsets_can_be_selected(name: str, layout: Layout) -> None:
    ranges = [OffsetRange("GoldenNormal", 1, 5, 9), OffsetRange("GoldenSql", 0)]
    result = read_store(layout.root, queues=ranges)
    normal = [row for row in chosen(name, topic="GoldenNormal", queueId=1) if 5 <= row["queueOffset"] < 9]
    assert sorted(result, key=lambda row: row["physicalOffset"]) == sorted(
        [*normal, *chosen(name, topic="GoldenSql", queueId=0)], key=lambda row: row["physicalOffset"]
    )


def test_times_can_be_selected(name: str, layout: Layout) -> None:
    times = sorted({row["storeTimestamp"] // 1000 for row in as_rows(name)})
    begin, end = times[len(times) // 3], times[len(times) // 2]
    result = read_store(layout.root, starting_timestamp_ms=begin, ending_timestamp_ms=end)
    assert result == [row for row in as_rows(name) if begin <= row["storeTimestamp"] // 1000 < end]
    assert result


def test_a_missing_topic_is_reported(name: str, layout: Layout) -> None:
    plan = plan_log(layout.root, topics=["GoldenNormal", "Nowhere"])
    assert plan.topics_missing == (["Nowhere"] if name == "clean" else [])
    assert {row["topic"] for row in rows_of_plan(plan, ["topic"])} == {"GoldenNormal"}


def test_a_store_with_a_running_apache_broker_is_read_up_to_the_end_of_its_queues(layout: Layout) -> None:
    with held_by_another_process(layout.lock):
        plan = plan_log(layout.root)
    assert plan.is_live
    dispatched = rows_of_plan(plan, ["physicalOffset", "storeSize"])
    last = dispatched[-1]
    assert last["physicalOffset"] + last["storeSize"] == plan.end
    assert plan.splits[-1].end == plan.end


def test_a_commit_log_alone_is_enough(name: str, layout: Layout, tmp_path: Path) -> None:
    elsewhere = tmp_path / "copy"
    elsewhere.mkdir()
    layout.commit_log.rename(elsewhere / "commitlog")
    assert read_store(elsewhere) == as_rows(name)
    assert read_store(tmp_path / "nothing", commit_log=elsewhere / "commitlog") == as_rows(name)
