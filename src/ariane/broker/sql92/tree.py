"""What an expression can be. BETWEEN and <> have no node of their own: they are what Apache makes of them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Operator(StrEnum):
    EQUAL = "="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


class Search(StrEnum):
    CONTAINS = "CONTAINS"
    STARTS_WITH = "STARTSWITH"
    ENDS_WITH = "ENDSWITH"


@dataclass(frozen=True, slots=True)
class Literal:
    value: int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class Property:
    """A property's text, or null when the message has none of that name."""

    name: str


@dataclass(frozen=True, slots=True)
class Negate:
    """`-x`: null unless x is a number, and properties are texts."""

    operand: "Node"


@dataclass(frozen=True, slots=True)
class BareProperty:
    """A property where a condition is expected: FALSE whatever its text, unknown when it is missing."""

    name: str


@dataclass(frozen=True, slots=True)
class Not:
    operand: "Node"


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Compare:
    operator: Operator
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: "Node"


@dataclass(frozen=True, slots=True)
class In:
    name: str
    choices: tuple[str, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Find:
    """`x CONTAINS 'text'` and its like. An empty text is found nowhere, and not missing either: both are FALSE."""

    search: Search
    operand: "Node"
    text: str
    negated: bool


Condition: TypeAlias = BareProperty | Not | And | Or | Compare | IsNull | In | Find
Node: TypeAlias = Literal | Property | Negate | Condition
