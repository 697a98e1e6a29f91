"""SQL over store directories: of Ariane, with and without a running broker, and of Apache."""

from pathlib import Path

import pytest

from ariane.arrow.log.plan import plan_log
from ariane.arrow.log.read import read_split
from ariane.errors import ClientError, StoreMismatch
from ariane.testing import BrokerForTests, running_broker
from tests.sql.queries import cluster, run_query, stores
from tests.store.golden_stores import overwrite, unpack

COUNT = 40


def fill(broker: BrokerForTests) -> None:
    for topic in ("orders", "other"):
        broker.create_topic(topic, queues=2)
        for number in range(COUNT):
            tags = "even" if number % 2 == 0 else "odd"
            broker.send(topic, b'{"n": %d}' % number, tags=tags, keys=[f"k{number}"])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with running_broker(root) as broker:
        fill(broker)
    return root


def test_a_store_gives_the_same_rows_as_its_broker(tmp_path: Path) -> None:
    sql = "select queueId, queueOffset, msgId, tags, keys, body, storeTimestamp from orders order by 1, 2"
    with running_broker(tmp_path) as broker:
        fill(broker)
        output = run_query(sql, cluster(broker.namesrv))
    assert len(output.rows) == COUNT
    assert run_query(sql, stores(tmp_path)).rows == output.rows


def test_the_scan_is_reported_and_limits_and_filters_hold(store: Path) -> None:
    count = "select count(*) from orders"
    output = run_query(count, stores(store))
    assert (output.value, output.sentences) == (COUNT, [f"scanned {COUNT} messages of orders (2 queues), complete"])
    output = run_query(count, stores(store, limit=6))
    assert output.value == 6
    assert output.sentences == [
        f"scanned 6 of {COUNT} messages of orders (2 queues), stopped at --limit-scan: not complete"
    ]
    output = run_query(count, stores(store, tags=frozenset({"even"})))
    assert output.value == COUNT // 2
    output = run_query("select body_json->>'n' from orders", stores(store, keys=frozenset({"k17"})))
    assert output.value == "17"
    assert "complete" in output.sentences[0]


def test_several_stores_are_one_table(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with running_broker(other) as broker:
        fill(broker)
    output = run_query("select count(*) from orders", stores(store, other))
    assert (output.value, output.sentences) == (
        2 * COUNT,
        [f"scanned {2 * COUNT} messages of orders (4 queues), complete"],
    )


def test_queues_are_a_table_and_an_unknown_name_is_reported_with_the_nearest(store: Path) -> None:
    rows = run_query(
        "select topic, sum(messages) as n from queues where topic = 'orders' group by 1", stores(store)
    ).rows
    assert rows == [{"topic": "orders", "n": COUNT}]
    with pytest.raises(ClientError, match="did you mean orders"):
        run_query("select * from ordres", stores(store))


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_the_stores_of_apache_are_read_too(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path).root
    batches = [batch for split in plan_log(root).splits for batch in read_split(split, ["topic"])]
    expected: dict[str, int] = {}
    for batch in batches:
        for topic in batch.column(0).to_pylist():
            expected[topic] = expected.get(topic, 0) + 1
    assert expected
    for topic, count in expected.items():
        assert run_query(f'select count(*) from "{topic}"', stores(root)).value == count


def test_a_directory_that_is_not_a_store_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(StoreMismatch, match="is not a store"):
        stores(tmp_path)


def test_damaged_records_are_counted_and_make_the_result_incomplete(store: Path) -> None:
    log = next((store / "commitlog").iterdir())
    split = plan_log(store, topics=["orders"]).splits[0]
    offsets = [offset for batch in read_split(split, ["physicalOffset"]) for offset in batch.column(0).to_pylist()]
    overwrite(log, offsets[3] + 4, b"\0\0\0\0")  # the magic number of one record
    output = run_query("select count(*) from orders", stores(store))
    assert output.value == COUNT - 1
    assert any(sentence.startswith("incomplete: ") for sentence in output.sentences)
    assert output.sentences[-1].endswith("not complete")
