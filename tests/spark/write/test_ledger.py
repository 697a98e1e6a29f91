"""The ledger of the exactly-once sink and the outcomes that brokers get from it: real brokers, no Spark."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from time import sleep

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.errors import NoRoute, RecordError, SettingsError
from ariane.spark.cluster import Cluster
from ariane.spark.options.write import Delivery, WriteOptions
from ariane.spark.write.exactly_once import HalfSender
from ariane.spark.write.half_message import HalfMessageOrigin, parse_origin
from ariane.spark.write.ledger import HalfEntry, Ledger, Winners, decode_record, open_ledger, pack
from ariane.spark.write.outcomes import CheckResponder, LedgerOutcomes, Outcomes
from ariane.spark.write.rows import OutboundMessage
from ariane.wire.requests.offsets import GetMaxOffset
from ariane.wire.requests.send import Decision
from tests.spark.cluster_fixture import ClusterFixture, cluster_in_thread
from tests.spark.write.test_sender import everything

_OPS = "RMQ_SYS_TRANS_OP_HALF_TOPIC"


def options_for(cluster: ClusterFixture, topic: str, **more: object) -> WriteOptions:
    defaults: dict[str, object] = {"nameservers": cluster.nameserver, "topic": topic, "delivery": Delivery.EXACTLY_ONCE}
    return WriteOptions(**{**defaults, "ledger_topic": f"{topic}-ledger", **more})  # type: ignore[arg-type]


def ledger_of(cluster: ClusterFixture, options: WriteOptions) -> Ledger:
    return open_ledger(cluster.client, options)


def send_half_messages(
    cluster: ClusterFixture, options: WriteOptions, origin: HalfMessageOrigin, bodies: list[bytes]
) -> list[Winners]:
    assert options.topic is not None
    sender = HalfSender(cluster.client, options, origin)
    rows = (
        OutboundMessage(options.topic, body, b"UNIQ_KEY\x01" + body + b"\x02", None, None, None, False)
        for body in bodies
    )
    sender.send(rows)
    return sender.winners()


def bodies(cluster: ClusterFixture, topic: str) -> list[bytes]:
    return sorted(message.body for message in everything(cluster, topic))


# --- records


@settings(deadline=None)  # the first example pays for imports
@given(
    st.lists(
        st.builds(HalfEntry, *[st.integers(0, 2**62)] * 3),
        min_size=1,
        max_size=50,
    )
)
def test_half_messages_come_back_from_their_packed_form(entries: list[HalfEntry]) -> None:
    (winners,) = pack("attempt", 3, "broker-a", entries)
    assert winners.entries() == entries


@pytest.mark.parametrize("packed", [b"", b"no zlib", b"x\x9c\x03\x00\x00\x00\x00\x01"])
def test_damaged_winners_are_an_error(packed: bytes) -> None:
    with pytest.raises(RecordError, match="damaged"):
        Winners(attempt="a", partition=0, broker="b", count=2, packed=packed).entries()


def test_bytes_that_are_not_a_record_are_an_error() -> None:
    with pytest.raises(RecordError, match="cannot be read"):
        decode_record(b'{"query": 5}')


def test_a_half_message_names_its_origin() -> None:
    origin = HalfMessageOrigin("LEDGER", "query", 7, 2, "attempt", 12)
    assert parse_origin(str(origin)) == origin
    with pytest.raises(RecordError, match="not sent by Spark"):
        parse_origin("LEDGER query seven 2 attempt 12")


# --- the ledger


def test_the_first_record_of_a_batch_counts(cluster: ClusterFixture) -> None:
    options = options_for(cluster, cluster.topic())
    first = pack("first", 0, "broker-a", [HalfEntry(0, 1, 2)])
    second = pack("second", 0, "broker-a", [HalfEntry(0, 3, 4)])
    ledger = ledger_of(cluster, options)
    assert ledger.record("query", 5, "group", first).winners == first
    assert ledger.record("query", 5, "group", second).winners == first
    assert ledger_of(cluster, options).state("query").decided[5].winners == first
    assert not ledger_of(cluster, options).state("another").is_recorded(0)


def test_a_batch_that_does_not_fit_one_message_is_kept_in_parts(cluster: ClusterFixture) -> None:
    options = options_for(cluster, cluster.topic())
    random = Random(7)
    scattered = [HalfEntry(number, random.getrandbits(30), random.getrandbits(40)) for number in range(110_000)]
    winners = pack("attempt", 0, "broker-a", scattered)
    record = ledger_of(cluster, options).record("query", 0, "group", winners)
    assert len(record.parts) > 1
    assert ledger_of(cluster, options).winners_of(record) == winners


def test_a_ledger_of_several_queues_is_refused(cluster: ClusterFixture) -> None:
    options = options_for(cluster, cluster.topic(), ledger_topic=cluster.topic(queues=2))
    with pytest.raises(NoRoute, match="must have one"):
        ledger_of(cluster, options)


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"transaction_id": "two words"}, "option transactionId is 'two words'"),
        ({"transaction_id": "x", "delivery": Delivery.AT_LEAST_ONCE}, "transactionId needs delivery=exactly-once"),
        ({"ledger_topic": "no/topic"}, "option ledgerTopic"),
        ({"group": "no/group"}, "option producerGroup"),
    ],
)
def test_invalid_options_are_refused(more: dict[str, object], fault: str) -> None:
    with pytest.raises(SettingsError, match=fault):
        WriteOptions(**{"delivery": Delivery.EXACTLY_ONCE, **more})  # type: ignore[arg-type]


# --- outcomes


def test_outcomes_sent_twice_deliver_once(cluster: ClusterFixture) -> None:
    options = options_for(cluster, cluster.topic())
    rows = [b"%d" % number for number in range(700)]
    winners = send_half_messages(cluster, options, HalfMessageOrigin("L", "q", 0, 0, "a", 0), rows)
    assert options.topic is not None
    assert bodies(cluster, options.topic) == []
    for _ in range(2):
        Outcomes(cluster.client, options.topic, options.group, 10).commit(winners)
    assert bodies(cluster, options.topic) == sorted(rows)


def test_outcomes_reach_brokers_that_the_ledger_is_not_on(cluster: ClusterFixture) -> None:
    """The driver knows only the ledger's route when rows have their topics in a column."""
    options = options_for(cluster, cluster.topic(brokers=["broker-b"]), ledger_topic=cluster.topic(1, ["broker-a"]))
    assert options.topic is not None
    winners = send_half_messages(cluster, options, HalfMessageOrigin("L", "q", 0, 0, "a", 0), [b"1", b"2"])
    client = Cluster(options.client_settings())
    try:
        Outcomes(client, options.ledger_topic, options.group, 10).commit(winners)
    finally:
        client.calls.close()
    assert bodies(cluster, options.topic) == [b"1", b"2"]


