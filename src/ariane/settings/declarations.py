"""Declaration of settings as dataclass fields, and introspection of what was declared."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

from ariane.settings.values import Secret, ValueKind

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, slots=True)
class Key:
    """A RocketMQ key, and how its values differ from those of the setting."""

    name: str
    per_unit: int = 1
    """How many units of the key make one unit of the setting: 1000 for a key in milliseconds. Float settings only."""
    zero_is_default: bool = False

    def read(self, spec: SettingSpec, text: str) -> object:
        """The setting's value for this key's text."""
        if self.zero_is_default and text == "0":
            return spec.default
        value = spec.kind.scaled(self.per_unit).parse(text)
        return value / self.per_unit if isinstance(value, float) else value


def setting(
    default: object,
    *,
    doc: str,
    key: str | Key | tuple[str | Key, ...] = (),
    reloadable: bool = False,
    minimum: float | None = None,
    maximum: float | None = None,
) -> Any:
    """One setting, as the default of a dataclass field. Of several keys, all are read and the first is reported."""
    keys = tuple(Key(item) if isinstance(item, str) else item for item in (key if isinstance(key, tuple) else (key,)))
    bounds = {"minimum": minimum, "maximum": maximum}
    return dataclasses.field(
        default=default, metadata={"doc": doc, "keys": keys, "reloadable": reloadable, "bounds": bounds}
    )


@dataclass(frozen=True, slots=True)
class SettingSpec:
    """A declared setting; `name` is dotted within its section: `transport.idle_timeout_s`."""

    name: str
    kind: ValueKind
    default: object
    doc: str
    keys: tuple[Key, ...]
    reloadable: bool

    @property
    def secret(self) -> bool:
        return self.kind.type is Secret

    def variable(self, section: str) -> str:
        return variable_prefix(section) + self.name.upper().replace(".", "__")


def describe(cls: type[DataclassInstance], prefix: str = "") -> Iterator[SettingSpec]:
    """Every setting of `cls` and of its groups, in the order of declaration."""
    hints = get_type_hints(cls)
    for field in dataclasses.fields(cls):
        hint, meta = hints[field.name], field.metadata
        if dataclasses.is_dataclass(hint):
            yield from describe(hint, f"{prefix}{field.name}.")  # type: ignore[arg-type]  # a class, never an instance
            continue
        kind = ValueKind.of(hint, **meta["bounds"])
        yield SettingSpec(prefix + field.name, kind, field.default, meta["doc"], meta["keys"], meta["reloadable"])


def value_of(settings: DataclassInstance, name: str) -> object:
    """The value of the setting with this dotted name."""
    value: object = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


def variable_prefix(section: str) -> str:
    return f"ARIANE_{section.upper()}__"
