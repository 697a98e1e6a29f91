"""The master's end of a connection: who gets the stream, and which reports count."""

import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.replication.frames import (
    HELLO_BYTES_MAX,
    MAGIC,
    NATIVE_BODY_BYTES_MAX,
    FrameDecoder,
    Kind,
    Report,
    ReportKind,
    classic_report,
    hello_bytes,
    native_report,
)
from ariane.replication.group import effects as do
from ariane.replication.group import events as on
from ariane.replication.group.link.follower_end import FollowerEnd
from ariane.replication.group.link.introduction import new_hello
from ariane.replication.group.link.leader_end import LeaderEnd, Received, log_frames
from ariane.replication.hello import VERSION, Hello, new_challenge
from tests.replication.group.link.ends import (
    CONNECT,
    EPOCHS,
    MASTER,
    SECRET,
    SLAVE,
    WELCOME,
    fed_to,
    introduced,
    received_by,
    streaming,
)


@given(st.integers(1, 200))
def test_a_slave_that_proves_itself_arrives_in_any_cut_of_its_bytes(size: int) -> None:
    leader, _, received = introduced(size=size)
    assert received == Received([on.HelloArrived(5, 2, "run-2", 3, 0, 700, EPOCHS)], b"", None)
    assert leader.hello is not None
    assert leader.hello.store_id == "disk-2"
    assert not leader.is_streaming, "the group decides"


def test_a_cluster_without_a_secret_needs_no_proof() -> None:
    assert introduced(secrets=(None, None))[2].events


@pytest.mark.parametrize("secrets", [(SECRET, b"another"), (SECRET, None), (None, SECRET)])
def test_another_secret_ends_the_introduction_at_the_slave(secrets: tuple[bytes | None, bytes | None]) -> None:
    received = introduced(secrets=secrets)[2]
    assert received.closed is not None
    assert "does not know our secret" in received.closed


def test_a_wrong_proof_is_refused_before_anything_of_the_log_is_sent() -> None:
    leader = LeaderEnd(5, MASTER, SECRET)
    hello = new_hello(SLAVE, 3, 0, 700, EPOCHS).to_bytes()
    challenge = leader.feed(MAGIC + hello_bytes(hello)).send
    proof = challenge[-32:]
    received = leader.feed(hello_bytes(proof))  # an echo
    assert received.closed == (
        "slave refused: the slave and the master have different secrets: set replication.secret_file alike"
    )
    assert received.events == [on.LinkClosed(5)]
    assert b'"refused":"the slave and the master have different secrets' in received.send
    assert leader.hello is None
    assert leader.feed(proof) == Received([], b"", None), "it is over"
    assert leader.lost() == []


def test_a_member_of_another_cluster_gets_the_reason() -> None:
    _, follower, received = introduced(slave=msgspec.structs.replace(SLAVE, cluster="other"))
    assert received.closed == "slave refused: the slave belongs to cluster other, the master to c"
    assert received.events == [on.LinkClosed(5)]
    assert received_by(follower, received.send).closed == (
        "the master refuses us: the slave belongs to cluster other, the master to c"
    )


def test_the_group_refuses_with_its_epoch() -> None:
    leader, follower, _ = introduced()
    data = leader.refuse(do.Refuse(5, "epoch 3 is not 6"), 6)
    assert received_by(follower, data).closed == "the master refuses us: epoch 3 is not 6"
    assert follower.refused_epoch == 6
    assert leader.welcome(WELCOME) == b""


PAIR_HELLO = Hello(
    cluster="c", group="b", member=1, file_size=1024, min=0, end=5, tail=(5, 7), challenge=new_challenge()
).to_bytes()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (classic_report(0), "the protocol of RocketMQ 4.x"),
        (b"\xffX", "the protocol of RocketMQ 4.x"),
        (MAGIC + struct.pack(">i", HELLO_BYTES_MAX + 1), "at most 65536"),
        (MAGIC + struct.pack(">i", -1), "at most 65536"),
        (MAGIC + hello_bytes(b"{"), "not an introduction"),
        (MAGIC + hello_bytes(b"[" * 60_000), "not an introduction"),
        (MAGIC + hello_bytes(PAIR_HELLO), f"speaks version {VERSION}"),
        (MAGIC + hello_bytes(new_hello(SLAVE, 3, 0, 500, EPOCHS).to_bytes()), "epoch 3 begins at 500"),
    ],
)
def test_a_stranger_is_closed_without_an_answer(data: bytes, reason: str) -> None:
    received = fed_to(LeaderEnd(5, MASTER, SECRET), data, 7)
    assert received.closed is not None
    assert reason in received.closed
    assert received.events == [on.LinkClosed(5)]
    assert received.send == b""


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_taken_or_close_the_connection(data: bytes, has_magic: bool) -> None:
    received = fed_to(LeaderEnd(5, MASTER, SECRET), MAGIC + data if has_magic else data, 3)
    assert not [event for event in received.events if not isinstance(event, on.LinkClosed)]
    assert (received.closed is None) == (not received.events)


