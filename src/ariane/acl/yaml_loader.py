"""YAML reader and writer of the ACL file. A separate module, so that only a broker with access control imports yaml."""

from collections.abc import Mapping
from typing import Any

import yaml


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader, but numbers and dates stay strings: `secretKey: 0012345678` keeps its zeros."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, Any]]] = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in resolvers if tag.endswith((":bool", ":null", ":merge"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def parse(content: bytes) -> object:
    """ValueError if the content is not valid YAML."""
    try:
        return yaml.load(content, Loader=_Loader)  # noqa: S506  derived from the safe loader, with fewer types
    except yaml.YAMLError as error:
        raise ValueError(f"it is not YAML: {_position(error)}") from None
    except (RecursionError, UnicodeDecodeError):
        raise ValueError("it is not YAML: nested too deep, or not UTF-8") from None


def _position(error: yaml.YAMLError) -> str:
    """Line and column, but never the line itself: it may contain a secret."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "unreadable"
    return f"{problem} at line {mark.line + 1}, column {mark.column + 1}" if mark else str(problem)


def dump(document: Mapping[str, Any]) -> bytes:
    """ASCII with escapes: some unescaped non-ASCII characters would be read back as blanks."""
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=False, default_flow_style=False)
    return text.encode("ascii")
