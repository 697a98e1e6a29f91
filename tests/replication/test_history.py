"""How long ago the log ended at an offset."""

from hypothesis import given
from hypothesis import strategies as st

from ariane.replication.history import LogHistory


def noted(*notes: tuple[int, float], samples_max: int = 4096) -> LogHistory:
    history = LogHistory(samples_max)
    for end, now in notes:
        history.note(end, now)
    return history


def test_who_has_everything_is_not_behind() -> None:
    history = noted((100, 1.0), (200, 2.0))
    assert history.age_s(200, 50.0) == 0
    assert history.age_s(300, 50.0) == 0


def test_who_lacks_something_had_everything_when_the_log_last_ended_there() -> None:
    history = noted((100, 1.0), (200, 2.0), (300, 3.0))
    assert history.age_s(299, 10.0) == 8
    assert history.age_s(200, 10.0) == 8
    assert history.age_s(150, 10.0) == 9


def test_idle_time_does_not_count() -> None:
    history = noted((100, 1.0), (100, 3600.0), (200, 3601.0))
    assert len(history) == 2
    assert history.age_s(100, 3602.0) == 2


def test_what_was_before_the_first_note_is_unknown() -> None:
    assert LogHistory().age_s(0, 1.0) is None
    assert noted((100, 1.0)).age_s(99, 2.0) is None


@given(st.lists(st.integers(0, 50), min_size=1, max_size=200), st.integers(4, 16), st.integers(0, 5000))
def test_a_thinned_history_never_says_too_little(growth: list[int], samples_max: int, offset: int) -> None:
    exact, thinned, end = LogHistory(10_000), LogHistory(samples_max), 0
    for now, grown in enumerate(growth):
        end += grown
        exact.note(end, float(now))
        thinned.note(end, float(now))
    assert len(thinned) <= samples_max
    truth, rough = exact.age_s(offset, 1000.0), thinned.age_s(offset, 1000.0)
    if truth is None:
        assert rough is None
    else:
        assert rough is not None
        assert rough >= truth
        assert (rough == 0) == (truth == 0)
