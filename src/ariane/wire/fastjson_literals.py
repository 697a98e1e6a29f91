"""The scalars of a fastjson text: what stands between two quotes, digits, and bare words.

Each function raises ValueError with the reason; the parser adds where.
"""

import math
import re
from collections.abc import Callable
from typing import Final, TypeAlias

Scalar: TypeAlias = str | int | float | bool | None

NUMBER_LENGTH_MAX: Final = 128  # an int64 has 20 characters; turning digits into a number is quadratic in their count
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPED: Final = dict(zip("\"\\/'btnvfFr01234567", "\"\\/'\b\t\n\v\f\f\r\0\1\2\3\4\5\6\7", strict=True))
_SURROGATE = re.compile("[\ud800-\udfff]")
_WORDS: Final = {"true": True, "false": False, "null": None}


def string_of(raw: str) -> str:
    """`raw` with its escapes resolved, and always fit for UTF-8.

    Half of a surrogate pair becomes U+FFFD, much as Java's encoder would replace it: refusing a whole heartbeat for one
    odd character helps nobody, and keeping the half would fail later, wherever the text is first written.
    """
    if "\\" not in raw:
        return raw
    text = _ESCAPE.sub(_unescaped, raw)
    if _SURROGATE.search(text):
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2]
    if code:
        return chr(int(code, 16))
    if escape[3] not in _ESCAPED:
        raise ValueError(f"unknown escape \\{escape[3]}")
    return _ESCAPED[escape[3]]


def number_of(raw: str) -> int | float:
    if len(raw) > NUMBER_LENGTH_MAX:
        raise ValueError(f"a number of {len(raw)} characters, at most {NUMBER_LENGTH_MAX} are read")
    try:
        return int(raw)
    except ValueError:
        number = float(raw)
    if math.isinf(number):
        raise ValueError(f"the number {raw} is out of range")
    return number


def word_of(raw: str) -> bool | None:
    if raw not in _WORDS:
        raise ValueError(f"the bare word {raw[:40]!r} is no value")
    return _WORDS[raw]


def number_key_of(raw: str) -> str | int:
    """A number that is a key: an integer stays one, a fraction is kept as text."""
    if not raw.lstrip("-").isdecimal():
        return raw
    number = int(number_of(raw))
    if not INT64_MIN <= number <= INT64_MAX:
        raise ValueError(f"the key {raw} does not fit in 64 bits")
    return number


VALUES: Final[dict[str, Callable[[str], Scalar]]] = {
    "double": string_of,
    "single": string_of,
    "number": number_of,
    "word": word_of,
}
"""What a token means where a value is expected, by its kind."""

KEYS: Final[dict[str, Callable[[str], str | int]]] = {
    "double": string_of,
    "single": string_of,
    "number": number_key_of,
    "word": str,
}
"""What a token means where a key is expected."""
