"""Avoidance of slow brokers (sendLatencyFaultEnable)."""

import pytest

from ariane.client.producer.queue_selection import FaultTable, QueueSelection, pause_for
from ariane.model.route import MessageQueue

A, B = (MessageQueue(topic="T", broker_name=name, queue_id=0) for name in "ab")


@pytest.mark.parametrize(
    ("latency_s", "pause_s"),
    [(0, 0), (0.05, 0), (0.549, 0), (0.55, 30), (1.0, 60), (2.5, 120), (3.0, 180), (14.9, 180), (15, 600), (30, 600)],
)
def test_the_pauses_are_apaches(latency_s: float, pause_s: float) -> None:
    assert pause_for(latency_s) == pause_s


def test_a_slow_broker_is_avoided_until_its_pause_is_over() -> None:
    table = FaultTable()
    table.record_latency("a", 0.6, now=100)
    assert not table.is_usable("a", now=129.9)
    assert table.is_usable("a", now=130)
    assert table.is_usable("b", now=100)


def test_a_fast_response_ends_the_avoidance() -> None:
    table = FaultTable()
    table.record_failure("a", now=0)
    assert not table.is_usable("a", now=599)
    table.record_latency("a", 0.01, now=1)
    assert table.is_usable("a", now=1)


def test_if_all_are_avoided_one_of_the_better_half_is_used_in_turn() -> None:
    table = FaultTable()
    assert table.least_bad(now=0) is None
    for name, latency_s in (("a", 0.6), ("b", 20), ("c", 1.0), ("d", 3.0)):
        table.record_latency(name, latency_s, now=0)
    assert {table.least_bad(now=1) for _ in range(4)} == {"a", "c"}


def test_a_broker_that_failed_gets_no_message_until_its_pause_is_over() -> None:
    now = [100.0]
    selection = QueueSelection(lambda: now[0], latency_fault=True)
    selection.record_failure(A)
    assert {selection.choose([A, B]) for _ in range(4)} == {B}
    now[0] += pause_for(30)
    assert {selection.choose([A, B]) for _ in range(4)} == {A, B}


def test_if_all_brokers_are_avoided_the_better_one_is_chosen() -> None:
    selection = QueueSelection(lambda: 0.0, latency_fault=True)
    selection.record_failure(A)
    selection.record_latency(B, 0.6)
    assert {selection.choose([A, B], last_broker="b") for _ in range(4)} == {B}


def test_latencies_are_ignored_unless_asked_for() -> None:
    selection = QueueSelection(lambda: 0.0, latency_fault=False)
    selection.record_failure(A)
    assert {selection.choose([A, B]) for _ in range(4)} == {A, B}
