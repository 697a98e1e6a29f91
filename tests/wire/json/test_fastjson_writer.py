"""The encoder: fastjson's dialect and standard JSON."""

import json
from enum import Enum, IntEnum, IntFlag, StrEnum

import msgspec
import pytest
from hypothesis import given

from ariane.errors import BodyError
from ariane.model.route import MessageQueue
from ariane.wire.json.fastjson import emit, parse
from tests.wire.json.json_values import values

QUEUE_KEY = (("brokerName", "b"), ("queueId", 0), ("topic", "T"))
QUEUE_TEXT = '{"brokerName":"b","queueId":0,"topic":"T"}'


class Colour(Enum):
    RED = 7


class Word(StrEnum):
    LOUD = "loud"


class Bits(IntFlag):
    READ = 4
    WRITE = 2


class Level(IntEnum):
    HIGH = 3


class Sample(msgspec.Struct, frozen=True, rename="camel"):
    zebra_count: int = 1
    apple: str | None = None
    client_id: str = msgspec.field(default="c", name="clientID")
    perm: int = Bits.READ | Bits.WRITE
    unset: int | msgspec.UnsetType = msgspec.UNSET


def test_structs_are_written_in_wire_order_without_none() -> None:
    assert emit(Sample()) == b'{"clientID":"c","perm":6,"zebraCount":1}'
    assert emit(Sample(apple="")) == b'{"apple":"","clientID":"c","perm":6,"zebraCount":1}'


def test_enums_are_written_by_name_text_or_number() -> None:
    assert emit([Colour.RED, Word.LOUD, Bits.READ, Level.HIGH, Bits(0)]) == b'["RED","loud",4,3,0]'
    assert emit({Colour.RED: 1, Word.LOUD: 2, Level.HIGH: 3}) == b'{"RED":1,"loud":2,3:3}'


def test_collections_are_arrays_and_sets_have_an_order() -> None:
    assert emit([(1, 2), {10, 9, 1}, frozenset({"b", "a"}), [None, True, 1.5]]) == (
        b'[[1,2],[1,9,10],["a","b"],[null,true,1.5]]'
    )
    assert emit({1, "a"}) == b'["a",1]'
    assert emit({Colour.RED, 5}) == b'["RED",5]'


def test_the_dialect_has_bare_integers_and_objects_as_keys() -> None:
    queue = MessageQueue(topic="T", broker_name="b", queue_id=0)
    assert emit({1: "y", 0: "x"}) == b'{1:"y",0:"x"}'
    assert emit({queue: 12}) == f"{{{QUEUE_TEXT}:12}}".encode()
    assert emit({QUEUE_KEY: 12}) == f"{{{QUEUE_TEXT}:12}}".encode()


def test_the_standard_form_has_text_as_keys_in_order() -> None:
    queue = MessageQueue(topic="T", broker_name="b", queue_id=0)
    assert emit({1: "y", 0: "x"}, standard=True) == b'{"0":"x","1":"y"}'
    assert json.loads(emit({queue: 12}, standard=True)) == {QUEUE_TEXT: 12}
    assert json.loads(emit({QUEUE_KEY: 12}, standard=True)) == {QUEUE_TEXT: 12}


def test_text_is_utf_8_in_the_dialect_and_ascii_in_the_standard_form() -> None:
    assert emit('é\n"\\\x01') == '"é\\n\\"\\\\\\u0001"'.encode()
    assert emit("é😀", standard=True) == b'"\\u00e9\\ud83d\\ude00"'


def test_members_without_a_value_are_omitted_and_items_are_null() -> None:
    assert emit({"a": None, "b": [None]}) == b'{"b":[null]}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {"a": [float("-inf")]}])
def test_values_that_no_peer_could_read_are_refused(value: object) -> None:
    with pytest.raises(BodyError):
        emit(value)


@pytest.mark.parametrize("value", [b"bytes", object(), {1.5: 1}, {True: 1}, {None: 1}, {b"k": 1}])
def test_values_without_a_json_form_raise_a_type_error(value: object) -> None:
    with pytest.raises(TypeError, match="no JSON"):
        emit(value)


@given(values)
def test_what_is_written_is_read_back(value: object) -> None:
    assert parse(emit(value)) == value


@given(values)
def test_the_standard_form_is_valid_json(value: object) -> None:
    data = emit(value, standard=True)
    assert data.isascii()
    json.loads(data)
    parse(data)
