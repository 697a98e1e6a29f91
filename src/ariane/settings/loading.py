"""Loads the settings of one process from defaults, a file, environment variables and flags, with the origin of each.

Each setting comes from the last of these that has it: a later one wins.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_type_hints

from ariane.errors import SettingsError
from ariane.settings.declarations import SettingSpec, describe, value_of, variable_prefix
from ariane.settings.properties_file import read_properties
from ariane.settings.toml_file import read_toml
from ariane.settings.values import to_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    T = TypeVar("T", bound=DataclassInstance)
else:
    T = TypeVar("T")

SECTIONS = ("nameserver", "broker", "client")
"""The tables of a TOML file, which several processes may share: each reads its own table and skips the others."""

_OTHERS_READ = 0o044
_FILE_BYTES_MAX = 1 << 20
_PROBLEMS_SHOWN_MAX = 10
_WORD_SHOWN_MAX = 100


def to_properties(settings: DataclassInstance) -> dict[str, str]:
    """RocketMQ's keys with the current values as text, for the responses to GET_*_CONFIG requests. Without secrets."""
    properties = {}
    for spec in describe(type(settings)):
        value = value_of(settings, spec.name)
        if spec.keys and not spec.secret and value is not None:
            key = spec.keys[0]
            properties[key.name] = to_text(round(value * key.per_unit, 6) if isinstance(value, float) else value)
    return properties


@dataclass(frozen=True, slots=True)
class LoadedSettings(Generic[T]):
    settings: T
    origins: Mapping[str, str]
    """Dotted name to where its value came from: `default`, `namesrv.conf:3`, a variable, `flag`."""
    warnings: tuple[str, ...]
    """Keys of the file that have no effect."""
    file_warning: str | None = None
    """The file contains a secret and other users can read it."""


def load(
    cls: type[T],
    *,
    section: str,
    file: Path | None,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    unsupported: Mapping[str, str],
) -> LoadedSettings[T]:
    """The settings of one process. `unsupported`: known RocketMQ keys that have no effect here, with the reason."""
    loader = _Loader(section, {spec.name: spec for spec in describe(cls)}, unsupported)
    if file is not None:
        loader.read_file(file)
    loader.read_environment(environ)
    loader.read_flags(flags)
    loader.raise_problems()
    settings, warnings = _assemble(cls, loader.values), tuple(loader.warnings)
    return LoadedSettings(settings, loader.origins, warnings, loader.file_warning)


