"""Counters of traffic, and their limits."""

import pytest

from ariane.broker.stats.counters import OVERFLOW_KEY, UNCOUNTED_MAX, Counters, Histogram
from ariane.errors import RequestFailed
from ariane.store.append.draft import Appended
from ariane.wire.codes import ResponseCode


def appended(size: int) -> Appended:
    return Appended(0, 0, size, 0)


def test_a_put_counts_for_its_topic_and_for_the_broker() -> None:
    counters = Counters()
    counters.put("orders", 100, 0.0)
    counters.put("orders", 200, 0.0)
    counters.put("bills", 50, 0.0)
    assert (counters.puts["orders"].messages, counters.puts["orders"].bytes) == (2, 300)
    assert (counters.messages_in, counters.bytes_in) == (3, 350)


def test_a_batch_counts_many_messages_and_one_request() -> None:
    counters = Counters()
    counters.put_together("orders", [appended(100), appended(200), appended(300)])
    counter = counters.puts["orders"]
    assert (counter.messages, counter.bytes, counter.times) == (3, 600, 1)
    assert counters.messages_in == 3


@pytest.mark.parametrize(("size", "bits"), [(1, 0), (2, 1), (1023, 10), (1024, 10), (1025, 11), (4 << 20, 22)])
def test_sizes_are_counted_by_powers_of_two_with_inclusive_upper_bounds(size: int, bits: int) -> None:
    counters = Counters()
    counters.put("orders", size, 0.0)
    assert counters.sizes[bits] == 1


def test_a_pull_with_messages_records_the_position_of_the_group() -> None:
    counters = Counters()
    counters.got("orders", "billing", 3, 32, 4000, 132)
    counters.got_nothing("orders", "billing", 0, 7)
    counter = counters.gets["orders", "billing"]
    assert (counter.messages, counter.bytes, counter.times, counter.pulled) == (32, 4000, 1, {3: 132, 0: 7})
    assert (counters.found, counters.missed, counters.messages_out, counters.bytes_out) == (1, 1, 32, 4000)


@pytest.mark.parametrize(
    ("code", "remark", "reason"),
    [
        (ResponseCode.TOPIC_NOT_EXIST, "topic orders does not exist", "TOPIC_NOT_EXIST"),
        (ResponseCode.SYSTEM_BUSY, "[OVERLOAD]broker busy", "OVERLOAD"),
        (ResponseCode.SYSTEM_BUSY, "[ is no prefix", "SYSTEM_BUSY"),
        (99_999, "", "99999"),
    ],
)
def test_a_rejected_send_counts_by_its_reason(code: int, remark: str, reason: str) -> None:
    counters = Counters()
    counters.rejected(RequestFailed(code, remark))
    assert counters.rejected_sends == {reason: 1}


def test_a_send_back_that_becomes_a_dead_letter_counts_twice() -> None:
    counters = Counters()
    counters.sent_back("orders", "billing", 100, is_dead=False)
    counters.sent_back("orders", "billing", 100, is_dead=True)
    assert counters.send_backs["orders", "billing"].messages == 2
    assert counters.dead_letters["orders", "billing"].messages == 1


def test_counters_of_deleted_topics_and_groups_are_removed() -> None:
    counters = Counters()
    for topic in ("orders", "gone"):
        counters.put(topic, 100, 0.0)
        counters.put_ordered(topic, 100)
        counters.ended(topic, is_commit=True)
        for group in ("billing", "left"):
            counters.got(topic, group, 0, 1, 100, 1)
    counters.remove_unknown(lambda topic: topic == "orders", lambda group: group == "billing")
    assert set(counters.puts) == set(counters.ordered_puts) == set(counters.commits) == {"orders"}
    assert set(counters.gets) == {("orders", "billing")}
    assert counters.messages_in == 2  # the broker did take them


def test_beyond_the_limit_topics_are_counted_together() -> None:
    counters = Counters(counters_max=2)
    for topic in ("a", "b", "c", "d", "a"):
        counters.put(topic, 10, 0.0)
    assert {topic: counter.messages for topic, counter in counters.puts.items()} == {"a": 2, "b": 1, OVERFLOW_KEY: 2}
    for group in ("g", "h", "i", "j"):
        counters.got("a", group, 0, 1, 10, 1)
    assert counters.gets[OVERFLOW_KEY, OVERFLOW_KEY].messages == 2


def test_messages_of_many_topics_are_buffered_before_they_are_counted() -> None:
    counters = Counters()
    for number in range(UNCOUNTED_MAX - 1):
        counters.put_all(["a", f"topic-{number % 100}"], [10, 20], 0.0)
        assert len(counters._uncounted) < UNCOUNTED_MAX
    assert counters.puts["a"].bytes == 10 * (UNCOUNTED_MAX - 1)
    assert sum(counter.messages for counter in counters.puts.values()) == counters.messages_in
    assert sum(counter.bytes for counter in counters.all()) == counters.bytes_in


def test_a_value_at_a_bound_belongs_below_it() -> None:
    histogram = Histogram((1.0, 2.0, 3.0))
    for value in (0.5, 1.0, 1.1, 2.0, 3.0, 3.1):
        histogram.add(value)
    assert histogram.counts == [2, 2, 1, 1]
    assert (histogram.count, histogram.up_to(2.0), histogram.largest) == (6, 4, 3.1)
    assert histogram.total == pytest.approx(10.7)


@pytest.mark.parametrize("puts", [[("a", 100)] * 5, [("a", 100), ("b", 5000), ("a", 1)]], ids=["alike", "mixed"])
def test_messages_of_one_append_count_as_if_they_had_come_one_by_one(puts: list[tuple[str, int]]) -> None:
    together, one_by_one = Counters(), Counters()
    together.put_all([topic for topic, _ in puts], [size for _, size in puts], 0.25)
    for topic, size in puts:
        one_by_one.put(topic, size, 0.25)
    for counters in (together, one_by_one):
        assert sum(counter.messages for counter in counters.puts.values()) == len(puts)
    assert (together.sizes, together.bytes_in) == (one_by_one.sizes, one_by_one.bytes_in)
    assert {topic: counter.bytes for topic, counter in together.puts.items()} == {
        topic: counter.bytes for topic, counter in one_by_one.puts.items()
    }
    assert (together.append_s.counts, together.append_s.total) == (
        one_by_one.append_s.counts,
        one_by_one.append_s.total,
    )
