"""The views that a SQL text reads, found without Spark: what stands behind FROM and JOIN and is no subquery.

Only plain names are found. `db.table`, parquet.`path` and functions such as range(10) are Spark's own affair. So is
SQL that is wrong: Spark says so, with its line, before anything runs.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)
      | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*")
      | (?P<quoted>`(?:[^`]|``)*`)
      | (?P<word>[^\W\d]\w*)
      | (?P<number>\d[\w.]*)
      | (?P<mark>[(),.;])
      | (?P<space>\s+)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_ENDS_FROM = {"where", "group", "having", "order", "limit", "union", "intersect", "except", "minus", "window", "sort"}
_ENDS_FROM |= {"select", "qualify", "cluster", "distribute", "offset"}
_NO_VIEW = {"select", "lateral", "values"}


class Reference(NamedTuple):
    view: str
    position: int


class _Token(NamedTuple):
    kind: str
    text: str
    position: int

    @property
    def lower(self) -> str:
        return self.text.lower() if self.kind == "word" else self.text


@dataclass(slots=True)
class _Level:
    """What is known inside one pair of brackets."""

    is_query: bool = False
    is_in_from: bool = False
    expects_view: bool = False


def views_read(sql: str) -> list[Reference]:
    tokens = list(_tokens(sql))
    defined = _defined_by_with(tokens)
    return [one for one in _references(tokens) if one.view.lower() not in defined]


def _tokens(sql: str) -> Iterator[_Token]:
    for found in _TOKEN.finditer(sql):
        kind = found.lastgroup or "other"
        if kind in ("comment", "space"):
            continue
        text = found.group()
        if kind == "quoted":
            yield _Token("word", text[1:-1].replace("``", "`"), found.start())
        else:
            yield _Token(kind, text, found.start())


def _defined_by_with(tokens: list[_Token]) -> set[str]:
    """Names of common table expressions: NAME [(columns)] AS ( behind WITH or a comma. One too many does no harm."""
    if not any(token.lower == "with" for token in tokens):
        return set()
    names = set()
    for at in range(len(tokens) - 2):
        is_plain = tokens[at + 1].lower == "as" and tokens[at + 2].text == "("
        has_columns = tokens[at + 1].text == "(" and _closes_before_as(tokens, at + 1)
        if tokens[at].kind == "word" and (is_plain or has_columns):
            names.add(tokens[at].lower)
    return names


def _closes_before_as(tokens: list[_Token], opening: int) -> bool:
    for at in range(opening, len(tokens) - 2):
        if tokens[at].text == ")":
            return tokens[at + 1].lower == "as" and tokens[at + 2].text == "("
    return False


def _references(tokens: list[_Token]) -> Iterator[Reference]:
    levels = [_Level(is_query=True)]
    for at, token in enumerate(tokens):
        level = levels[-1]
        if token.text == "(" and token.kind == "mark":
            # In FROM (a JOIN b) brackets go on with the list of tables.
            levels.append(_Level(is_in_from=level.expects_view, expects_view=level.expects_view))
            level.expects_view = False
        elif token.text == ")" and token.kind == "mark":
            if len(levels) > 1:
                levels.pop()
        elif token.text == "," and token.kind == "mark":
            level.expects_view = level.is_in_from
        elif token.kind == "word":
            yield from _word(level, tokens, at)
        else:
            level.expects_view = False


def _word(level: _Level, tokens: list[_Token], at: int) -> Iterator[Reference]:
    word = tokens[at].lower
    if level.expects_view:
        level.expects_view = word == "lateral"
        if word == "select":
            level.is_query, level.is_in_from = True, False
        elif word not in _NO_VIEW and not _is_more_than_a_name(tokens, at):
            yield Reference(tokens[at].text, tokens[at].position)
    elif word == "select":
        level.is_query, level.is_in_from = True, False
    elif word == "from" and level.is_query and not _is_distinct_from(tokens, at):
        level.is_in_from = level.expects_view = True
    elif word == "join" and level.is_in_from:
        level.expects_view = True
    elif word in _ENDS_FROM or word in ("on", "using"):
        level.is_in_from = level.is_in_from and word in ("on", "using")


def _is_more_than_a_name(tokens: list[_Token], at: int) -> bool:
    """A function, or a name of several parts."""
    following = tokens[at + 1].text if at + 1 < len(tokens) else ""
    return following in ("(", ".")


def _is_distinct_from(tokens: list[_Token], at: int) -> bool:
    return at >= 2 and tokens[at - 1].lower == "distinct" and tokens[at - 2].lower in ("is", "not")
