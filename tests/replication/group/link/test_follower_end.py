"""A slave's end of the connection to its master: what arrives in order, and what closes it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.replication.epochs import EpochMap
from ariane.replication.frames import (
    MAGIC,
    Kind,
    Report,
    ReportKind,
    hello_bytes,
    native_frame_head,
    native_report,
)
from ariane.replication.group import effects as do
from ariane.replication.group import events as on
from ariane.replication.group.link.follower_end import Arrival, FollowerEnd
from ariane.replication.group.link.introduction import GroupWelcome, new_group_challenge
from ariane.replication.group.link.outbox import StateOutbox
from ariane.replication.group.link.state import OffsetLine
from ariane.replication.hello import Challenge, master_proof, new_challenge
from tests.replication.group.link.ends import (
    CONNECT,
    EPOCHS,
    FILE_SIZE,
    MASTER,
    SECRET,
    SLAVE,
    WELCOME,
    introduced,
    received_by,
    streaming,
)
from tests.replication.group.link.test_state import EVERYTHING

WELCOMED = on.Welcomed(7, 3, 0, 2_000, EPOCHS)


@given(st.integers(1, 400), st.integers(1, 900))
def test_welcome_log_and_state_arrive_in_any_cut_of_the_bytes(size: int, log_bytes: int) -> None:
    leader, follower, _ = introduced()
    body, outbox = bytes(index % 251 for index in range(log_bytes)), StateOutbox()
    stream = leader.welcome(WELCOME) + leader.state(outbox.full(EVERYTHING, 600), 650)
    stream += leader.data(body, 660) + leader.heartbeat(670)
    arrivals, send, closed = received_by(follower, stream, size)
    assert (send, closed) == (b"", None)
    assert [arrivals[0].event, arrivals[1].event] == [WELCOMED, on.FrameArrived(7, 3, 700, 0, 650)]
    data, heartbeat = arrivals[2:-1], arrivals[-1]
    assert b"".join(arrival.body for arrival in data) == body
    at = 700
    for arrival in data:
        assert arrival.event == on.FrameArrived(7, 3, at, len(arrival.body), 660)
        at += len(arrival.body)
    assert heartbeat == Arrival(on.FrameArrived(7, 3, 700 + log_bytes, 0, 670))
    change = follower.inbox.take(600)
    assert change is not None
    assert change.change == EVERYTHING


def test_reports_say_what_the_group_and_the_dispatch_say() -> None:
    leader, follower, _ = streaming()
    received_by(follower, leader.data(bytes(100), 700))
    assert follower.report(do.Report(7, 3, 800), 750) == native_report(Report(800, 750, 3))
    assert follower.state_applied(1, 750) == native_report(Report(1, 750, 3, ReportKind.STATE))
    assert leader.feed(follower.report(do.Report(7, 3, 800), 750)).events == [on.Acked(5, 3, 800)]
    assert follower.lost() == [Arrival(on.LinkLost(7))]
    assert follower.lost() == [], "once"
    assert follower.report(do.Report(7, 3, 800), 750) == follower.state_applied(1, 750) == b""


def test_a_refused_connection_is_lost_as_refused() -> None:
    follower = FollowerEnd(CONNECT, SLAVE, "run-1", SECRET)
    assert follower.lost(is_refused=True) == [Arrival(on.LinkLost(7, is_refused=True))]


def test_a_log_that_has_to_be_cut_gets_no_stream() -> None:
    own = EpochMap.of(((1, 0), (2, 600)))
    leader, follower, _ = introduced(connect=CONNECT._replace(epochs=own))
    arrivals, _, closed = received_by(follower, leader.welcome(WELCOME._replace(stream_from=None)))
    assert closed is None
    assert arrivals == [Arrival(WELCOMED)]
    frame = native_frame_head(Kind.HEARTBEAT, 700, b"", 0, 3)
    assert received_by(follower, frame).closed == "a frame without a stream that the welcome promised"


def test_a_master_that_has_deleted_what_the_slave_needs_cannot_go_on() -> None:
    leader, follower, _ = introduced()
    effect = WELCOME._replace(begin=1_024, stream_from=None)
    assert received_by(follower, leader.welcome(effect)) == (
        [Arrival(on.Welcomed(7, 3, 1_024, 2_000, EPOCHS))],
        b"",
        None,
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"epoch": 4}, "the master is of epoch 4, and we follow epoch 3"),
        ({"epoch": 2}, "the master is of epoch 2"),
        ({"incarnation": "run-9"}, "another run of its process"),
        ({"from": 699}, "goes on at 699, and our log ends at 700"),
        ({"from": 701}, "goes on at 701"),
        ({"from": None}, "does not go on at 700"),
        ({"from": -1}, "not an introduction"),
        ({"min": 3_000}, "begins at 3000 and ends at 2000"),
        ({"epochs": [[3, 500], [1, 0]]}, "not the epochs of a log"),
        ({"epochs": [[number, number] for number in range(1, 1_002)]}, "not an introduction"),
        ({"refused": "no", "epoch": 8}, "the master refuses us: no"),
        ({"refused": "x" * 1_025}, "not an introduction"),
    ],
)
def test_a_welcome_that_does_not_fit_closes_the_connection(changes: dict[str, Any], reason: str) -> None:
    leader, follower, _ = introduced()
    fields = msgspec.json.decode(leader.welcome(WELCOME)[4:])
    arrivals, send, closed = received_by(follower, hello_bytes(msgspec.json.encode({**fields, **changes})))
    assert closed is not None
    assert reason in closed
    assert (arrivals, send) == ([Arrival(on.LinkLost(7))], b"")
    assert follower.refused_epoch == (8 if "refused" in changes and "epoch" in changes else 0)


def test_a_master_of_a_pair_is_not_followed() -> None:
    follower = FollowerEnd(CONNECT, SLAVE, "run-1", None)
    assert follower.begin().startswith(MAGIC)
    closed = received_by(follower, hello_bytes(Challenge(challenge=new_challenge()).to_bytes())).closed
    assert closed is not None
    assert "speaks version 2" in closed


def test_a_master_that_knows_another_secret_gets_no_proof() -> None:
    follower = FollowerEnd(CONNECT, SLAVE, "run-1", SECRET)
    hello = follower.begin()[len(MAGIC) + 4 :]
    challenge = new_group_challenge().to_bytes()
    data = hello_bytes(challenge) + hello_bytes(master_proof(b"another", hello, challenge))
    received = received_by(follower, data)
    assert received.closed is not None
    assert received.send == b""


def frame(kind: Kind = Kind.DATA, offset: int = 700, body: bytes = b"abc", confirmed: int = 0, epoch: int = 3) -> bytes:
    return native_frame_head(kind, offset, body, confirmed, epoch) + body


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (frame(epoch=2), "a frame of epoch 2 in epoch 3"),
        (frame(epoch=4), "a frame of epoch 4 in epoch 3"),
        (frame(offset=699), "a frame for offset 699, and the log ends at 700"),
        (frame(offset=701), "a frame for offset 701"),
        (frame(confirmed=-1), "-1 is confirmed"),
        (frame(body=b""), "0 bytes for offset 700"),
        (frame(body=bytes(FILE_SIZE - 699)), "325 bytes for offset 700: not a part of one log file"),
        (frame(Kind.HEARTBEAT), "a heartbeat with 3 bytes"),
        (frame(Kind.STATE), "not a state frame"),
        (frame(Kind.GOODBYE, body=b"member 3 follows"), "the master says goodbye: member 3 follows"),
        (frame()[:-1] + b"d", "does not match its checksum"),
        (b"\xff" * 32, "bytes, expected 0 to"),
    ],
)
def test_a_frame_that_does_not_fit_closes_the_connection_after_what_came_before(data: bytes, reason: str) -> None:
    leader, follower, _ = streaming()
    good = leader.heartbeat(660)
    arrivals, _, closed = received_by(follower, good + data + leader.heartbeat(661))
    assert closed is not None
    assert reason in closed
    assert [arrival.event for arrival in arrivals] == [on.FrameArrived(7, 3, 700, 0, 660), on.LinkLost(7)]
    assert received_by(follower, good).arrivals == [], "it is over"


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_of_a_master_are_taken_or_close_the_connection(data: bytes, is_streaming: bool) -> None:
    follower = streaming()[1] if is_streaming else FollowerEnd(CONNECT, SLAVE, "run-1", SECRET)
    follower.begin()
    received = received_by(follower, data, 7)
    lost = [arrival for arrival in received.arrivals if isinstance(arrival.event, on.LinkLost)]
    assert (received.closed is not None) == (len(lost) == 1)
    assert lost == received.arrivals[-1:] or not lost


def test_the_first_change_on_a_connection_has_everything() -> None:
    leader, follower, _ = introduced()
    outbox = StateOutbox()
    outbox.put_offset(OffsetLine("orders@billing", 0, 5), 0, 0.0)
    batch = outbox.take(1.0)
    assert batch is not None
    closed = received_by(follower, leader.welcome(WELCOME) + leader.state(batch, 0)).closed
    assert closed == "the first change on a connection has everything, and this one has not"


def test_a_welcome_without_a_field_has_nothing() -> None:
    assert GroupWelcome().to_bytes() == b"{}"
    assert MASTER.incarnation == "run-1"
