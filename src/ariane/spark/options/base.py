"""Options of a data source, declared once as a dataclass: names, types, ranges and docs, as for all settings.

Spark passes options as texts, with names in lower case. An unknown option is an error that suggests the nearest name: a
misspelt `startingOffset`, if it were ignored, would read a topic from its end and be noticed much later.
"""

import difflib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from ariane.errors import SettingsError
from ariane.settings import SettingSpec, describe, to_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

O = TypeVar("O", bound="DataclassInstance")  # noqa: E741

# Options of Spark itself, which it passes to every source and sink.
_SPARKS_OWN = frozenset({"checkpointlocation", "outputmode", "queryname"})
_BREAKS = re.compile(r"[\r\n\t]+")


def read_options(
    kind: type[O], options: Mapping[str, str], other: frozenset[str] = frozenset(), family: str | None = None
) -> O:
    """`options` as a `kind`; SettingsError for an unknown name or a bad value.

    Names in `other` are ignored, and so are those of a `family`, such as `catalog.`: another library
    declares them, and `family_members` returns them.
    """
    by_name = {key.name.lower(): declared for declared in describe(kind) for key in declared.keys}
    values: dict[str, object] = {}
    for name, text in options.items():
        lower = name.lower()
        if lower in _SPARKS_OWN or lower in other or (family is not None and lower.startswith(family)):
            continue
        declared = by_name.get(lower)
        if declared is None:
            raise SettingsError(_unknown(name, kind, family))
        if declared.name in values:
            raise SettingsError(f"option {declared.keys[0].name} is given twice, once as {name}: leave one out")
        values[declared.name] = _value(declared, text)
    return kind(**values)


def family_members(options: Mapping[str, str], family: str) -> dict[str, str]:
    """The options of a family, without its prefix. Any of them may be a secret."""
    lowered = {name.lower(): str(text).strip() for name, text in options.items()}
    return {name.removeprefix(family): text for name, text in lowered.items() if name.startswith(family)}


def option_names(kind: "type[DataclassInstance]") -> list[str]:
    """The names as users write them, without the aliases."""
    return [declared.keys[0].name for declared in describe(kind)]


def _value(declared: SettingSpec, text: str) -> object:
    try:
        return declared.kind.parse(_BREAKS.sub(" ", str(text)).strip())
    except SettingsError as error:
        shown = "" if declared.secret else f" is {str(text)[:80]!r}"
        raise SettingsError(f"option {declared.keys[0].name}{shown}: {error}") from None


def _unknown(name: str, kind: "type[DataclassInstance]", family: str | None) -> str:
    names = {key.name.lower(): key.name for declared in describe(kind) for key in declared.keys}
    _, dot, member = name.lower().partition(".")
    if family is not None and dot:
        names[family + member] = family + member
    nearest = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f"did you mean {names[nearest[0]]}?" if nearest else f"there are {', '.join(option_names(kind))}"
    return f"option {name[:80]} is unknown: {hint}"


def option_table(kind: "type[DataclassInstance]") -> str:
    """The options as a Markdown table, for docs/spark.md."""
    rows = [f"| {_row_names(declared)} | {_row_default(declared)} | {declared.doc} |" for declared in describe(kind)]
    return "\n".join(["| Option | Default | |", "|---|---|---|", *rows])


def _row_names(declared: SettingSpec) -> str:
    first, *others = (f"`{key.name}`" for key in declared.keys)
    return first + (f" ({', '.join(others)})" if others else "")


def _row_default(declared: SettingSpec) -> str:
    return "" if declared.default in (None, "") else f"`{to_text(declared.default)}`"
