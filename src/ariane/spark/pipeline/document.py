"""From YAML to values: typed access to the members of a mapping, with parameters filled in and mistakes gathered."""

from collections.abc import Mapping
from dataclasses import dataclass

import yaml

from ariane.spark.pipeline.mistakes import Mistakes, nearest
from ariane.spark.pipeline.nodes import Fields, Node, Scalar, fields_of, is_null, kind_of, line_of
from ariane.spark.pipeline.params import UseError, Values, duration_s


@dataclass(frozen=True, slots=True)
class Document:
    values: Values
    mistakes: Mistakes

    def section(self, node: Node, what: str, known: tuple[str, ...] | None = None) -> "Section":
        """Members whose whole value is a parameter that is not set are left out, as if the file did not have them."""
        before = len(self.mistakes)
        fields = fields_of(node, what, self.mistakes, known)
        unset = frozenset(name for name, one in fields.items() if self._is_unset(one))
        said = {name: one for name, one in fields.items() if name not in unset}
        return Section(self, what, line_of(node), said, unset, len(self.mistakes) == before)

    def _is_unset(self, node: Node) -> bool:
        return isinstance(node, Scalar) and self.values.is_unset(node.value)

    def text(self, node: Node, what: str) -> str | None:
        """None when it is no text, which is then a mistake."""
        if not isinstance(node, Scalar) or is_null(node):
            self.mistakes.add(line_of(node), f"{what} must be a text; this is {kind_of(node)}")
            return None
        try:
            return self.values.fill(node.value)
        except UseError as error:
            self.mistakes.add(line_of(node, error.position), f"{what}: {error}")
            return None


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping of the file. `what` names it in messages."""

    document: Document
    what: str
    line: int
    fields: Fields
    unset: frozenset[str]
    """Members that are left out, because their parameter is not set."""
    is_whole: bool
    """Whether every member was understood: one that was not may be the one that seems to be missing."""

    def __contains__(self, name: str) -> bool:
        return name in self.fields

    def line_of(self, name: str) -> int:
        return line_of(self.fields[name]) if name in self.fields else self.line

    def mistake(self, name: str, what: str) -> None:
        self.document.mistakes.add(self.line_of(name), f"{name} of {self.what}: {what}")

    def text(self, name: str, default: str = "") -> str:
        return self.optional(name) or default

    def optional(self, name: str) -> str | None:
        if name not in self.fields:
            return None
        return self.document.text(self.fields[name], f"{name} of {self.what}")

    def required(self, name: str) -> str:
        if name not in self.fields:
            self.document.mistakes.add(self.line, f"{self.what} needs `{name}: ...`")
        return self.text(name)

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self.text(name, default)
        if value not in choices:
            self.mistake(name, f"{value[:60]!r} is none of {', '.join(choices)}: {nearest(value, choices)}")
            return default
        return value

    def boolean(self, name: str, default: bool) -> bool:
        return self.choice(name, ("true", "false"), "true" if default else "false") == "true"

    def whole(self, name: str, default: int) -> int:
        text = self.text(name, str(default))
        if not (text.isascii() and text.isdigit() and int(text) > 0):
            self.mistake(name, f"{text[:60]!r} is no whole number from 1 on")
            return default
        return int(text)

    def duration(self, name: str, default: float) -> float:
        if name not in self.fields:
            return default
        text = self.text(name)
        seconds = duration_s(text)
        if seconds is None:
            self.mistake(name, f"{text[:60]!r} is no duration: a time such as 500ms, 30s, 5m or 1h expected")
        return default if seconds is None else seconds

    def words(self, name: str) -> tuple[str, ...] | None:
        """A list, or one text with commas; None when it is not there."""
        if name not in self.fields:
            return None
        node = self.fields[name]
        if not isinstance(node, yaml.SequenceNode):
            return tuple(word.strip() for word in self.text(name).split(",") if word.strip())
        texts = [self.document.text(one, f"{name} of {self.what}") for one in node.value]
        return tuple(text for text in texts if text)

    def texts(self, name: str) -> dict[str, str]:
        """A mapping of texts; numbers and true or false count as they are written."""
        if name not in self.fields:
            return {}
        below = self.document.section(self.fields[name], f"{name} of {self.what}")
        return {one: text for one in below.fields if (text := below.optional(one)) is not None}

    def lines_in(self, name: str) -> dict[str, int]:
        """Where the members of a mapping stand. Mistakes in it are told by whoever reads their values."""
        node = self.fields.get(name)
        return {} if node is None else {one: line_of(below) for one, below in fields_of(node, "", Mistakes("")).items()}

    def inner(self, name: str, known: tuple[str, ...]) -> "Section":
        return self.document.section(self.fields[name], f"{name} of {self.what}", known)

    def only_one_of(self, names: tuple[str, ...]) -> str | None:
        """Which of these members there is; none or several are a mistake."""
        found = [name for name in names if name in self.fields]
        if len(found) == 1:
            return found[0]
        if not found and not self.is_whole:
            return None
        told = f"has {' and '.join(found)}" if found else "has none of them"
        line = self.line_of(found[1]) if found else self.line
        self.document.mistakes.add(line, f"{self.what} must have exactly one of {', '.join(names)}; it {told}")
        return None


def as_options(section: Section, names: Mapping[str, str]) -> dict[str, str]:
    """Members of the file that are options of the data source, under the names it has for them."""
    found = {option: section.optional(name) for name, option in names.items() if name in section}
    return {option: text for option, text in found.items() if text is not None}
