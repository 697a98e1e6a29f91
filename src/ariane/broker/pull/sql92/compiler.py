"""Compiler of SQL92 filter expressions: syntax tree to one closure, compiled once and called for each message.

A condition answers True, False or None (unknown); only True matches. A question without an answer (a text where a
number is needed) ends the whole evaluation, as in Apache's broker, and the message does not match either.
"""

import math
import operator
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Any, TypeAlias

from ariane.broker.pull.sql92.parser import (
    And,
    BareProperty,
    Compare,
    Find,
    In,
    IsNull,
    Literal,
    Negate,
    Node,
    Not,
    Operator,
    Or,
    Property,
    Search,
    parse,
)

# --- conversions of text, as Java reads it ---
#
# A property is a text; what it is compared with decides its type. A text that does not convert raises ValueError, and
# the message does not match.

INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1

_INTEGER = re.compile(r"[+-]?\d+")  # any script's digits, as in Java
_DOUBLE = re.compile(
    r"""
      (?P<sign> [+-]? )
      (?: (?P<word>    NaN | Infinity )
        | (?P<decimal> (?: [0-9]+\.?[0-9]* | \.[0-9]+ ) (?: [eE][+-]?[0-9]+ )? ) [fFdD]?
        | (?P<hex>     0[xX] (?: [0-9a-fA-F]+\.? | [0-9a-fA-F]*\.[0-9a-fA-F]+ ) [pP][+-]?[0-9]+ ) [fFdD]? )
    """,
    re.VERBOSE,
)
_JAVA_BLANKS = "".join(map(chr, range(33)))
_BITS = struct.Struct(">q")
_DOUBLE_BITS = struct.Struct(">d")


def to_int(text: str) -> int:
    """As `Integer.valueOf`: a number above 2147483647 does not convert."""
    return _integer(text, INT_MAX)


def to_long(text: str) -> int:
    """As `Long.valueOf`."""
    return _integer(text, _LONG_MAX)


def to_double(text: str) -> float:
    """As `Double.valueOf`, with its blanks, suffixes, words and hexadecimal form."""
    match = _DOUBLE.fullmatch(text.strip(_JAVA_BLANKS))
    if match is None:
        raise ValueError("not a double")
    size = _size(match)
    return -size if match["sign"] == "-" else size


def to_boolean(text: str) -> bool:
    """As `Boolean.valueOf`: everything but `true`, in any case, is false."""
    return text.lower() == "true"


def double_rank(value: float) -> int:
    """An integer that orders doubles as `Double.compareTo` does: -0.0 below 0.0, NaN equal to itself and above all."""
    if value != value:
        return 0x7FF8_0000_0000_0000
    (bits,) = _BITS.unpack(_DOUBLE_BITS.pack(value))
    return bits if bits >= 0 else bits ^ 0x7FFF_FFFF_FFFF_FFFF  # type: ignore[no-any-return]


def _integer(text: str, largest: int) -> int:
    # Java looks at UTF-16 units, among which the digits beyond the basic plane are none.
    if _INTEGER.fullmatch(text) is None or (not text.isascii() and max(text) > "\uffff"):
        raise ValueError("not an integer")
    value = int(text)
    if not -largest - 1 <= value <= largest:
        raise ValueError("out of range")
    return value


def _size(match: re.Match[str]) -> float:
    if match["word"] is not None:
        return math.nan if match["word"] == "NaN" else math.inf
    if match["decimal"] is not None:
        return float(match["decimal"])
    try:
        return float.fromhex(match["hex"])
    except OverflowError:
        return math.inf


# --- comparisons: two operands to one closure ---
#
# Types are known when the expression is compiled (properties are texts), so the conversion to a common type is chosen
# once, and a message costs a lookup, a conversion and a comparison.

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
    response = _never if meeting is None else _converting(test, *meeting)
    return (
        _equal(left.read, right.read, response) if symbol is Operator.EQUAL else _order(left.read, right.read, response)
    )


