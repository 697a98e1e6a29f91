"""The ring of encoded requests: order, rounds, connections."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load.ring import CONNECTION, ROUND, Ring

ROWS = [b"row %04d round %s of %s\n" % (number, ROUND, CONNECTION) for number in range(10)]


def taken(ring: Ring, count: int, connection: int = 0) -> bytes:
    return b"".join(bytes(piece.data) for piece in ring.take(count, connection))


def test_rows_come_in_order_with_round_and_connection_written_in() -> None:
    assert taken(Ring(ROWS), 2, connection=7) == b"row 0000 round 0000 of 007\nrow 0001 round 0000 of 007\n"


def test_a_take_across_the_end_goes_on_with_the_next_round() -> None:
    ring = Ring(ROWS)
    taken(ring, 9)
    assert taken(ring, 2) == b"row 0009 round 0000 of 000\nrow 0000 round 0001 of 000\n"


@given(st.lists(st.integers(0, 25), max_size=40))
def test_no_row_is_the_same_twice_however_it_is_taken(counts: list[int]) -> None:
    ring = Ring(ROWS)
    lines = b"".join(taken(ring, count) for count in counts).splitlines()
    assert len(lines) == sum(counts) == len(set(lines))


def test_pieces_name_their_rows() -> None:
    ring = Ring(ROWS)
    taken(ring, 8)
    assert [(piece.begin, piece.end) for piece in ring.take(4)] == [(8, 10), (0, 2)]


def test_rows_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="unequal length"):
        Ring([b"one", b"three"])
