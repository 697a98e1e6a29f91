"""How a limit is divided among the queues of a topic."""

from hypothesis import given
from hypothesis import strategies as st

from ariane.sql.tables import limit_per_queue

LENGTHS = st.lists(st.integers(0, 1000), max_size=20)


def test_without_a_limit_every_queue_is_read_completely() -> None:
    assert limit_per_queue([5, 0, 7], None) == [5, 0, 7]


def test_queues_get_equal_shares_and_a_short_one_leaves_its_rest_to_the_others() -> None:
    assert limit_per_queue([100, 2, 100], 12) == [5, 2, 5]


@given(LENGTHS, st.integers(1, 5000))
def test_the_limit_is_used_up_and_never_exceeded(lengths: list[int], limit: int) -> None:
    given_ = limit_per_queue(lengths, limit)
    assert sum(given_) == min(limit, sum(lengths))
    assert all(0 <= count <= length for count, length in zip(given_, lengths, strict=True))
