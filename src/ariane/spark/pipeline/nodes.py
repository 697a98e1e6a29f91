"""YAML with the line of every value. Values are never built by tags: a file can only say texts, lists and mappings."""

from pathlib import Path

import yaml

from ariane.errors import SettingsError
from ariane.spark.pipeline.mistakes import Mistakes, nearest

FILE_BYTES_MAX = 1024 * 1024
_NULL = "tag:yaml.org,2002:null"
_LITERAL = "|"

Node = yaml.Node
Scalar = yaml.ScalarNode
Fields = dict[str, Node]


def read_yaml(path: Path, shown_as: str) -> Node:
    """SettingsError when there is no such file, or it is not YAML."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{shown_as} cannot be read: {error.strerror or error}") from None
    if len(data) > FILE_BYTES_MAX:
        raise SettingsError(f"{shown_as} has {len(data):,} bytes: a pipeline has {FILE_BYTES_MAX:,} at most")
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
        raise SettingsError(f"{shown_as}:1: the file is empty: a pipeline has at least `pipeline: NAME`")
    return node


def line_of(node: Node, position: int = 0) -> int:
    """Of the character at `position` of a text; in a literal block (`|`) the text begins below its mark."""
    line = int(node.start_mark.line) + 1
    if isinstance(node, Scalar) and node.style == _LITERAL:
        line += 1 + node.value.count("\n", 0, position)
    return line


def is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.tag == _NULL


def fields_of(node: Node, what: str, mistakes: Mistakes, known: tuple[str, ...] | None = None) -> Fields:
    """The members of a mapping. With `known`, any other name is a mistake; a name that stands twice always is."""
    if is_null(node):
        return {}
    if not isinstance(node, yaml.MappingNode):
        mistakes.add(
            line_of(node), f"{what} must be a mapping, `name: value` on lines of its own; this is {kind_of(node)}"
        )
        return {}
    fields: Fields = {}
    for key, value in node.value:
        if not isinstance(key, Scalar):
            mistakes.add(line_of(key), f"a name in {what} must be a word; this is {kind_of(key)}")
        elif key.value in fields:
            mistakes.add(line_of(key), f"{key.value} stands twice in {what}: leave one out")
        elif known is not None and key.value not in known:
            mistakes.add(line_of(key), f"{what} has no key {key.value[:60]}: {nearest(key.value, known)}")
        else:
            fields[key.value] = value
    return fields


def kind_of(node: Node) -> str:
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    return "nothing" if is_null(node) else f"the text {node.value[:40]!r}"
