"""The rules of replicated histories: a good history keeps all of them, and each finds the history that breaks it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ariane.testing import FakeClock
from tests.chaos.replicated_history import (
    RULES,
    SYNC_S,
    Commit,
    ReplicatedHistory,
    body_of,
    log_differences,
    message_in,
    records_below,
    violations,
)
from tests.simulation.delivery_history import Acknowledged, Attempted, Committed, Delivered, Queue
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import draft, opened, put

ONE: Queue = ("orders", "broker-a", 1)
TWO: Queue = ("orders", "broker-a", 2)


def stored(message: str, queue: Queue, offset: int) -> list[Attempted | Acknowledged]:
    return [Attempted(message), Acknowledged(message, queue, offset, message.partition(":")[0])]


def good() -> ReplicatedHistory:
    """Three messages with SEND_OK; one that timed out and was replicated, one that was not; a consumer a broker."""
    history = ReplicatedHistory()
    history.sends = [
        *stored("p0:0", ONE, 0),
        *stored("p1:0", TWO, 0),
        *stored("p0:1", ONE, 1),
        *stored("p0:2", ONE, 2),
        Attempted("p1:1"),
        *stored("p1:2", TWO, 1),
    ]
    history.safe = {"p0:0", "p1:0", "p0:1"}
    reads = [Delivered("p0:0", ONE, 0), Delivered("p1:0", TWO, 0), Delivered("p0:1", ONE, 1)]
    history.readers["master"] = [
        *reads,
        Committed(ONE, 2),
        Delivered("p0:2", ONE, 2),
        Committed(ONE, 3),
        Delivered("p1:2", TWO, 1),
    ]
    history.readers["slave-1"] = [Delivered("p0:0", ONE, 0), Committed(ONE, 0), *reads, Committed(ONE, 2)]
    history.commits = [Commit(100.0, ONE, 2), Commit(100.0 + SYNC_S, ONE, 3)]
    history.quiet_since_s = 90.0
    history.master_ended_s = 101.0 + SYNC_S
    history.alone = [*reads, Delivered("p0:2", ONE, 2)]
    history.committed_alone = {ONE: 2}
    history.sent_to_promoted = [Acknowledged("promoted:0", TWO, 1, "promoted")]
    history.promoted = [*history.alone, Delivered("promoted:0", TWO, 1)]
    return history


def test_a_good_history_keeps_every_rule() -> None:
    assert violations(good()) == {}


def lose_a_safe_message(history: ReplicatedHistory) -> None:
    history.safe.add("p1:2")


def invent_a_message_at_the_slave(history: ReplicatedHistory) -> None:
    history.readers["slave-1"].append(Delivered("p9:9", ONE, 2))


def alter_a_message_at_the_slave(history: ReplicatedHistory) -> None:
    history.alone[0] = Delivered(message_in(body_of("p0:0") + b"!"), ONE, 0)


def change_what_an_offset_holds(history: ReplicatedHistory) -> None:
    history.readers["slave-1"].append(Delivered("p1:1", ONE, 2))


def acknowledge_out_of_order(history: ReplicatedHistory) -> None:
    history.sends += [*stored("p0:3", TWO, 5), *stored("p0:4", TWO, 4)]


def skip_an_offset(history: ReplicatedHistory) -> None:
    history.readers["slave-1"] = [Delivered("p0:0", ONE, 0), Delivered("p0:2", ONE, 2)]


def move_an_offset_back(history: ReplicatedHistory) -> None:
    history.readers["slave-1"].append(Committed(ONE, 1))


def lose_the_middle_of_a_queue(history: ReplicatedHistory) -> None:
    history.safe.discard("p0:1")
    del history.alone[2], history.promoted[2]


def store_a_message_twice(history: ReplicatedHistory) -> None:
    history.alone.append(Delivered("p0:2", TWO, 1))
    history.sends = [event for event in history.sends if event.message != "p1:2"]  # type: ignore[union-attr]
    history.readers["master"].pop()


def copy_no_offsets(history: ReplicatedHistory) -> None:
    history.committed_alone = {ONE: 1}


def lose_a_message_by_the_promotion(history: ReplicatedHistory) -> None:
    history.promoted.pop()


def overwrite_a_message_after_the_promotion(history: ReplicatedHistory) -> None:
    history.sent_to_promoted = [Acknowledged("promoted:0", ONE, 2, "promoted")]
    history.promoted[3:] = [Delivered("promoted:0", ONE, 2)]


def lose_a_process(history: ReplicatedHistory) -> None:
    history.problems["ended by itself"].append("slave-1 after kill -9 of the master")


BAD: dict[Callable[[ReplicatedHistory], None], set[str]] = {
    lose_a_safe_message: {"missing"},
    invent_a_message_at_the_slave: {"never_sent", "changed"},
    alter_a_message_at_the_slave: {"missing", "never_sent", "changed", "lost_by_promotion"},
    change_what_an_offset_holds: {"changed"},
    acknowledge_out_of_order: {"out_of_order"},
    skip_an_offset: {"skipped"},
    move_an_offset_back: {"moved_back"},
    lose_the_middle_of_a_queue: {"sparse", "lost_by_promotion"},
    store_a_message_twice: {"stored_twice", "lost_by_promotion"},
    copy_no_offsets: {"behind_the_sync"},
    lose_a_message_by_the_promotion: {"lost_by_promotion"},
    overwrite_a_message_after_the_promotion: {"lost_by_promotion"},
    lose_a_process: {"ended by itself"},
}
"""What spoils the good history, and which rules must find it: these and no others."""


@pytest.mark.parametrize("spoil", BAD, ids=lambda spoil: spoil.__name__)
def test_each_planted_violation_is_found_by_its_rules_alone(spoil: Callable[[ReplicatedHistory], None]) -> None:
    history = good()
    spoil(history)
    assert violations(history).keys() == BAD[spoil]


def test_every_rule_has_a_violation_that_it_finds() -> None:
    assert {rule.__name__ for rule in RULES} <= set().union(*BAD.values())


def test_offsets_are_not_demanded_when_a_fault_may_have_kept_the_copy_away() -> None:
    history = good()
    copy_no_offsets(history)
    history.quiet_since_s = history.master_ended_s - SYNC_S + 0.1
    assert violations(history) == {}


def test_a_body_names_its_message_only_as_it_was_sent() -> None:
    body = body_of("p0:17")
    assert message_in(body) == "p0:17"
    assert message_in(body[:-1] + bytes([body[-1] ^ 1])) == "altered p0:17"
    assert message_in(b"\xff") == "altered \ufffd"


def test_whole_records_of_a_log_are_counted_over_its_files(tmp_path: Path) -> None:
    store = opened(SimulatedDisk(FakeClock()))
    ends = [put(store, draft(bytes(1000), queue_id=number % 3))[0].end for number in range(30)]
    segments = list(store.components.commit_log.segments)
    assert len(segments) > 2
    for segment in segments:
        (tmp_path / segment.path.name).write_bytes(bytes(segment.file.view()))
    assert [records_below(tmp_path, end) for end in ends] == list(range(1, 31))
    assert [records_below(tmp_path, end - 1) for end in ends] == list(range(30))


def test_logs_are_compared_up_to_the_end_of_the_slaves(tmp_path: Path) -> None:
    master, slave = tmp_path / "master", tmp_path / "slave"
    for directory in (master, slave):
        directory.mkdir()
        for base in (0, 100):
            (directory / f"{base:020}").write_bytes(bytes(range(100)))
    second = slave / f"{100:020}"
    second.write_bytes(bytes(range(60)) + bytes(40))
    assert log_differences(master, slave, 160) == []
    (found,) = log_differences(master, slave, 162)
    assert found.endswith("differ at 160")
    (slave / f"{0:020}").write_bytes(bytes(50) + bytes(range(50, 100)))
    (found,) = log_differences(master, slave, 160)
    assert found.endswith("differ at 1")
    (master / f"{0:020}").unlink()
    assert len(log_differences(master, slave, 160)) == 1
    second.unlink()
    assert any("ends at 100" in fault for fault in log_differences(master, slave, 160))
    (slave / f"{0:020}").unlink()
    assert log_differences(master, slave, 160) != []
