"""Settings as text: `name=value` lines, as Java's properties files have them."""

from collections.abc import Mapping

from ariane.errors import ClientError
from ariane.settings.properties_file import read_properties

# Java's broker takes each line apart at the first "=" and knows escapes; ours reads by the same rules.
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def read_table(text: str) -> dict[str, str]:
    return {entry.key: entry.value for entry in read_properties(text)}


def properties_text(settings: Mapping[str, str]) -> str:
    for name in settings:
        if not name or not name.replace(".", "").replace("_", "").isalnum():
            raise ClientError(f"{name!r} is no name of a setting: letters, digits, '.' and '_' expected")
    return "".join(f"{name}={value.translate(_ESCAPES)}\n" for name, value in settings.items())
