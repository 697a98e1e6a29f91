"""Changes wait at a slave until its log has what they rest on."""

import pytest

from ariane.errors import FrameError
from ariane.replication.group.link.inbox import StateInbox
from ariane.replication.group.link.state import Change, OffsetLine, StateChange, state_bodies
from tests.replication.group.link.test_state import EVERYTHING


def an_offset(offset: int) -> StateChange:
    return StateChange(offsets=(OffsetLine("orders@billing", 0, offset),))


def test_a_change_waits_for_the_log_and_none_overtakes_another() -> None:
    inbox = StateInbox()
    for number, (end, change) in enumerate([(100, EVERYTHING), (300, an_offset(5)), (200, an_offset(6))], 1):
        for body in state_bodies(number, end, change):
            inbox.put(body)
    assert not inbox.is_reached(99)
    assert inbox.take(99) is None
    assert inbox.is_reached(100)
    assert inbox.take(299) == Change(1, 100, EVERYTHING)
    assert inbox.take(299) is None, "the third came after the second, which rests on more"
    assert inbox.take(300) == Change(3, 300, an_offset(6))
    assert len(inbox) == 0


def test_a_slave_that_is_behind_holds_two_changes_whatever_arrives() -> None:
    inbox = StateInbox()
    inbox.put(state_bodies(1, 0, EVERYTHING)[0])
    for number in range(2, 1_000):
        inbox.put(state_bodies(number, number, an_offset(number))[0])
        assert len(inbox) <= 2
    assert inbox.take(0) == Change(1, 0, EVERYTHING)
    assert inbox.take(998) is None
    assert inbox.take(999) == Change(999, 999, an_offset(999))


def test_a_stranger_is_refused_and_what_is_held_stays() -> None:
    inbox = StateInbox()
    inbox.put(state_bodies(1, 10, EVERYTHING)[0])
    with pytest.raises(FrameError):
        inbox.put(b"{}")
    assert inbox.take(10) == Change(1, 10, EVERYTHING)
