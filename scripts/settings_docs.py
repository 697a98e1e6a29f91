"""Writes docs/settings.md from the declarations. With --check it only says whether the page is up to date."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from ariane.broker.settings import BrokerSettings, rocketmq_keys
from ariane.nameserver import settings as nameserver_settings
from ariane.settings import SettingSpec, describe, to_text

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"

HEAD = """\
# Settings

<!-- Made by scripts/settings_docs.py from the declarations in src/ariane/*/settings.py: change it there. -->

A setting takes the last of: its default, the file named with `--config`, its variable, its flag.

| where | how `transport.idle_timeout_s` of the nameserver is written |
| --- | --- |
| a `.toml` file | `idle_timeout_s = 60` under `[nameserver.transport]` |
| any other file, in RocketMQ's format | `serverChannelMaxIdleTimeSeconds=60` |
| a variable | `ARIANE_NAMESERVER__TRANSPORT__IDLE_TIMEOUT_S=60` |

A key that is misspelt, a value out of range, a control character in a value: each is an error that names the file, the
line and the cure, and nothing starts. A setting without a RocketMQ key can be set in TOML or by its variable. An empty
value unsets a setting that may be unset. Durations are in seconds (`_s`) and sizes in bytes (`_bytes`), as plain
numbers. A relative path starts at the working directory, `~` at the home directory.

`ariane namesrv --config FILE --print-config` and `ariane broker --config FILE --print-config` show what would be in
force, as TOML: they also turn a `namesrv.conf` or a `broker.conf` into a TOML file. `ariane config show --origin` tells
where each value came from.

A setting marked *live* can also be changed while a broker runs (`mqadmin updateBrokerConfig`), until its next start;
every other one is refused there. Nothing that a request says is ever written to a file.
"""

UNSUPPORTED_HEAD = """\
## RocketMQ keys that a {whose} knows but does not use

Each is a warning in the log, so that a `{file}` of Apache RocketMQ works as it is.

| why it is not used | keys |
| --- | --- |"""


@dataclass(frozen=True)
class Section:
    name: str
    settings: Any
    unsupported: Mapping[str, str]
    file: str


SECTIONS = (
    Section("broker", BrokerSettings, rocketmq_keys.UNSUPPORTED, "broker.conf"),
    Section("nameserver", nameserver_settings.NameserverSettings, nameserver_settings.UNSUPPORTED, "namesrv.conf"),
)


def page() -> str:
    return "\n".join([HEAD, *(line for section in SECTIONS for line in _section(section))])


def _section(section: Section) -> Iterator[str]:
    yield from _tables(section)
    yield UNSUPPORTED_HEAD.format(whose=section.name, file=section.file)
    yield from _unsupported(section.unsupported)
    yield ""


def _tables(section: Section) -> Iterator[str]:
    table = None
    for declared in describe(section.settings):
        group = declared.name.rpartition(".")[0]
        if group != table:
            yield from ([] if table is None else [""])
            table = group
            yield f"## `[{section.name}.{group}]`\n" if group else f"## `[{section.name}]`\n"
            yield "| setting | RocketMQ key | takes | default | what it does |\n| --- | --- | --- | --- | --- |"
        yield _row(declared)
    yield ""


def _row(declared: SettingSpec) -> str:
    name = declared.name.rpartition(".")[2]
    keys = ", ".join(f"`{key.name}`" for key in declared.keys)
    default = "not set" if declared.default in (None, "") else f"`{to_text(declared.default)}`"
    takes = declared.kind.expected.removeprefix("expected ")
    live = " *live*" if declared.reloadable else ""
    return f"| `{name}`{live} | {keys} | {takes} | {default} | {declared.doc} |"


def _unsupported(reasons: Mapping[str, str]) -> Iterator[str]:
    for reason, keys in groupby(reasons, key=lambda key: reasons[key]):
        yield f"| {reason} | {', '.join(f'`{key}`' for key in keys)} |"


def main() -> int:
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page()
    print(
        "docs/settings.md is up to date" if fresh else "docs/settings.md is stale: run python scripts/settings_docs.py"
    )
    return 0 if fresh else 1


if __name__ == "__main__":
    sys.exit(main())
