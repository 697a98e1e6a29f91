"""Settings: declared once, read from defaults, a file, environment variables and flags, in this order of precedence.

Each package declares its settings as a frozen dataclass; this package contains only the mechanism:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class BrokerSettings:
        trace_on: bool = setting(True, key="traceOn", doc="Whether clients should report traces.")

From this one line come the TOML key `trace_on` of the table `[broker]`, the variable `ARIANE_BROKER__TRACE_ON`,
RocketMQ's own key in a properties file, a row of docs/settings.md and a line of the response to GET_BROKER_CONFIG. A
field that is itself such a dataclass is a group: `[broker.store]`, `ARIANE_BROKER__STORE__...`.

Nothing is silently ignored: an unknown key is an error that suggests the nearest one, and a known RocketMQ key that
Ariane does not support is a warning with the reason.
"""

from ariane.settings.changing import change
from ariane.settings.declarations import Key, SettingSpec, describe, setting, value_of
from ariane.settings.loading import SECTIONS, LoadedSettings, load, to_properties
from ariane.settings.values import Secret, to_text

__all__ = [
    "SECTIONS",
    "Key",
    "LoadedSettings",
    "Secret",
    "SettingSpec",
    "change",
    "describe",
    "load",
    "setting",
    "to_properties",
    "to_text",
    "value_of",
]