def test_nothing_may_follow_the_proof_before_the_stream() -> None:
    leader, _, _ = introduced()
    assert leader.feed(native_report(Report(700, 0, 3))).closed == "a report before the stream"
    leader, follower = LeaderEnd(5, MASTER, SECRET), FollowerEnd(CONNECT, SLAVE, MASTER.incarnation, SECRET)
    proof = received_by(follower, leader.feed(follower.begin()).send).send
    received = leader.feed(proof + native_report(Report(700, 0, 3)))  # in one piece with it
    assert (received.events, received.closed) == ([on.LinkClosed(5)], "a report before the stream")
    leader, _, _ = introduced()
    leader.welcome(WELCOME._replace(stream_from=None))
    assert leader.data(b"abc", 0) == leader.heartbeat(0) == b""
    assert leader.feed(native_report(Report(700, 0, 3))).closed == "a report before the stream"


def test_reports_become_acknowledgements_of_what_was_sent() -> None:
    leader, _, _ = streaming()
    leader.data(bytes(300), 650)
    assert leader.sent_to == 1_000
    received = leader.feed(native_report(Report(650, 600, 3)) + native_report(Report(1_000, 900, 3)))
    assert received == Received([on.Acked(5, 3, 650), on.Acked(5, 3, 1_000)], b"", None)
    assert leader.dispatched == 900
    received = leader.feed(native_report(Report(1, 900, 3, ReportKind.STATE)))
    assert received == Received([], b"", None)
    assert (leader.states_sent, leader.states_applied) == (1, 1)


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (Report(1_001, 0, 3), "it reported 1001, but only 1000 was sent: it is not a slave"),
        (Report(2**63 - 1, 0, 3), "only 1000 was sent"),
        (Report(1_000, 0, 2), "a report of epoch 2 in epoch 3"),
        (Report(1_000, 0, 4), "a report of epoch 4 in epoch 3"),
        (Report(799, 0, 3), "it reported 799 after 800"),
        (Report(900, 1_001, 3), "a slave reported 1001 of 900 as dispatched"),
        (Report(900, -1, 3), "a slave reported -1 of 900 as dispatched"),
        (Report(2, 0, 3, ReportKind.STATE), "it applied change 2, but 1 was the last that was sent"),
        (Report(0, 0, 3, ReportKind.STATE), "it applied change 0"),
        (Report(1, 0, 9, ReportKind.STATE), "a report of epoch 9 in epoch 3"),
    ],
)
def test_a_forged_report_closes_the_connection_and_counts_nothing(report: Report, reason: str) -> None:
    leader, _, _ = streaming()
    leader.data(bytes(300), 650)
    leader.feed(native_report(Report(800, 800, 3)) + native_report(Report(1, 800, 3, ReportKind.STATE)))
    received = leader.feed(native_report(report) + native_report(Report(1_000, 800, 3)))
    assert received.closed is not None
    assert reason in received.closed
    assert received.events == [on.LinkClosed(5)]
    assert (leader.dispatched, leader.states_applied) == (800, 1)
    assert leader.data(b"abc", 0) == leader.heartbeat(0) == leader.goodbye("late", 0) == b""


@pytest.mark.parametrize("head", [(2, 3, 5, 5), (-1, 3, 5, 5), (0, 3, -5, 5)])
def test_a_report_of_another_kind_closes_the_connection(head: tuple[int, ...]) -> None:
    leader, _, _ = streaming()
    assert leader.feed(struct.pack(">iiqq", *head)).closed is not None


@given(
    start=st.integers(0, 5_000),
    body=st.binary(max_size=3_000),
    file_size=st.integers(1, 2_000),
)
def test_frames_of_the_log_end_with_its_files(start: int, body: bytes, file_size: int) -> None:
    decoder, at, joined = FrameDecoder(native=True), start, b""
    stream = memoryview(log_frames(start, body, file_size, 3, 77))
    while stream:
        room = decoder.get_buffer()
        count = min(len(room), len(stream))
        room[:count], stream = stream[:count], stream[count:]
        decoder.buffer_updated(count)
        while (frame := decoder.next_frame()) is not None:
            assert (frame.kind, frame.offset, frame.epoch, frame.confirmed) == (Kind.DATA, at, 3, 77)
            assert at // file_size == (at + len(frame.body) - 1) // file_size
            at, joined = at + len(frame.body), joined + frame.body
    assert joined == body


def test_a_large_part_of_the_log_is_split_at_the_limit_of_a_frame() -> None:
    body: Any = memoryview(bytes(2 * NATIVE_BODY_BYTES_MAX + 1))
    assert len(log_frames(0, body, 1 << 30, 3, 0)) == len(body) + 3 * 32
