"""Pipeline files as YAML nodes with line numbers: typed access to values, parameters, and a list of problems.

YAML tags are never evaluated: a file can only contain texts, lists and mappings. All problems of a file are collected
and reported together, each with its line.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import yaml

from ariane.errors import SettingsError

# --- problems ---


@dataclass(slots=True)
class Problems:
    file: str
    _rows: list[tuple[int, str]] = field(default_factory=list)

    def add(self, line: int, what: str) -> None:
        if (line, what) not in self._rows:
            self._rows.append((line, what))

    def __len__(self) -> int:
        return len(self._rows)

    def raise_if_any(self) -> None:
        """SettingsError with a line for each problem, in the order of the file."""
        lines = [f"{self.file}:{line}: {what}" for line, what in sorted(self._rows)]
        if len(lines) == 1:
            raise SettingsError(lines[0])
        if lines:
            raise SettingsError("\n  ".join([f"{len(lines)} problems in the pipeline", *lines]))


def nearest(word: str, known: Iterable[str]) -> str:
    """The hint for an unknown name: the most similar one, or all."""
    names = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {names[close[0]]}?"
    return f"there are {', '.join(names.values())}" if names else "there is none"


# --- YAML nodes ---

FILE_BYTES_MAX = 1024 * 1024
_NULL = "tag:yaml.org,2002:null"
_LITERAL = "|"

Node = yaml.Node
Scalar = yaml.ScalarNode
Fields = dict[str, Node]


def read_yaml(path: Path, shown_as: str) -> Node:
    """SettingsError when the file does not exist or is not YAML."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{shown_as} cannot be read: {error.strerror or error}") from None
    if len(data) > FILE_BYTES_MAX:
        raise SettingsError(f"{shown_as} has {len(data):,} bytes: a pipeline file may have {FILE_BYTES_MAX:,} at most")
    try:
        node: Node | None = yaml.compose(data.decode(), Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        raise SettingsError(f"{shown_as} is not UTF-8 text (byte {error.start}): save it as UTF-8") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        raise SettingsError(f"{shown_as}:{line}: this is not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise SettingsError(f"{shown_as}:1: this is not YAML: {error}") from None
    if node is None:
        raise SettingsError(f"{shown_as}:1: the file is empty: a pipeline needs at least `pipeline: NAME`")
    return node


def line_of(node: Node, position: int = 0) -> int:
    """The line of a node, or of a character of its text; the text of a literal block (`|`) begins on the next line."""
    line = int(node.start_mark.line) + 1
    if isinstance(node, Scalar) and node.style == _LITERAL:
        line += 1 + node.value.count("\n", 0, position)
    return line


def is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.tag == _NULL


def fields_of(node: Node, what: str, problems: Problems, known: tuple[str, ...] | None = None) -> Fields:
    """The members of a mapping. With `known`, any other key is a problem; a duplicate key always is."""
    if is_null(node):
        return {}
    if not isinstance(node, yaml.MappingNode):
        problems.add(
            line_of(node), f"{what} must be a mapping, `name: value` on lines of its own; this is {kind_of(node)}"
        )
        return {}
    fields: Fields = {}
    for key, value in node.value:
        if not isinstance(key, Scalar):
            problems.add(line_of(key), f"a key in {what} must be a text; this is {kind_of(key)}")
        elif key.value in fields:
            problems.add(line_of(key), f"{what} has the key {key.value} twice: remove one")
        elif known is not None and key.value not in known:
            problems.add(line_of(key), f"{what} has no key {key.value[:60]}: {nearest(key.value, known)}")
        else:
            fields[key.value] = value
    return fields


def kind_of(node: Node) -> str:
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    return "nothing" if is_null(node) else f"the text {node.value[:40]!r}"


# --- parameters: declared in the file with a type and a default, set with --set, used as ${NAME} in any value ---

TYPES = ("string", "int", "float", "bool", "duration", "timestamp")
NAMESRV = "namesrv"
"""The built-in parameter: the nameservers of the command line."""
_USE = re.compile(r"\$\$\{|\$\{([^}]*)\}")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_EXAMPLES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "duration": "a time such as 500ms, 30s, 5m or 1h",
    "timestamp": "milliseconds since 1970 or a time such as 2026-01-31T08:00:00Z",
}


class ParameterError(Exception):
    """A text uses a parameter that is unknown or not set; `position` is where in the text."""

    def __init__(self, what: str, position: int = 0) -> None:
        super().__init__(what)
        self.position = position


@dataclass(frozen=True, slots=True)
class Param:
    name: str
    line: int
    type: str = "string"
    default: str | None = None
    is_required: bool = False
    choices: tuple[str, ...] = ()
    about: str = ""

    def problem_with(self, text: str) -> str | None:
        """The problem with this value, or None."""
        if self.choices and text not in self.choices:
            return f"{text[:60]!r} is none of {', '.join(self.choices)}"
        if not _fits(self.type, text):
            return f"{text[:60]!r} is not a valid {self.type}: {_EXAMPLES[self.type]} expected"
        return None


def _fits(kind: str, text: str) -> bool:
    if kind == "bool":
        return text in ("true", "false")
    if kind == "duration":
        return duration_s(text) is not None
    readers: dict[str, Callable[[str], object]] = {"int": int, "float": float, "timestamp": _timestamp}
    try:
        readers.get(kind, str)(text)
    except ValueError:
        return False
    return True


def _timestamp(text: str) -> object:
    return int(text) if text.isascii() and text.isdigit() else datetime.fromisoformat(text)


def duration_s(text: str) -> float | None:
    """None when it is not a duration."""
    match = _DURATION.fullmatch(text.strip().lower())
    return None if match is None else float(match[1]) * _UNITS_S[match[2]]


@dataclass(frozen=True, slots=True)
class Values:
    """The value of each parameter; None for one that is not set."""

    by_name: Mapping[str, str | None]

    def fill(self, text: str) -> str:
        """`text` with every ${NAME} replaced; ParameterError for a name that is unknown, or not set."""
        return _USE.sub(self._value, text)

    def is_unset(self, text: str) -> bool:
        """Whether the whole text is one parameter that is not set."""
        match = _USE.fullmatch(text.strip())
        return match is not None and match[1] in self.by_name and self.by_name[match[1]] is None

    def _value(self, match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return "${"
        if name not in self.by_name:
            raise ParameterError(f"there is no parameter {name[:60]}: {nearest(name, self.by_name)}", match.start())
        value = self.by_name[name]
        if value is None:
            raise ParameterError(f"parameter {name} is not set: give it with --set {name}=VALUE", match.start())
        return value


# --- sections: typed access to the members of a mapping, with parameters filled in and problems collected ---


@dataclass(frozen=True, slots=True)
class Document:
    values: Values
    problems: Problems

    def section(self, node: Node, what: str, known: tuple[str, ...] | None = None) -> "Section":
        """Members whose whole value is a parameter that is not set are dropped, as if they were not in the file."""
        before = len(self.problems)
        fields = fields_of(node, what, self.problems, known)
        unset = frozenset(name for name, value in fields.items() if self._is_unset(value))
        present = {name: value for name, value in fields.items() if name not in unset}
        return Section(self, what, line_of(node), present, unset, len(self.problems) == before)

    def _is_unset(self, node: Node) -> bool:
        return isinstance(node, Scalar) and self.values.is_unset(node.value)

    def text(self, node: Node, what: str) -> str | None:
        """None when it is not a text, which is then a problem."""
        if not isinstance(node, Scalar) or is_null(node):
            self.problems.add(line_of(node), f"{what} must be a text; this is {kind_of(node)}")
            return None
        try:
            return self.values.fill(node.value)
        except ParameterError as error:
            self.problems.add(line_of(node, error.position), f"{what}: {error}")
            return None


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping of the file. `what` names it in messages."""

    document: Document
    what: str
    line: int
    fields: Fields
    unset: frozenset[str]
    """Members that were dropped, because their parameter is not set."""
    is_complete: bool
    """Whether every key is known: an unknown one may be a misspelt key that seems to be missing."""

    def __contains__(self, name: str) -> bool:
        return name in self.fields

    def line_of(self, name: str) -> int:
        return line_of(self.fields[name]) if name in self.fields else self.line

    def problem(self, name: str, what: str) -> None:
        self.document.problems.add(self.line_of(name), f"{name} of {self.what}: {what}")

    def text(self, name: str, default: str = "") -> str:
        return self.optional(name) or default

    def optional(self, name: str) -> str | None:
        if name not in self.fields:
            return None
        return self.document.text(self.fields[name], f"{name} of {self.what}")

    def required(self, name: str) -> str:
        if name not in self.fields:
            self.document.problems.add(self.line, f"{self.what} needs `{name}: ...`")
        return self.text(name)

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self.text(name, default)
        if value not in choices:
            self.problem(name, f"{value[:60]!r} is none of {', '.join(choices)}: {nearest(value, choices)}")
            return default
        return value

    def boolean(self, name: str, default: bool) -> bool:
        return self.choice(name, ("true", "false"), "true" if default else "false") == "true"

    def whole(self, name: str, default: int) -> int:
        text = self.text(name, str(default))
        if not (text.isascii() and text.isdigit() and int(text) > 0):
            self.problem(name, f"{text[:60]!r} is not a whole number of at least 1")
            return default
        return int(text)

    def duration(self, name: str, default: float) -> float:
        if name not in self.fields:
            return default
        text = self.text(name)
        seconds = duration_s(text)
        if seconds is None:
            self.problem(name, f"{text[:60]!r} is not a duration: a time such as 500ms, 30s, 5m or 1h expected")
        return default if seconds is None else seconds

    def words(self, name: str) -> tuple[str, ...] | None:
        """A list, or one text with commas; None when the member is missing."""
        if name not in self.fields:
            return None
        node = self.fields[name]
        if not isinstance(node, yaml.SequenceNode):
            return tuple(word.strip() for word in self.text(name).split(",") if word.strip())
        texts = [self.document.text(item, f"{name} of {self.what}") for item in node.value]
        return tuple(text for text in texts if text)

    def texts(self, name: str) -> dict[str, str]:
        """A mapping of texts; numbers and booleans are taken as they are written."""
        if name not in self.fields:
            return {}
        below = self.document.section(self.fields[name], f"{name} of {self.what}")
        return {key: text for key in below.fields if (text := below.optional(key)) is not None}

    def lines_in(self, name: str) -> dict[str, int]:
        """The lines of the members of a mapping. Its problems are reported when the values are read."""
        node = self.fields.get(name)
        return {} if node is None else {key: line_of(below) for key, below in fields_of(node, "", Problems("")).items()}

    def inner(self, name: str, known: tuple[str, ...]) -> "Section":
        return self.document.section(self.fields[name], f"{name} of {self.what}", known)

    def only_one_of(self, names: tuple[str, ...]) -> str | None:
        """Which of these members is present; none or several are a problem."""
        present = [name for name in names if name in self.fields]
        if len(present) == 1:
            return present[0]
        if not present and not self.is_complete:
            return None
        has = f"has {' and '.join(present)}" if present else "has none of them"
        line = self.line_of(present[1]) if present else self.line
        self.document.problems.add(line, f"{self.what} must have exactly one of {', '.join(names)}; it {has}")
        return None


def named_options(section: Section, names: Mapping[str, str]) -> dict[str, str]:
    """Members of the file that are options of the data source, under their option names."""
    options = {option: section.optional(name) for name, option in names.items() if name in section}
    return {option: text for option, text in options.items() if text is not None}
