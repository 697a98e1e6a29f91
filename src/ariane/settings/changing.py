"""Changes settings at run time: only those marked `reloadable`, and all of the changes or none.

All components share one frozen settings object and read it when needed, so a change takes effect everywhere at once.
Because it is frozen, no other code can assign to it; only this module does, on behalf of an administrator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ariane.errors import SettingsError
from ariane.settings.declarations import Key, SettingSpec, describe, value_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def change(settings: DataclassInstance, updates: Mapping[str, str]) -> list[str]:
    """Sets RocketMQ keys to new values; returns the names of the settings that changed.

    Raises SettingsError and changes nothing when a key is unknown, its setting is not reloadable, or a value is out of
    range; the error lists every such key. Setting any key to its current value is allowed and changes nothing.
    """
    by_key = {key.name: (key, spec) for spec in describe(type(settings)) for key in spec.keys}
    values: dict[str, object] = {}
    problems = []
    for name, text in updates.items():
        try:
            spec, value = _read(settings, by_key.get(name), text)
            values |= {spec.name: value} if value != value_of(settings, spec.name) else {}
        except SettingsError as error:
            problems.append(f"{name[:80]}: {error}")
    if problems:
        raise SettingsError("; ".join(problems))
    _check_together(settings, values)
    for name, value in values.items():
        owner, field = _owner(settings, name)
        object.__setattr__(owner, field, value)
    return list(values)


def _read(settings: DataclassInstance, match: tuple[Key, SettingSpec] | None, text: str) -> tuple[SettingSpec, object]:
    if match is None:
        raise SettingsError("there is no such setting")
    key, spec = match
    if spec.secret:
        raise SettingsError("a secret cannot be set by a request; set it in the file or the environment and restart")
    value = key.read(spec, text)
    if not spec.reloadable and value != value_of(settings, spec.name):
        raise SettingsError("cannot be changed at run time; set it in the settings file and restart")
    return spec, value


def _check_together(settings: DataclassInstance, values: Mapping[str, object]) -> None:
    """Runs the checks between the settings of a group (`__post_init__`) with the new values."""
    groups: dict[int, tuple[DataclassInstance, dict[str, object]]] = {}
    for name, value in values.items():
        owner, field = _owner(settings, name)
        groups.setdefault(id(owner), (owner, {}))[1][field] = value
    for owner, changed in groups.values():
        dataclasses.replace(owner, **changed)


def _owner(settings: DataclassInstance, name: str) -> tuple[DataclassInstance, str]:
    group, _, field = name.rpartition(".")
    owner = value_of(settings, group) if group else settings
    return owner, field  # type: ignore[return-value]  # a group is a dataclass
