"""Settings in force, as a TOML file that can be loaded again."""

import json
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING

from ariane.settings import Declared, describe, to_text, value_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def to_toml(settings: "DataclassInstance", section: str, names: Container[str] | None = None) -> str:
    """All settings, or those with these dotted names."""
    return "\n".join(_lines(settings, section, names)) + "\n"


def _lines(settings: "DataclassInstance", section: str, names: Container[str] | None) -> Iterator[str]:
    table = None
    for declared in describe(type(settings)):
        if names is not None and declared.name not in names:
            continue
        group, _, name = declared.name.rpartition(".")
        if group != table:
            yield from ([] if table is None else [""])
            yield f"[{section}.{group}]" if group else f"[{section}]"
            table = group
        yield _line(name, declared, value_of(settings, declared.name))


def _line(name: str, declared: Declared, value: object) -> str:
    if value is None:
        return f"# {name} is not set"
    if declared.secret:
        return f"# {name} is set, and secret"
    return f"{name} = {_toml(value)}"


def _toml(value: object) -> str:
    if isinstance(value, (bool, int, float)):
        return to_text(value)
    return json.dumps(to_text(value), ensure_ascii=False)  # a JSON string is a TOML string
