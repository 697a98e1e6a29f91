"""SQL over the topics of a running broker."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ariane.arrow.schema import DEFAULT_COLUMNS
from ariane.errors import ClientError, ExpressionError, NoRoute, SettingsError
from ariane.testing import BrokerForTests, running_broker
from tests.sql.queries import cluster, run_query

COUNT = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerForTests]:
    with running_broker() as broker:
        broker.create_topic("orders", queues=3)
        for number in range(COUNT):
            body = json.dumps({"n": number, "user": f"u{number % 4}"}).encode() if number != 7 else b"\xff\xfe"
            tags = "even" if number % 2 == 0 else "odd"
            broker.send("orders", body, tags=tags, keys=[f"k{number}"], properties={"region": "eu"})
        broker.create_topic("users", queues=1)
        for number in range(4):
            broker.send("users", json.dumps({"id": f"u{number}", "name": f"name {number}"}).encode())
        broker.create_topic("%RETRY%billing", queues=1)
        yield broker


def test_a_topic_is_a_table_with_the_columns_of_spark(broker: BrokerForTests) -> None:
    output = run_query("select * from orders", cluster(broker.namesrv))
    assert output.columns == list(DEFAULT_COLUMNS)
    stored = {(message.queue.queue_id, message.queue_offset): message for message in broker.messages("orders")}
    assert len(output.rows) == COUNT
    for row in output.rows:
        message = stored[row["queueId"], row["queueOffset"]]
        assert row["msgId"] == message.message_id
        assert (row["tags"], row["keys"]) == (message.tags, list(message.keys))
    assert output.sentences == [f"scanned {COUNT} messages of orders (3 queues), complete"]


def test_json_in_bodies_can_be_queried_and_other_bodies_are_null(broker: BrokerForTests) -> None:
    sql = "select sum((body_json->>'n')::int) as s, count(body_text) as texts, count(*) as n from orders"
    output = run_query(sql, cluster(broker.namesrv))
    assert output.rows == [{"s": sum(range(COUNT)) - 7, "texts": COUNT - 1, "n": COUNT}]


def test_topics_are_joined_with_each_other_and_with_themselves(broker: BrokerForTests) -> None:
    sql = """
        select u.body_json->>'name' as name, count(*) as orders
        from orders o join users u on o.body_json->>'user' = u.body_json->>'id'
        group by name order by name
    """
    output = run_query(sql, cluster(broker.namesrv))
    assert [row["name"] for row in output.rows] == [f"name {number}" for number in range(4)]
    assert sum(row["orders"] for row in output.rows) == COUNT - 1
    assert len(output.sentences) == 2
    output = run_query("select count(*) from orders a join orders b using (msgId)", cluster(broker.namesrv))
    assert output.value == COUNT
    assert output.sentences == [f"scanned {COUNT} messages of orders (3 queues), each 2 times, complete"]


def test_columns_that_the_query_names_are_available(broker: BrokerForTests) -> None:
    sql = "select properties['region'] as region, min(storeSize) as least from orders group by region"
    (row,) = run_query(sql, cluster(broker.namesrv)).rows
    assert row["region"] == "eu"
    assert row["least"] > 100


def test_conditions_on_columns_that_are_not_selected_hold(broker: BrokerForTests) -> None:
    sql = "select keys from orders where tags = 'even' and storeTimestamp > now() - interval 1 day and queueId = 0"
    found = {tuple(row["keys"]) for row in run_query(sql, cluster(broker.namesrv)).rows}
    expected = {
        message.keys for message in broker.messages("orders") if message.tags == "even" and message.queue.queue_id == 0
    }
    assert found == {tuple(keys) for keys in expected}


def test_a_query_with_a_limit_does_not_read_everything(broker: BrokerForTests) -> None:
    output = run_query("select msgId from orders limit 1", cluster(broker.namesrv))
    assert len(output.rows) == 1
    assert output.sentences[0].endswith(f" of {COUNT} messages of orders (3 queues): the query needed no more")


def test_a_limited_scan_says_that_it_is_not_complete(broker: BrokerForTests) -> None:
    output = run_query("select count(*), count(distinct queueId) q from orders", cluster(broker.namesrv, limit=10))
    assert output.rows == [{"count_star()": 10, "q": 3}]
    assert output.sentences == [
        f"scanned 10 of {COUNT} messages of orders (3 queues), stopped at --limit-scan: not complete"
    ]


def test_tags_keys_and_times_filter_before_sql(broker: BrokerForTests) -> None:
    count = "select count(*) from orders"
    assert run_query(count, cluster(broker.namesrv, tags=frozenset({"even"}))).value == COUNT // 2
    assert run_query(count, cluster(broker.namesrv, keys=frozenset({"k1", "k2", "none"}))).value == 2
    times = sorted(message.store_timestamp_ms for message in broker.messages("orders"))
    middle = times[COUNT // 2]
    before, since = cluster(broker.namesrv, until_ms=middle), cluster(broker.namesrv, since_ms=middle)
    assert run_query(count, before).value == sum(time < middle for time in times)
    assert run_query(count, since).value == sum(time >= middle for time in times)


def test_special_names_are_quoted_and_case_is_ignored_if_unambiguous(broker: BrokerForTests) -> None:
    assert run_query('select count(*) from "%RETRY%billing"', cluster(broker.namesrv)).value == 0
    assert run_query("select count(*) from Orders", cluster(broker.namesrv)).value == COUNT


def test_metadata_of_the_cluster_can_be_queried(broker: BrokerForTests) -> None:
    sql = "select t.messages, count(*) n from topics t join queues q using (topic) where topic = 'orders' group by 1"
    output = run_query(sql, cluster(broker.namesrv))
    assert output.rows == [{"messages": COUNT, "n": 3}]
    assert output.sentences == []
    groups = run_query('select "group", members, lag from groups', cluster(broker.namesrv))
    assert all(row["members"] == 0 and row["lag"] is None for row in groups.rows)


def test_a_result_can_be_kept_as_a_file_and_joined_again(broker: BrokerForTests, tmp_path: Path) -> None:
    file = tmp_path / "orders.parquet"
    output = run_query(f"copy (select msgId, tags from orders) to '{file}'", cluster(broker.namesrv))
    assert output.value == COUNT
    sql = f"select count(*) from orders join '{file}' f using (msgId) where f.tags = 'odd'"
    assert run_query(sql, cluster(broker.namesrv)).value == COUNT // 2


def test_an_unknown_topic_is_reported_with_the_nearest_name(broker: BrokerForTests) -> None:
    with pytest.raises(ClientError, match=r"there is no topic oders at .*: did you mean orders\?"):
        run_query("select * from oders", cluster(broker.namesrv))
    with pytest.raises(ClientError, match=r'did you mean "%RETRY%billing"\?'):
        run_query('select * from "%RETRY%biling"', cluster(broker.namesrv))


@pytest.mark.parametrize(
    ("sql", "reason", "position"),
    [
        ("selec 1", "syntax error", 1),
        ("select pric from orders", '"pric" not found', 8),
        ("select tags,\n       nosuch(tags)\nfrom orders", r"\(line 2, column 8\)", 21),
    ],
)
def test_an_error_in_the_query_has_its_position(broker: BrokerForTests, sql: str, reason: str, position: int) -> None:
    with pytest.raises(ExpressionError, match=reason) as caught:
        run_query(sql, cluster(broker.namesrv))
    assert caught.value.position == position


def test_a_query_that_fails_on_the_data_says_why(broker: BrokerForTests) -> None:
    with pytest.raises(ClientError, match="the query failed: Could not convert"):
        run_query("select body_text::int from orders", cluster(broker.namesrv))


def test_one_statement_at_a_time(broker: BrokerForTests) -> None:
    with pytest.raises(SettingsError, match="2 statements"):
        run_query("select 1; select 2", cluster(broker.namesrv))


def test_an_unreachable_nameserver_is_reported() -> None:
    with pytest.raises(NoRoute, match="no nameserver answers"):
        run_query("select * from orders", cluster("127.0.0.1:1"))


def test_a_query_without_a_topic_connects_to_nothing() -> None:
    assert run_query("select 6 * 7", cluster("127.0.0.1:1")).value == 42
