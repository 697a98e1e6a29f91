r"""Parser of Java's properties format, the format of RocketMQ's `namesrv.conf` and `broker.conf`.

    # a comment, as is a line that starts with !
    listenPort = 9876            key and value part at the first "=", ":" or white space that no backslash protects
    bindAddress : 127.0.0.1
    kvConfigPath=/var/lib/\      a line that ends with an odd number of backslashes goes on in the next one,
                 kv.json         whose leading white space is dropped
    note=caf\u00e9               \t \n \r \f \uXXXX; any other escaped character stands for itself

Unlike Java, the file is read as UTF-8, not Latin-1, and trailing white space of a value is removed, because RocketMQ
itself trims what it reads.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ariane.errors import SettingsError

_BLANK = " \t\f"
_NATURAL_LINE_END = re.compile("\r\n|\r|\n")  # not splitlines(): Java has no other line ends
_KEY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True)
class PropertiesEntry:
    line: int
    key: str
    value: str


def read_properties(text: str) -> Iterator[PropertiesEntry]:
    """Every entry of a file, in order. If a key occurs twice, the last one counts. SettingsError names the line."""
    for line, logical in _logical_lines(text):
        if not logical:
            continue
        match = _KEY.match(logical)
        assert match is not None, "the pattern matches the empty text"
        key, value = match[1], logical[match.end() :]
        yield PropertiesEntry(line, _unescape(key, line), _unescape(value, line).strip(_BLANK + "\r\n"))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined, without comments, each with the number of its first line; may be empty."""
    parts: list[str] = []
    start = 0
    for number, natural in enumerate(_NATURAL_LINE_END.split(text), 1):
        stripped = natural.lstrip(_BLANK)
        if not any(parts):
            if not stripped or stripped[0] in "#!":
                continue
            start = number
        goes_on = _goes_on(stripped)
        parts.append(stripped[:-1] if goes_on else stripped)
        if not goes_on:
            yield start, "".join(parts)
            parts = []
    yield start, "".join(parts)


def _goes_on(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str, line: int) -> str:
    plain = _ESCAPE.sub(lambda match: _escaped(match[1], line), text)
    try:
        # Java writes a character beyond U+FFFF as two escapes; this joins such a pair.
        return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise SettingsError(
            f"line {line}: a \\uXXXX escape is half of a surrogate pair, the other half is missing"
        ) from None


def _escaped(after_backslash: str, line: int) -> str:
    if len(after_backslash) == 5:
        return chr(int(after_backslash[1:], 16))
    if after_backslash == "u":
        raise SettingsError(f"line {line}: \\u needs four hexadecimal digits; write \\\\ for a backslash")
    return _LETTERS.get(after_backslash, after_backslash)
