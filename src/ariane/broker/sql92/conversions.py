"""Texts as Java reads them. A property is a text; what it is compared with decides what it is read as.

A text that does not convert raises ValueError: the question has no answer then, and the message does not match.
"""

import math
import re
import struct

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
