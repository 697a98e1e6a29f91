"""Loads the broker's settings for `ariane broker` and `ariane config show`, and writes settings as TOML."""

import json
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ariane.broker.settings import BrokerSettings
from ariane.broker.settings.rocketmq_keys import UNSUPPORTED
from ariane.settings import LoadedSettings, SettingSpec, describe, load, to_text, value_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_APACHE_VARIABLE = "NAMESRV_ADDR"
_ARIANE_VARIABLE = "ARIANE_BROKER__NAMESRV_ADDR"


def load_broker_settings(
    file: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]
) -> LoadedSettings[BrokerSettings]:
    """$NAMESRV_ADDR, Apache's variable, is used if nothing else names a nameserver."""
    loaded = load(BrokerSettings, section="broker", file=file, environ=environ, flags=flags, unsupported=UNSUPPORTED)
    if loaded.origins["namesrv_addr"] != "default" or not environ.get(_APACHE_VARIABLE):
        return loaded
    again = load(
        BrokerSettings,
        section="broker",
        file=file,
        environ={**environ, _ARIANE_VARIABLE: environ[_APACHE_VARIABLE]},
        flags=flags,
        unsupported=UNSUPPORTED,
    )
    return LoadedSettings(
        again.settings, {**again.origins, "namesrv_addr": _APACHE_VARIABLE}, again.warnings, again.file_warning
    )


def to_toml(settings: "DataclassInstance", section: str, names: Container[str] | None = None) -> str:
    """A TOML file that can be loaded again, with all settings, or those with these dotted names."""
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


def _line(name: str, declared: SettingSpec, value: object) -> str:
    if value is None:
        return f"# {name} is not set"
    if declared.secret:
        return f"# {name} is set, but secret"
    return f"{name} = {_toml(value)}"


def _toml(value: object) -> str:
    if isinstance(value, (bool, int, float)):
        return to_text(value)
    return json.dumps(to_text(value), ensure_ascii=False)  # a JSON string is a TOML string
