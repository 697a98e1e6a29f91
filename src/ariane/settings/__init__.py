"""Settings, declared once and read from defaults, a file, the environment and flags, in that order.

A room declares its knobs as a frozen dataclass; this package knows none of them:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class BrokerSettings:
        trace_on: bool = setting(True, key="traceOn", doc="Whether clients are told to report traces.")

From this one line come the TOML key `trace_on` of the table `[broker]`, the variable `ARIANE_BROKER__TRACE_ON`,
RocketMQ's own key in a properties file, a row of docs/settings.md and a line of the answer to GET_BROKER_CONFIG. A
field that is itself such a dataclass is a group: `[broker.store]`, `ARIANE_BROKER__STORE__...`.

Nothing is ignored in silence: an unknown key is an error that names the nearest one, and a RocketMQ key that we know
but do not support is a warning with its reason.
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
