"""Parser of SQL92 filter expressions: text to tokens to a syntax tree, by the grammar of Apache's SelectorParser.

    or          = and { OR and }
    and         = equality { AND equality }
    equality    = comparison { ( = | <> | != ) comparison | IS [NOT] NULL }
    comparison  = unary { ( > | >= | < | <= ) unary
                        | [NOT] ( CONTAINS | STARTSWITH | ENDSWITH ) text
                        | [NOT] BETWEEN unary AND unary
                        | [NOT] IN ( text { , text } ) }
    unary       = ( + | - | NOT ) unary | primary
    primary     = text | number | TRUE | FALSE | NULL | name | ( or )

NOT binds tighter than a comparison, as in Apache's grammar: `NOT a = 1` asks whether `NOT a` equals 1.

Positions count from 1: they are shown to people.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from ariane.errors import ExpressionError

EXPRESSION_LENGTH_MAX = 16 * 1024  # an IN list of some 500 ids; the whole text travels in each pull that carries it

KEYWORDS = frozenset(
    {
        *("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"),
        *("CONTAINS", "STARTSWITH", "ENDSWITH"),
    }
)


class Kind(StrEnum):
    """What a token is; keywords and symbols are their own kind."""

    NAME = "a property name"
    INTEGER = "a number"
    FLOAT = "a number with a fraction"
    TEXT = "a 'text'"
    END = "the end of the expression"


class Token(NamedTuple):
    kind: str
    image: str
    position: int

    def __str__(self) -> str:
        return str(self.kind) if self.kind == Kind.END else repr(self.image)


# "--" without a line end is a comment here too; a digit is an ASCII digit. A text that is not closed must not be cut at
# an earlier quote, hence the possessive "*+".
_TOKEN = re.compile(
    r"""
      (?P<SKIP>    [ \t\n\r\f]+ | --[^\n\r]* | /\*(?s:.*?)\*/ )
    | (?P<FLOAT>   [0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)? | \.[0-9]+(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ )
    | (?P<INTEGER> (?:0|[1-9][0-9]*)[lL]? )
    | (?P<TEXT>    '(?:''|[^'])*+' )
    | (?P<NAME>    [A-Za-z_$][A-Za-z0-9_$]* )
    | (?P<SYMBOL>  <> | <= | >= | != | [=<>(),+-] )
    """,
    re.VERBOSE,
)

_HINTS = {
    "'": "a text that is not closed: a quote inside a text is written twice",
    '"': "a double quote: texts stand in single quotes",
    "/*": "a comment that is not closed",
    "&": "'&': write AND",
    "|": "'|': write OR",
    "!": "'!': write NOT or <>",
}


def tokens(text: str) -> list[Token]:
    """All tokens of `text`, the last of kind END; ExpressionError at what is none."""
    if len(text) > EXPRESSION_LENGTH_MAX:
        reason = f"the expression has {len(text)} characters, at most {EXPRESSION_LENGTH_MAX} are allowed: too long"
        raise ExpressionError(reason, EXPRESSION_LENGTH_MAX + 1)
    found = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ExpressionError(f"unexpected {_describe(text, position)}", position + 1)
        if match.lastgroup != "SKIP":
            found.append(_token(match))
        position = match.end()
    found.append(Token(Kind.END, "", len(text) + 1))
    return found


def _token(match: re.Match[str]) -> Token:
    image, position = match.group(), match.start() + 1
    if match.lastgroup == "SYMBOL":
        return Token(image, image, position)
    word = image.upper()
    if match.lastgroup == "NAME" and word in KEYWORDS:
        return Token(word, image, position)
    return Token(Kind[str(match.lastgroup)], image, position)


def _describe(text: str, position: int) -> str:
    return _HINTS.get(text[position : position + 2]) or _HINTS.get(text[position]) or f"character {text[position]!r}"


# --- syntax tree: BETWEEN and <> have no node of their own, as in Apache's ---


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


# --- type rules, identical to Apache's, so that a filter is portable between brokers ---


def as_condition(node: Node, position: int) -> Node:
    """`node` where TRUE or FALSE is expected."""
    if isinstance(node, Property):
        return BareProperty(node.name)
    if isinstance(node, Condition) or (isinstance(node, Literal) and isinstance(node.value, bool | None)):
        return node
    raise ExpressionError("a condition expected, such as a comparison, found a value", position)


def check_equal(left: Node, left_position: int, right: Node, right_position: int) -> None:
    for node, position in ((left, left_position), (right, right_position)):
        if isinstance(node, Literal) and node.value is None:
            raise ExpressionError("nothing equals NULL: write IS NULL or IS NOT NULL", position)
    if _is_boolean(left) and isinstance(right, Literal) and not _is_boolean(right):
        raise ExpressionError("TRUE or FALSE cannot be compared with a number or a text", left_position)


def _is_boolean(node: Node) -> bool:
    return isinstance(node, Literal) and isinstance(node.value, bool)


def check_ordered(node: Node, position: int) -> None:
    """Only numbers have an order; a property may hold one."""
    if isinstance(node, Condition):
        raise ExpressionError("a condition has no order: compare numbers and properties", position)
    if isinstance(node, Literal) and (isinstance(node.value, bool | str) or node.value is None):
        raise ExpressionError("only numbers have an order: a number without quotes or a property expected", position)


def check_between(low: Node, high: Node, position: int) -> None:
    if isinstance(low, Literal) and isinstance(high, Literal):
        first, last = low.value, high.value
        if isinstance(first, int | float) and isinstance(last, int | float) and _is_below(last, first):
            raise ExpressionError(f"nothing is between {first} and {last}: the lower bound comes first", position)


def _is_below(one: float, other: float) -> bool:
    """Java compares an integer with a fraction as two doubles."""
    if isinstance(one, float) or isinstance(other, float):
        return float(one) < float(other)
    return one < other


def check_property(node: Node, position: int) -> str:
    if not isinstance(node, Property):
        raise ExpressionError("a property name expected before IN", position)
    return node.name


# --- parser ---


NESTING_MAX = 64
"""Parentheses and signs inside one another. Each takes six calls here and up to five when a message is matched."""
CHAINED_MAX = 64
"""Comparisons of comparisons (`a = 1 = 2`), in the whole expression: each is one level deeper in the tree."""

_LONG_MAX = 2**63 - 1
_ORDERS = frozenset({">", ">=", "<", "<="})
_SEARCHES = frozenset(Search)
_NEGATABLE = frozenset({"BETWEEN", "IN", *_SEARCHES})
_WORDS: dict[str, bool | None] = {"TRUE": True, "FALSE": False, "NULL": None}


def parse(text: str) -> Node:
    """The condition that `text` is; ExpressionError, with the position and what was expected, when it is none."""
    return _Parser(tokens(text)).whole()


class _Parser:
    def __init__(self, found: list[Token]) -> None:
        self._tokens = found
        self._index = 0
        self._nesting = 0
        self._chained = 0

    # --- conditions ---------------------------------------------------------------------------------------------------

    def whole(self) -> Node:
        start = self._position
        node = self._or()
        if self._kind != Kind.END:
            raise self._unexpected("an operator, AND, OR or the end")
        return as_condition(node, start)

    def _or(self) -> Node:
        return self._joined("OR", self._and, Or)

    def _and(self) -> Node:
        return self._joined("AND", self._equality, And)

    def _joined(self, word: str, part: Callable[[], Node], join: Callable[[tuple[Node, ...]], Node]) -> Node:
        """One part as it is, or many in one node: a tree as deep as `a OR b OR ...` is long would end the stack."""
        start = self._position
        first = part()
        if self._kind != word:
            return first
        parts = [as_condition(first, start)]
        while self._take(word):
            start = self._position
            parts.append(as_condition(part(), start))
        return join(tuple(parts))

    def _equality(self) -> Node:
        start = self._position
        left = self._comparison()
        links = 0
        while self._kind in ("=", "<>", "!=", "IS"):
            links = self._link(links)
            operator = self._next().kind
            left = self._null_check(left) if operator == "IS" else self._equal(left, start, operator)
        return left

    def _null_check(self, left: Node) -> Node:
        negated = self._take("NOT")
        self._expect("NULL", "NULL" if negated else "NULL or NOT NULL")
        return Not(IsNull(left)) if negated else IsNull(left)

    def _equal(self, left: Node, left_position: int, operator: str) -> Node:
        position = self._position
        right = self._comparison()
        check_equal(left, left_position, right, position)
        equal = Compare(Operator.EQUAL, left, right)
        return equal if operator == "=" else Not(equal)

    # --- comparisons --------------------------------------------------------------------------------------------------

    def _comparison(self) -> Node:
        start = self._position
        left = self._unary()
        links = 0
        while self._kind in _ORDERS or self._kind in _NEGATABLE or self._kind == "NOT":
            links = self._link(links)
            left = self._compared(left, start)
        return left

    def _compared(self, left: Node, start: int) -> Node:
        if self._kind in _ORDERS:
            return self._ordered(left, start)
        negated = self._take("NOT")
        if self._take("BETWEEN"):
            return self._between(left, start, negated)
        if self._take("IN"):
            return In(check_property(left, start), self._choices(), negated)
        if self._kind in _SEARCHES:
            return Find(Search(self._next().kind), left, self._text(), negated)
        raise self._unexpected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH after NOT")

    def _ordered(self, left: Node, start: int) -> Node:
        operator = Operator(self._next().kind)
        position = self._position
        right = self._unary()
        check_ordered(left, start)
        check_ordered(right, position)
        return Compare(operator, left, right)

    def _between(self, value: Node, start: int, negated: bool) -> Node:
        low_position = self._position
        low = self._unary()
        self._expect("AND", "AND and the upper bound of BETWEEN")
        high_position = self._position
        high = self._unary()
        for node, position in ((value, start), (low, low_position), (high, high_position)):
            check_ordered(node, position)
        if negated:
            return Or((Compare(Operator.LESS, value, low), Compare(Operator.GREATER, value, high)))
        check_between(low, high, low_position)
        return And((Compare(Operator.GREATER_OR_EQUAL, value, low), Compare(Operator.LESS_OR_EQUAL, value, high)))

    def _choices(self) -> tuple[str, ...]:
        self._expect("(", "'(' after IN")
        choices = [self._text()]
        while self._take(","):
            choices.append(self._text())
        self._expect(")", "',' or ')'")
        return tuple(choices)

    # --- operands -----------------------------------------------------------------------------------------------------

    def _unary(self) -> Node:
        if self._kind not in ("+", "-", "NOT"):
            return self._primary()
        self._enter()
        sign = self._next().kind
        position = self._position
        operand = self._unary()
        self._nesting -= 1
        if sign == "NOT":
            return Not(as_condition(operand, position))
        return Negate(operand) if sign == "-" else operand

    def _primary(self) -> Node:
        kind = self._kind
        if kind == "(":
            return self._in_parentheses()
        if kind == Kind.NAME:
            return Property(self._next().image)
        if kind == Kind.TEXT:
            return Literal(self._text())
        if kind == Kind.INTEGER:
            return Literal(_integer(self._next()))
        if kind == Kind.FLOAT:
            return Literal(_float(self._next()))
        if kind in _WORDS:
            return Literal(_WORDS[self._next().kind])
        raise self._unexpected("a property name, a value, NOT or '('")

    def _in_parentheses(self) -> Node:
        self._enter()
        self._next()
        node = self._or()
        self._expect(")", "')'")
        self._nesting -= 1
        return node

    def _text(self) -> str:
        token = self._expect(Kind.TEXT, "a text in single quotes")
        return token.image[1:-1].replace("''", "'")

    # --- tokens and limits --------------------------------------------------------------------------------------------

    @property
    def _kind(self) -> str:
        return self._tokens[self._index].kind

    @property
    def _position(self) -> int:
        return self._tokens[self._index].position

    def _next(self) -> Token:
        token = self._tokens[self._index]
        self._index += 1
        return token

    def _take(self, kind: str) -> bool:
        if self._kind != kind:
            return False
        self._index += 1
        return True

    def _expect(self, kind: str, wanted: str) -> Token:
        if self._kind != kind:
            raise self._unexpected(wanted)
        return self._next()

    def _unexpected(self, wanted: str) -> ExpressionError:
        token = self._tokens[self._index]
        return ExpressionError(f"{wanted} expected, found {token}", token.position)

    def _enter(self) -> None:
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            raise ExpressionError(f"more than {NESTING_MAX} parentheses and signs inside one another", self._position)

    def _link(self, links: int) -> int:
        """One more comparison in a row; only those after the first make the tree deeper than its text looks."""
        self._chained += links > 0
        if self._chained > CHAINED_MAX:
            raise ExpressionError(f"more than {CHAINED_MAX} comparisons of comparisons", self._position)
        return links + 1


def _integer(token: Token) -> int:
    digits = token.image.rstrip("lL")
    if len(digits) > len(str(_LONG_MAX)) or int(digits) > _LONG_MAX:
        raise ExpressionError(f"the number {digits[:40]} is above {_LONG_MAX}, the largest integer", token.position)
    return int(digits)


def _float(token: Token) -> float:
    value = float(token.image)
    if value == float("inf"):
        raise ExpressionError(f"the number {token.image[:40]} is above the largest double", token.position)
    if value == 0 and any(digit in "123456789" for digit in token.image.lower().partition("e")[0]):
        raise ExpressionError(f"the number {token.image[:40]} is below the smallest double", token.position)
    return value
