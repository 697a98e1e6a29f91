"""Tree to closure: compiled once, called for each message.

A condition answers True, False or None (unknown); only True matches. A question without an answer (a text where a
number is needed) ends the whole evaluation, as in Apache's broker, and the message does not match either.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, TypeAlias

from ariane.broker.sql92.comparisons import Operand, Properties, Truth, Type, compare
from ariane.broker.sql92.conversions import INT_MAX
from ariane.broker.sql92.parser import parse
from ariane.broker.sql92.tree import (
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
    Or,
    Property,
    Search,
)

Predicate: TypeAlias = Callable[[Properties], bool]

# Few expressions are in use at a time, and each pull asks for one. Long ones get few places: a peer that invents
# expressions must not fill the memory.
_SHORT_LENGTH_MAX = 1024
_CACHED_SHORT = 512
_CACHED_LONG = 32


def compile_sql(text: str) -> Predicate:
    """What tells whether a message with given properties matches; ExpressionError when `text` is not a filter."""
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
        answer: bool | None = True
        for part in parts:
            truth = part(properties)
            if truth is False:
                return False
            if truth is None:
                answer = None
        return answer

    return every


def _any(parts: Iterable[Truth]) -> Truth:
    def some(properties: Properties) -> bool | None:
        answer: bool | None = False
        for part in parts:
            truth = part(properties)
            if truth:
                return True
            if truth is None:
                answer = None
        return answer

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