def test_an_outcome_that_a_broker_has_forgotten_is_recognised_by_the_message(tmp_path: Path) -> None:
    with cluster_in_thread(tmp_path) as cluster:
        options = options_for(cluster, cluster.topic())
        assert options.topic is not None
        winners = send_half_messages(cluster, options, HalfMessageOrigin("L", "q", 0, 0, "a", 0), [b"1", b"2"])
        Outcomes(cluster.client, options.topic, options.group, 10).commit(winners)
        queues = cluster.known_queues(options.topic)
    with cluster_in_thread(tmp_path) as cluster:  # it knows that they are over, but not their outcomes
        while len(cluster.known_queues(options.topic)) < len(queues):
            sleep(0.01)
        Outcomes(cluster.client, options.topic, options.group, 10).commit(winners)
        assert bodies(cluster, options.topic) == [b"1", b"2"]


# --- check requests


@pytest.fixture
def checking_broker(tmp_path: Path) -> Iterator[ClusterFixture]:
    """A broker that checks transactions soon and often."""
    with cluster_in_thread(tmp_path, transaction_check_interval_s=1.0, transaction_check_max=1000) as cluster:
        yield cluster


def test_a_check_request_is_answered_from_the_ledger(checking_broker: ClusterFixture) -> None:
    options = options_for(checking_broker, checking_broker.topic(queues=1), transaction_timeout_s=1)
    assert options.topic is not None
    ledger = ledger_of(checking_broker, options)
    origin = HalfMessageOrigin(options.ledger_topic, "query", 0, 0, "winner", 0)
    winners = send_half_messages(checking_broker, options, origin, [b"1", b"2", b"3"])
    send_half_messages(checking_broker, options, replace(origin, attempt="loser"), [b"1", b"2"])
    send_half_messages(checking_broker, options, replace(origin, batch=1, attempt="later"), [b"4"])
    ledger.record("query", 0, options.group, winners)
    responder = CheckResponder(options)
    responder.start()
    try:
        wait_for_ops(checking_broker, 5)  # three commits and two rollbacks; batch 1 is not decided
        assert bodies(checking_broker, options.topic) == [b"1", b"2", b"3"]
        ledger.record("query", 1, options.group, pack("other", 0, "broker-a", [HalfEntry(0, 0, 0)]))
        wait_for_ops(checking_broker, 6)
    finally:
        responder.close()
    assert bodies(checking_broker, options.topic) == [b"1", b"2", b"3"]


def wait_for_ops(cluster: ClusterFixture, count: int) -> None:
    """Polls: the broker stores an op message for each outcome, and sends no notification."""
    request = GetMaxOffset(_OPS, 0)
    while cluster.client.calls.call(cluster.brokers["broker-a"], request).offset < count:
        sleep(0.05)


def test_winners_of_a_batch_that_is_over_are_copies(cluster: ClusterFixture) -> None:
    options = options_for(cluster, cluster.topic())
    ledger = ledger_of(cluster, options)
    winner = HalfMessageOrigin(options.ledger_topic, "query", 3, 0, "winner", 0)
    outcomes = LedgerOutcomes(options.client_settings())
    assert outcomes.decide(winner) is Decision.UNKNOWN
    ledger.record("query", 3, options.group, pack("winner", 0, "broker-a", [HalfEntry(0, 1, 2)]))
    assert outcomes.decide(winner) is Decision.COMMIT
    assert outcomes.decide(replace(winner, serial=1)) is Decision.ROLLBACK
    ledger.note_ended("query", 3)
    assert outcomes.decide(winner) is Decision.ROLLBACK
    assert outcomes.decide(replace(winner, batch=2)) is Decision.ROLLBACK
    assert outcomes.decide(replace(winner, batch=4)) is Decision.UNKNOWN
    outcomes.close()