def _property_with_constant(name: str, convert: Convert, test: Test, constant: Any) -> Truth:
    """What nearly all filters are made of, without a call more than needed."""

    def as_it_is(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else text == constant

    def converted(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else test(convert(text), constant)

    return as_it_is if convert is _as_it_is else converted


def _equal(left: Read, right: Read, response: Test) -> Truth:
    """Two missing values are equal, and a present one differs from a missing one; only a missing left is unknown."""

    def equal(properties: Properties) -> bool | None:
        one, other = left(properties), right(properties)
        if one is None:
            return True if other is None else None
        return other is not None and response(one, other)

    return equal


def _order(left: Read, right: Read, response: Test) -> Truth:
    def ordered(properties: Properties) -> bool | None:
        one = left(properties)
        if one is None:
            return None
        other = right(properties)
        return None if other is None else response(one, other)

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


# --- compilation ---

Predicate: TypeAlias = Callable[[Properties], bool]

# Few expressions are in use at a time, and each pull asks for one. Long ones get few places: a peer that invents
# expressions must not fill the memory.
_SHORT_LENGTH_MAX = 1024
_CACHED_SHORT = 512
_CACHED_LONG = 32


def compile_sql(text: str) -> Predicate:
    """Whether a message with given properties matches, as a function; ExpressionError if `text` is not a filter."""
    return _compiled_short(text) if len(text) <= _SHORT_LENGTH_MAX else _compiled_long(text)


def _compile(text: str) -> Predicate:
    condition = _truth(parse(text))

    def matches(properties: Properties) -> bool:
        try:
            return condition(properties) is True
        except ValueError:  # a property does not convert
            return False

    return matches


_compiled_short = lru_cache(_CACHED_SHORT)(_compile)
_compiled_long = lru_cache(_CACHED_LONG)(_compile)


def _truth(node: Node) -> Truth:
    if isinstance(node, Compare):
        return compare(node.operator, _operand(node.left), _operand(node.right))
    if isinstance(node, And):
        return _all(tuple(map(_truth, node.parts)))
    if isinstance(node, Or):
        return _any(tuple(map(_truth, node.parts)))
    if isinstance(node, Not):
        return _is_null(node.operand.operand, negated=True) if isinstance(node.operand, IsNull) else _not(node.operand)
    if isinstance(node, IsNull):
        return _is_null(node.operand, negated=False)
    if isinstance(node, In):
        return _in(node.name, node.choices, node.negated)
    if isinstance(node, Find):
        return _find(node)
    if isinstance(node, BareProperty):
        return _bare(node.name)
    return _operand(node).read


def _operand(node: Node) -> Operand:
    if isinstance(node, Property):
        name = node.name
        return Operand(Type.TEXT, lambda properties: properties.get(name), name=name)
    if isinstance(node, Literal):
        return _constant(_type_of(node.value), node.value)
    if isinstance(node, Negate):
        return _negated(_operand(node.operand))
    return Operand(Type.BOOLEAN, _truth(node))


def _constant(kind: Type, value: Any) -> Operand:
    return Operand(kind, lambda _: value, constant=value)


def _type_of(value: object) -> Type:
    if isinstance(value, int) and not isinstance(value, bool):
        return Type.INT if value <= INT_MAX else Type.LONG
    kinds = {str: Type.TEXT, float: Type.DOUBLE, bool: Type.BOOLEAN, type(None): Type.NULL}
    return kinds[type(value)]


def _negated(operand: Operand) -> Operand:
    """A number keeps its type, so 2147483648 stays a LONG; anything else is read, for it may fail, and is then null."""
    if operand.type in (Type.INT, Type.LONG, Type.DOUBLE):
        return _constant(operand.type, -operand.constant)
    read = operand.read

    def nothing(properties: Properties) -> None:
        read(properties)

    return Operand(Type.NULL, nothing)


# --- conditions -------------------------------------------------------------------------------------------------------


def _all(parts: Iterable[Truth]) -> Truth:
    def every(properties: Properties) -> bool | None:
        response: bool | None = True
        for part in parts:
            truth = part(properties)
            if truth is False:
                return False
            if truth is None:
                response = None
        return response

    return every


def _any(parts: Iterable[Truth]) -> Truth:
    def some(properties: Properties) -> bool | None:
        response: bool | None = False
        for part in parts:
            truth = part(properties)
            if truth:
                return True
            if truth is None:
                response = None
        return response

    return some


def _not(node: Node) -> Truth:
    condition = _truth(node)

    def opposite(properties: Properties) -> bool | None:
        truth = condition(properties)
        return None if truth is None else not truth

    return opposite


def _is_null(node: Node, *, negated: bool) -> Truth:
    read = _operand(node).read
    return lambda properties: (read(properties) is None) is not negated


def _bare(name: str) -> Truth:
    return lambda properties: None if properties.get(name) is None else False


def _in(name: str, choices: Iterable[str], negated: bool) -> Truth:
    allowed = frozenset(choices)

    def among(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else (text in allowed) is not negated

    return among


_FINDERS: dict[Search, Callable[[str, str], bool]] = {
    Search.CONTAINS: str.__contains__,
    Search.STARTS_WITH: str.startswith,
    Search.ENDS_WITH: str.endswith,
}


def _find(node: Find) -> Truth:
    """Never unknown: a missing property neither contains a text nor lacks it."""
    if not node.text:
        return lambda _: False
    read, find, text, negated = _operand(node.operand).read, _FINDERS[node.search], node.text, node.negated

    def found(properties: Properties) -> bool:
        value = read(properties)
        return isinstance(value, str) and find(value, text) is not negated

    return found
