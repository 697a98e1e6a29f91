"""Parser of TOML settings files into a flat list of entries, each with its line number."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ariane.errors import SettingsError

_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")
_ASSIGNMENT = re.compile(r"\s*([\w.\-\"' ]+?)\s*=")


@dataclass(frozen=True, slots=True)
class TomlEntry:
    """A value and its dotted name. An empty table is an entry too, so that a misspelt one is reported."""

    line: int | None
    name: str
    value: object


def read_toml(text: str) -> Iterator[TomlEntry]:
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingsError(f"this is not TOML: {error}") from error
    lines = _lines_of_names(text)
    for name, value in _leaves(document, ""):
        yield TomlEntry(_line_of(name, lines), name, value)


def _leaves(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _lines_of_names(text: str) -> dict[str, int]:
    """The likely line of each name. tomllib does not report lines, and a wrong one only makes an error less precise."""
    table, lines = "", {}
    for number, line in enumerate(text.split("\n"), 1):
        if header := _HEADER.match(line):
            table = _plain(header[1]) + "."
            lines[table[:-1]] = number
        elif assignment := _ASSIGNMENT.match(line):
            lines[table + _plain(assignment[1])] = number
    return lines


def _plain(dotted: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in dotted.split("."))


def _line_of(name: str, lines: Mapping[str, int]) -> int | None:
    """The line of `name`, or of the inline table that holds it."""
    while name not in lines:
        name, dot, _ = name.rpartition(".")
        if not dot:
            return lines.get(name)
    return lines[name]
