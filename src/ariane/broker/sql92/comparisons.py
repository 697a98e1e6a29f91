"""Two operands to one closure that compares them.

What an operand is, is known when the expression is compiled: properties are texts, everything else says its type. So
how both are brought to one type is decided once, and a message costs a lookup, a conversion and a comparison.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, TypeAlias

from ariane.broker.sql92.conversions import double_rank, to_boolean, to_double, to_int, to_long
from ariane.broker.sql92.tree import Operator

Properties: TypeAlias = Mapping[str, str]
Read: TypeAlias = Callable[[Properties], Any]
Truth: TypeAlias = Callable[[Properties], bool | None]
Convert: TypeAlias = Callable[[Any], Any]
Test: TypeAlias = Callable[[Any, Any], bool]


class Type(Enum):
    """Java's types; a LONG is an integer that does not fit 32 bits."""

    TEXT = auto()
    INT = auto()
    LONG = auto()
    DOUBLE = auto()
    BOOLEAN = auto()
    NULL = auto()


@dataclass(frozen=True, slots=True)
class Operand:
    """A value: how to read it from a message's properties, or what it always is, or which property it is."""

    type: Type
    read: Read
    constant: Any = None
    name: str | None = None


_TESTS: dict[Operator, Test] = {
    Operator.EQUAL: operator.eq,
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
}
_INTEGERS = (Type.INT, Type.LONG)
_FROM_TEXT: dict[Type, Convert] = {Type.INT: to_int, Type.LONG: to_long, Type.BOOLEAN: to_boolean}


def compare(symbol: Operator, left: Operand, right: Operand) -> Truth:
    meeting = _meeting(symbol, left.type, right.type)
    test = _TESTS[symbol]
    if left.name is not None and right.constant is not None and meeting is not None:
        return _property_with_constant(left.name, meeting[0], test, meeting[1](right.constant))
    answer = _never if meeting is None else _converting(test, *meeting)
    return _equal(left.read, right.read, answer) if symbol is Operator.EQUAL else _order(left.read, right.read, answer)


def _property_with_constant(name: str, convert: Convert, test: Test, constant: Any) -> Truth:
    """What nearly all filters are made of, without a call more than needed."""

    def as_it_is(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else text == constant

    def converted(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else test(convert(text), constant)

    return as_it_is if convert is _as_it_is else converted


def _equal(left: Read, right: Read, answer: Test) -> Truth:
    """Two missing values are equal, and a present one differs from a missing one; only a missing left is unknown."""

    def equal(properties: Properties) -> bool | None:
        one, other = left(properties), right(properties)
        if one is None:
            return True if other is None else None
        return other is not None and answer(one, other)

    return equal


def _order(left: Read, right: Read, answer: Test) -> Truth:
    def ordered(properties: Properties) -> bool | None:
        one = left(properties)
        if one is None:
            return None
        other = right(properties)
        return None if other is None else answer(one, other)

    return ordered


# --- how two types meet -----------------------------------------------------------------------------------------------


def _meeting(symbol: Operator, left: Type, right: Type) -> tuple[Convert, Convert] | None:
    """How to bring both to one type; None when they never equal each other."""
    if left is Type.TEXT and right is Type.TEXT:
        return (_as_it_is, _as_it_is) if symbol is Operator.EQUAL else (_text_rank, _text_rank)
    if left is Type.BOOLEAN and right is Type.TEXT:
        return _no_answer, _as_it_is
    if Type.DOUBLE in (left, right):
        ranks = _rank_of(left), _rank_of(right)
        return None if ranks[0] is None or ranks[1] is None else (ranks[0], ranks[1])
    if left is right or (left in _INTEGERS and right in _INTEGERS):
        return _as_it_is, _as_it_is
    if left is Type.TEXT and right in _FROM_TEXT:
        return _FROM_TEXT[right], _as_it_is
    if right is Type.TEXT and left in _INTEGERS:
        return _as_it_is, _FROM_TEXT[left]
    return None


def _rank_of(kind: Type) -> Convert | None:
    if kind is Type.TEXT:
        return _text_rank
    return _number_rank if kind in (*_INTEGERS, Type.DOUBLE) else None


def _converting(test: Test, convert_left: Convert, convert_right: Convert) -> Test:
    return lambda one, other: test(convert_left(one), convert_right(other))


def _never(one: Any, other: Any) -> bool:
    return False


def _as_it_is(value: Any) -> Any:
    return value


def _no_answer(value: Any) -> Any:
    """Apache reads TRUE on the left as a text here, which fails: such a message never matches, `NOT` or not."""
    raise ValueError("a condition on the left cannot be compared with a text")


def _text_rank(text: str) -> int:
    return double_rank(to_double(text))


def _number_rank(number: float) -> int:
    return double_rank(float(number))
