"""Reads a room's settings from defaults, a file, the environment and flags, and says where each came from."""

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
"""Tables of one TOML file that serves several processes: each reads its own and skips the others."""

_FILE_BYTES_MAX = 1 << 20
_FAULTS_SHOWN_MAX = 10
_WORD_SHOWN_MAX = 100


def to_properties(settings: DataclassInstance) -> dict[str, str]:
    """RocketMQ's keys and our values as text, as the GET_*_CONFIG requests answer them. Never a secret."""
    told = {}
    for declared in describe(type(settings)):
        value = value_of(settings, declared.name)
        if declared.keys and not declared.secret and value is not None:
            key = declared.keys[0]
            told[key.name] = to_text(round(value * key.per_unit, 6) if isinstance(value, float) else value)
    return told


@dataclass(frozen=True, slots=True)
class LoadedSettings(Generic[T]):
    settings: T
    origins: Mapping[str, str]
    """Dotted name to where its value came from: `default`, `namesrv.conf:3`, a variable, `flag`."""
    warnings: tuple[str, ...]


def load(
    cls: type[T],
    *,
    section: str,
    file: Path | None,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    unsupported: Mapping[str, str],
) -> LoadedSettings[T]:
    """The settings of one process. `unsupported` gives, for each RocketMQ key we know but do not use, the reason."""
    draft = _Draft(section, {declared.name: declared for declared in describe(cls)}, unsupported)
    if file is not None:
        draft.take_file(file)
    draft.take_environment(environ)
    draft.take_flags(flags)
    draft.raise_faults()
    return LoadedSettings(_assemble(cls, draft.values), draft.origins, tuple(draft.warnings))


class _Draft:
    """Values gathered source by source, with every fault on the way, so that a user mends them all at once."""

    def __init__(self, section: str, declared: Mapping[str, SettingSpec], unsupported: Mapping[str, str]) -> None:
        assert section in SECTIONS, section
        self.section, self.declared, self.unsupported = section, declared, unsupported
        self.groups = {name.rpartition(".")[0] for name in declared}
        self.values: dict[str, object] = {}
        self.origins = dict.fromkeys(declared, "default")
        self.warnings: list[str] = []
        self.faults: dict[str, None] = {}  # an ordered set

    def take_file(self, file: Path) -> None:
        try:
            text = _read(file)
            (self._take_toml if file.suffix.lower() == ".toml" else self._take_properties)(str(file), text)
        except SettingsError as error:
            raise SettingsError(f"{file}: {error}") from error

    def _take_properties(self, file: str, text: str) -> None:
        keys = {key.name: (key, declared) for declared in self.declared.values() for key in declared.keys}
        ours = {d.name: repr(d.keys[0].name) if d.keys else d.variable(self.section) for d in self.declared.values()}
        suggestions = ours | {key: repr(key) for key in (*self.unsupported, *keys)}
        for entry in read_properties(text):
            where = f"{file}:{entry.line}"
            if entry.key in keys:
                key, declared = keys[entry.key]
                self._take(declared, where, entry.key, entry.value, key.read)
            elif entry.key in self.unsupported:
                self.warnings.append(f"{where}: {entry.key} is not used: {self.unsupported[entry.key]}")
            else:
                self._unknown(f"{where}: unknown key", entry.key, suggestions)

    def _take_toml(self, file: str, text: str) -> None:
        for entry in read_toml(text):
            where = f"{file}:{entry.line}" if entry.line else file
            section, _, name = entry.name.partition(".")
            if section == self.section:
                self._take_toml_entry(where, name, entry.value)
            elif section not in SECTIONS and (name or entry.value == {}):
                self._unknown(f"{file}: unknown table", section, {known: f"[{known}]" for known in SECTIONS})
            elif not name and entry.value != {}:
                self._fault(f"{where}: {section!r} stands outside every table; put it under [{self.section}]")

    def _take_toml_entry(self, where: str, name: str, value: object) -> None:
        if name in self.declared:
            self._take(self.declared[name], where, name, value, lambda d, value: d.kind.check(value))
        elif name not in self.groups:
            suggestions = {key.name: repr(d.name) for d in self.declared.values() for key in d.keys}
            suggestions |= {known: repr(known) for known in (*filter(None, self.groups), *self.declared)}
            self._unknown(f"{where}: unknown key", name, suggestions)
        elif value != {}:
            self._fault(f"{where}: {name or self.section!r} is a table; write its settings one by one")

    def take_environment(self, environ: Mapping[str, str]) -> None:
        known = {declared.variable(self.section): declared for declared in self.declared.values()}
        for variable, text in sorted(environ.items()):
            section, separator, _ = variable.removeprefix("ARIANE_").partition("__")
            if variable in known:
                self._take(known[variable], "", variable, text, lambda d, text: d.kind.parse(text))
            elif variable.startswith("ARIANE_") and separator and section.lower() == self.section:
                self._unknown("unknown variable", variable, {name: name for name in known})
            elif variable.startswith("ARIANE_") and separator and section.lower() not in SECTIONS:
                prefixes = {name: variable_prefix(name) + "..." for name in SECTIONS}
                self._unknown(f"variable {variable}: unknown section", section, prefixes)

    def take_flags(self, flags: Mapping[str, object]) -> None:
        for name, value in flags.items():
            if value is not None:
                self._take(self.declared[name], "", f"flag {name}", value, _read_flag)
                self.origins[name] = "flag"

    def _take(
        self,
        declared: SettingSpec,
        where: str,
        label: str,
        raw: Any,
        read: Callable[[SettingSpec, Any], object],
    ) -> None:
        try:
            self.values[declared.name] = read(declared, raw)
            self.origins[declared.name] = where or label
        except SettingsError as error:
            shown = "(secret)" if declared.secret else repr(raw)[:_WORD_SHOWN_MAX]
            self._fault(f"{where and where + ': '}{label} = {shown}: {error}")

    def _unknown(self, what: str, word: str, suggestions: Mapping[str, str]) -> None:
        word = word[:_WORD_SHOWN_MAX]
        by_lower = {candidate.lower(): suggestion for candidate, suggestion in suggestions.items()}
        near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.5)
        cure = f"did you mean {by_lower[near[0]]}?" if near else "docs/settings.md lists every one"
        self._fault(f"{what} {word!r}, {cure}")

    def _fault(self, text: str) -> None:
        self.faults[text] = None

    def raise_faults(self) -> None:
        shown = list(self.faults)[:_FAULTS_SHOWN_MAX]
        if len(self.faults) > len(shown):
            shown.append(f"and {len(self.faults) - len(shown)} more")
        if shown:
            raise SettingsError("\n  ".join(shown if len(shown) == 1 else ["the settings have faults:", *shown]))


def _read(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            content = stream.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise SettingsError(f"cannot read this settings file: {error.strerror}") from error
    if len(content) > _FILE_BYTES_MAX:
        raise SettingsError(f"a settings file has at most {_FILE_BYTES_MAX} bytes; is this the right file?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(f"byte {error.start} is not UTF-8; save the file as UTF-8") from error


def _read_flag(declared: SettingSpec, value: object) -> object:
    return declared.kind.parse(value) if isinstance(value, str) else declared.kind.check(value)


def _assemble(cls: type[T], values: Mapping[str, object], prefix: str = "") -> T:
    hints, arguments = get_type_hints(cls), {}
    for field in dataclasses.fields(cls):
        name = prefix + field.name
        if dataclasses.is_dataclass(hints[field.name]):
            arguments[field.name] = _assemble(hints[field.name], values, f"{name}.")
        elif name in values:
            arguments[field.name] = values[name]
    return cls(**arguments)
