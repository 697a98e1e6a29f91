"""Maps of epochs: cuts, and the point up to which two logs are the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.errors import RecordError
from ariane.replication.epochs import EPOCHS_MAX, Epoch, EpochMap, EpochRecord

A = EpochMap.of([(1, 0), (3, 500), (5, 900)])


def test_an_epoch_ends_where_the_next_begins_and_the_last_with_the_log() -> None:
    assert [A.end_of(number, 1000) for number in (1, 3, 5)] == [500, 900, 1000]


def test_each_offset_belongs_to_the_epoch_that_began_at_or_before_it() -> None:
    assert [A.epoch_at(offset) for offset in (0, 499, 500, 899, 900, 5000)] == [1, 1, 3, 3, 5, 5]
    assert EpochMap.of([(4, 100)]).epoch_at(99) == 0


def test_a_cut_removes_epochs_whose_first_record_is_gone() -> None:
    assert A.truncate_to(901) == A
    assert A.truncate_to(900).pairs() == ((1, 0), (3, 500))
    assert A.truncate_to(0) == EpochMap()


@pytest.mark.parametrize(
    ("other", "other_end", "point"),
    [
        (A, 1000, 1000),  # the same log
        (A, 950, 950),  # one is behind in the last epoch
        (EpochMap.of([(1, 0), (3, 500), (4, 880)]), 920, 880),  # the other's epoch 3 ended earlier
        (EpochMap.of([(1, 0), (3, 500), (4, 930)]), 990, 900),  # and here later
        (EpochMap.of([(1, 0), (2, 400), (4, 600)]), 700, 400),  # only epoch 1 is common
        (EpochMap.of([(1, 0), (3, 501), (5, 900)]), 1000, 1000),  # the newest common one says all
        (EpochMap.of([(2, 0)]), 700, None),  # nothing is
        (EpochMap(), 0, None),
    ],
)
def test_the_consistent_point_is_the_smaller_end_of_the_newest_common_epoch(
    other: EpochMap, other_end: int, point: int | None
) -> None:
    assert A.consistent_point(1000, other, other_end) == point
    assert other.consistent_point(other_end, A, 1000) == point


@given(st.data())
def test_the_consistent_point_is_where_two_logs_with_one_history_part(data: st.DataObject) -> None:
    """Logs as lists of (epoch, number): both have a common prefix, then each its own epochs."""
    numbers = iter(range(1, 100))
    lengths = st.lists(st.integers(1, 5), max_size=4)

    def grow(begin: list[tuple[int, int]], sizes: list[int], *, parity: int | None) -> list[tuple[int, int]]:
        log = list(begin)
        for size in sizes:
            number = next(n for n in numbers if parity is None or n % 2 == parity)
            log += [(number, position) for position in range(len(log), len(log) + size)]
        return log

    common = grow([], [1, *data.draw(lengths)], parity=None)
    left, right = (grow(common, data.draw(lengths), parity=parity) for parity in (0, 1))
    cut = data.draw(st.integers(1, len(left)))
    left = left[:cut]
    point = _epochs(left).consistent_point(len(left), _epochs(right), len(right))
    same = next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    assert point == same


def _epochs(log: list[tuple[int, int]]) -> EpochMap:
    epochs = EpochMap()
    for offset, (number, _) in enumerate(log):
        if epochs.last is None or epochs.last.number != number:
            epochs = epochs.add(number, offset)
    return epochs


def test_a_map_is_made_of_the_records_of_the_log() -> None:
    records = [(500, EpochRecord(3, 2, "9f3c").to_bytes()), (900, EpochRecord(5, 1, "77aa").to_bytes())]
    epochs = EpochMap.from_records(records)
    assert list(epochs) == [Epoch(3, 500), Epoch(5, 900)]
    assert EpochMap.of(epochs.pairs()) == epochs


def test_only_the_newest_epochs_are_kept() -> None:
    epochs = EpochMap()
    for number in range(1, EPOCHS_MAX + 11):
        epochs = epochs.add(number, number)
    assert len(epochs) == EPOCHS_MAX
    assert epochs.entries[0].number == 11


@pytest.mark.parametrize(
    "pairs",
    [
        [(0, 0)],
        [(1, -1)],
        [(2, 0), (2, 5)],
        [(2, 5), (3, 5)],
        [(3, 0), (2, 5)],
        [(2**31, 0)],
        [(1, 2**63)],
        [(number, number) for number in range(1, EPOCHS_MAX + 2)],
    ],
)
def test_a_map_that_cannot_be_is_refused(pairs: list[tuple[int, int]]) -> None:
    with pytest.raises(RecordError):
        EpochMap.of(pairs)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"epoch":0,"member":1,"incarnation":"a"}',
        b'{"epoch":1,"member":10,"incarnation":"a"}',
        b'{"epoch":1,"member":1,"incarnation":""}',
        b'{"epoch":1,"member":1,"incarnation":"\xff"}',
        b"[" * 100_000,
        b'{"epoch":1,"member":1,"incarnation":"' + b"a" * 5000 + b'"}',
    ],
)
def test_a_message_that_is_no_record_of_an_epoch_is_refused(body: bytes) -> None:
    with pytest.raises(RecordError):
        EpochRecord.from_bytes(body)