class _Loader:
    """Collects values source by source, and every problem on the way, so that the user can fix all of them at once."""

    def __init__(self, section: str, specs: Mapping[str, SettingSpec], unsupported: Mapping[str, str]) -> None:
        assert section in SECTIONS, section
        self.section, self.specs, self.unsupported = section, specs, unsupported
        self.groups = {name.rpartition(".")[0] for name in specs}
        self.values: dict[str, object] = {}
        self.origins = dict.fromkeys(specs, "default")
        self.warnings: list[str] = []
        self.file_warning: str | None = None
        self.problems: dict[str, None] = {}  # an ordered set

    def read_file(self, file: Path) -> None:
        try:
            text = _read(file)
            (self._read_toml if file.suffix.lower() == ".toml" else self._read_properties)(str(file), text)
        except SettingsError as error:
            raise SettingsError(f"{file}: {error}") from error
        has_secret = any(self.specs[name].secret for name in self.values)
        if has_secret and file.stat().st_mode & _OTHERS_READ:
            self.file_warning = f"{file} contains a secret, and other users can read it: chmod 600 {file}"

    def _read_properties(self, file: str, text: str) -> None:
        keys = {key.name: (key, spec) for spec in self.specs.values() for key in spec.keys}
        ours = {name: spec for name, spec in self.specs.items() if not spec.keys}  # RocketMQ does not have these
        names = {spec.name: repr(spec.keys[0].name if spec.keys else spec.name) for spec in self.specs.values()}
        suggestions = names | {key: repr(key) for key in (*self.unsupported, *keys)}
        for entry in read_properties(text):
            where = f"{file}:{entry.line}"
            if entry.key in keys:
                key, spec = keys[entry.key]
                self._set(spec, where, entry.key, entry.value, key.read)
            elif entry.key in ours:
                self._set(ours[entry.key], where, entry.key, entry.value, lambda spec, text: spec.kind.parse(text))
            elif entry.key in self.unsupported:
                self.warnings.append(f"{where}: {entry.key} is not used: {self.unsupported[entry.key]}")
            else:
                self._unknown(f"{where}: unknown key", entry.key, suggestions)

    def _read_toml(self, file: str, text: str) -> None:
        for entry in read_toml(text):
            where = f"{file}:{entry.line}" if entry.line else file
            section, _, name = entry.name.partition(".")
            if section == self.section:
                self._read_toml_entry(where, name, entry.value)
            elif section not in SECTIONS and (name or entry.value == {}):
                self._unknown(f"{file}: unknown table", section, {known: f"[{known}]" for known in SECTIONS})
            elif not name and entry.value != {}:
                self._add_problem(f"{where}: {section!r} is outside every table; put it under [{self.section}]")

    def _read_toml_entry(self, where: str, name: str, value: object) -> None:
        if name in self.specs:
            self._set(self.specs[name], where, name, value, lambda spec, value: spec.kind.check(value))
        elif name not in self.groups:
            suggestions = {key.name: repr(spec.name) for spec in self.specs.values() for key in spec.keys}
            suggestions |= {known: repr(known) for known in (*filter(None, self.groups), *self.specs)}
            self._unknown(f"{where}: unknown key", name, suggestions)
        elif value != {}:
            self._add_problem(f"{where}: {name or self.section!r} is a table; write its settings one by one")

    def read_environment(self, environ: Mapping[str, str]) -> None:
        specs = {spec.variable(self.section): spec for spec in self.specs.values()}
        for variable, text in sorted(environ.items()):
            section, separator, _ = variable.removeprefix("ARIANE_").partition("__")
            if variable in specs:
                self._set(specs[variable], "", variable, text, lambda spec, text: spec.kind.parse(text))
            elif variable.startswith("ARIANE_") and separator and section.lower() == self.section:
                self._unknown("unknown variable", variable, {name: name for name in specs})
            elif variable.startswith("ARIANE_") and separator and section.lower() not in SECTIONS:
                prefixes = {name: variable_prefix(name) + "..." for name in SECTIONS}
                self._unknown(f"variable {variable}: unknown section", section, prefixes)

    def read_flags(self, flags: Mapping[str, object]) -> None:
        for name, value in flags.items():
            if value is not None:
                self._set(self.specs[name], "", f"flag {name}", value, _read_flag)
                self.origins[name] = "flag"

    def _set(
        self,
        spec: SettingSpec,
        where: str,
        label: str,
        raw: Any,
        read: Callable[[SettingSpec, Any], object],
    ) -> None:
        try:
            self.values[spec.name] = read(spec, raw)
            self.origins[spec.name] = where or label
        except SettingsError as error:
            shown = "(secret)" if spec.secret else repr(raw)[:_WORD_SHOWN_MAX]
            self._add_problem(f"{where and where + ': '}{label} = {shown}: {error}")

    def _unknown(self, what: str, word: str, suggestions: Mapping[str, str]) -> None:
        word = word[:_WORD_SHOWN_MAX]
        by_lower = {candidate.lower(): suggestion for candidate, suggestion in suggestions.items()}
        near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.5)
        hint = f"did you mean {by_lower[near[0]]}?" if near else "docs/settings.md lists all of them"
        self._add_problem(f"{what} {word!r}, {hint}")

    def _add_problem(self, text: str) -> None:
        self.problems[text] = None

    def raise_problems(self) -> None:
        shown = list(self.problems)[:_PROBLEMS_SHOWN_MAX]
        if len(self.problems) > len(shown):
            shown.append(f"and {len(self.problems) - len(shown)} more")
        if shown:
            raise SettingsError("\n  ".join(shown if len(shown) == 1 else ["the settings have errors:", *shown]))


def _read(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            content = stream.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise SettingsError(f"cannot read this settings file: {error.strerror}") from error
    if len(content) > _FILE_BYTES_MAX:
        raise SettingsError(f"a settings file may have at most {_FILE_BYTES_MAX} bytes; is this the right file?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(f"byte {error.start} is not UTF-8; save the file as UTF-8") from error


def _read_flag(spec: SettingSpec, value: object) -> object:
    return spec.kind.parse(value) if isinstance(value, str) else spec.kind.check(value)


def _assemble(cls: type[T], values: Mapping[str, object], prefix: str = "") -> T:
    hints, arguments = get_type_hints(cls), {}
    for field in dataclasses.fields(cls):
        name = prefix + field.name
        if dataclasses.is_dataclass(hints[field.name]):
            arguments[field.name] = _assemble(hints[field.name], values, f"{name}.")
        elif name in values:
            arguments[field.name] = values[name]
    return cls(**arguments)
