"""Offsets as checkpoints and options write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.errors import SettingsError
from ariane.model.route import MessageQueue
from ariane.spark.offsets import EARLIEST, LATEST, Position, StreamOffset

_NAMES = st.text("abc-%\u00e9", min_size=1, max_size=5)
_QUEUES = st.builds(MessageQueue, topic=_NAMES, broker_name=_NAMES, queue_id=st.integers(0, 9))
_OFFSETS = st.dictionaries(_QUEUES, st.integers(0, 2**63 - 1), max_size=8)


@given(_OFFSETS, _OFFSETS)
def test_an_offset_comes_back_from_its_json(
    following: dict[MessageQueue, int], begins: dict[MessageQueue, int]
) -> None:
    offset = StreamOffset(following, begins)
    assert StreamOffset.from_json(offset.to_json()) == offset


def test_a_checkpoint_looks_as_documented() -> None:
    queue = MessageQueue(topic="orders", broker_name="broker-a", queue_id=2)
    assert StreamOffset({queue: 9}, {queue: 4}).to_json() == {
        "v": 1,
        "o": {"orders": {"broker-a": {"2": 9}}},
        "b": {"orders": {"broker-a": {"2": 4}}},
    }


@pytest.mark.parametrize("nested", ["7", "[]", '{"t": 1}', '{"t": {"b": [1]}}', '{"t": {"b": {"x": 1}}}'])
def test_offsets_of_another_shape_are_refused_with_an_example(nested: str) -> None:
    with pytest.raises(SettingsError, match="must look like"):
        Position.parse(nested, "startingOffsets")


def test_a_word_that_is_no_position_is_refused() -> None:
    with pytest.raises(SettingsError, match="earliest, latest or JSON expected"):
        Position.parse("newest", "startingOffsets")


def test_positions_are_a_word_or_numbers_with_a_default() -> None:
    queue = MessageQueue(topic="t", broker_name="b", queue_id=0)
    other = MessageQueue(topic="t", broker_name="b", queue_id=1)
    assert Position.parse("Latest", "x").of(queue, EARLIEST) == LATEST
    numbers = Position.parse('{"t": {"b": {"0": 5}}}', "x")
    assert (numbers.of(queue, EARLIEST), numbers.of(other, EARLIEST)) == (5, EARLIEST)


def test_a_checkpoint_of_another_release_is_refused() -> None:
    with pytest.raises(SettingsError, match="new checkpoint directory"):
        StreamOffset.from_json({"v": 2, "o": {}})
