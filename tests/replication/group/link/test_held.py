"""Values that wait for a position of the log."""

from hypothesis import given
from hypothesis import strategies as st

from ariane.replication.group.link.held import Held


def newer(_: str, value: str) -> str:
    return value


def test_the_first_and_the_newest_value_are_held_for_a_slave_that_is_behind() -> None:
    held = Held[str](newer)
    for number, one in enumerate("abcd"):
        held.put(number * 100, one)
    assert len(held) == 2
    assert held.take(0) == "a"
    assert not held.is_reached(299)
    assert held.take(299) is None
    held.put(400, "b")
    assert held.is_reached(300)
    assert held.take(400) == "b", "the newest of those that are reached"
    assert not held


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=40))
def test_no_change_is_lost_early_or_out_of_order(steps: list[tuple[int, bool]]) -> None:
    held = Held[tuple[int, ...]](lambda older, later: older + later)
    end, taken, position = 0, list[int](), 0
    ends = []
    for number, (step, is_put) in enumerate(steps):
        if is_put:
            end += step
            ends.append((number, end))
            held.put(end, (number,))
        else:
            position += step
            taken += held.take(position) or ()
            assert all(rests_on <= position for number, rests_on in ends if number in taken)
    taken += held.take(end) or ()
    assert taken == [number for number, _ in ends]
