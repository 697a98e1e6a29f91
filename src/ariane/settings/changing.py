"""Changes settings that are in use: an allow-list of `reloadable` ones, all of the changes or none.

Everybody holds the same frozen object and reads it when needed, so a change is seen by all at once. Frozen keeps anyone
else from assigning to it; this is the only place that does, on behalf of an administrator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ariane.errors import SettingsError
from ariane.settings.declarations import Key, SettingSpec, describe, value_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def change(settings: DataclassInstance, wanted: Mapping[str, str]) -> list[str]:
    """Sets RocketMQ keys to new values; the names of the settings that differ now.

    SettingsError, and nothing has changed, when a key is unknown, its setting is fixed while the process runs, or a
    value is out of range; it lists every such key. A value that is in force already is no change, whatever its key.
    """
    known = {key.name: (key, declared) for declared in describe(type(settings)) for key in declared.keys}
    values: dict[str, object] = {}
    faults = []
    for name, text in wanted.items():
        try:
            declared, value = _read(settings, known.get(name), text)
            values |= {declared.name: value} if value != value_of(settings, declared.name) else {}
        except SettingsError as error:
            faults.append(f"{name[:80]}: {error}")
    if faults:
        raise SettingsError("; ".join(faults))
    _check_together(settings, values)
    for name, value in values.items():
        owner, field = _owner(settings, name)
        object.__setattr__(owner, field, value)
    return list(values)


def _read(settings: DataclassInstance, known: tuple[Key, SettingSpec] | None, text: str) -> tuple[SettingSpec, object]:
    if known is None:
        raise SettingsError("there is no such setting")
    key, declared = known
    if declared.secret:
        raise SettingsError("a secret is never taken from a request; set it in the file or the environment and restart")
    value = key.read(declared, text)
    if not declared.reloadable and value != value_of(settings, declared.name):
        raise SettingsError("fixed while the process runs; set it in the settings file and restart")
    return declared, value


def _check_together(settings: DataclassInstance, values: Mapping[str, object]) -> None:
    """What a group of settings demands of its members holds for the new values as well."""
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
