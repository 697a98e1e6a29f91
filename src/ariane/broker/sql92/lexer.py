"""Text to tokens. Positions count from 1: they are shown to people."""

import re
from enum import StrEnum
from typing import NamedTuple

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
