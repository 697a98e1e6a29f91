"""The property text: what a message carries besides its body, as it stands in records, batches and headers.

    name 0x01 value 0x02 name 0x01 value 0x02 ...      UTF-8, at most 32767 bytes (a signed 16-bit length)

Every writer and reader of that text is here, or imports the two separators from here. A text is *regular* when it is
exactly that: a broker stores a regular text as it came.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ariane.errors import MessageRefused, RecordError
from ariane.model.message import Property

PROPERTIES_BYTES_MAX = 32767

NAME_END, PAIR_END = "\x01", "\x02"
"""The separators: behind a name, and behind a value."""
NAME_END_BYTES, PAIR_END_BYTES = NAME_END.encode(), PAIR_END.encode()

CHECKSUM_PROPERTY = "__CRC32#"
"""The property that a record with a checksum ends with (record/layout.py). Only the store writes it: a record that ends
with another record's checksum would count as damaged, and with it all that follows it in the log."""


# --- writing ----------------------------------------------------------------------------------------------------------


def property_pair(name: str, value: str) -> str:
    """One property as text, unchecked."""
    return f"{name}\x01{value}\x02"


def join_properties(pairs: Iterable[tuple[str, str]]) -> str:
    """The text of these pairs, unchecked: for names and values that are known to hold no separator."""
    return "".join([f"{name}\x01{value}\x02" for name, value in pairs])


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The property text, in the order of the mapping; a RecordError names the property that cannot be written."""
    text = join_properties(properties.items())
    if not _has_pairs(text, len(properties)):
        raise RecordError(_illegal_property(properties))
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise RecordError(_half_a_surrogate_pair(text, error)) from None
    if len(encoded) > PROPERTIES_BYTES_MAX:
        raise RecordError(_too_long(properties, len(encoded)))
    return encoded


def encode_text(text: str) -> bytes:
    """A text as bytes; MessageRefused for half a surrogate pair, which a JSON header can carry and UTF-8 cannot."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise MessageRefused(_half_a_surrogate_pair(text, error)) from None


def _has_pairs(text: str, pairs: int) -> bool:
    """Whether only the separators that encoding put there are in `text`, and something stands between any two."""
    # Some 4 scans in C for the whole text are cheaper than looking at each name and value in Python.
    return (
        text.count("\x01") == text.count("\x02") == pairs
        and "\x01\x02" not in text
        and "\x02\x01" not in text
        and not text.startswith("\x01")
    )


def _half_a_surrogate_pair(text: str, error: UnicodeEncodeError) -> str:
    name = text[: error.start].rpartition("\x02")[2].partition("\x01")[0]
    return f"property {name[:80]!r} holds half a surrogate pair, which UTF-8 cannot express"


def _illegal_property(properties: Mapping[str, str]) -> str:
    name = next(name for name, value in properties.items() if not _has_pairs(f"{name}\x01{value}\x02", 1))
    if not name or not properties[name]:
        return f"property {name!r} has an empty name or value, which every reader drops: leave it out"
    return f"property {name!r} holds 0x01 or 0x02, which separate properties: encode the value differently"


def _too_long(properties: Mapping[str, str], size: int) -> str:
    name = max(properties, key=lambda candidate: len(properties[candidate]))
    return (
        f"the properties take {size} bytes, at most {PROPERTIES_BYTES_MAX} fit a record; "
        f"the longest is {name!r} with {len(properties[name])} characters: move it to the body"
    )


WAIT_TRUE, WAIT_FALSE = property_pair(Property.WAIT, "true"), property_pair(Property.WAIT, "false")
UNIQUE_KEY_START = Property.UNIQUE_KEY + NAME_END
"""For hot code that writes the property by an f-string."""


# --- reading what is stored -------------------------------------------------------------------------------------------


def decode_properties(data: bytes | bytearray | memoryview) -> dict[str, str]:
    """The properties in their stored order. A pair without a name, a value or a separator is dropped.

    Everything after the first 0x01 is the value, as 5.x reads it. 4.x drops a value that holds another 0x01, but a
    property that one reader sees and the other does not is worse than an odd value, and the newer rule loses nothing.
    Both drop an empty value, and so does this function: filters must not see a property that Java consumers do not. The
    last 0x02 may be missing. Of two pairs with one name the later wins.
    """
    return properties_of(property_text(data))


def property_text(data: bytes | bytearray | memoryview) -> str:
    """The property text as such, for callers that may not need the properties."""
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise RecordError(
            f"the property text is not UTF-8 at byte {error.start}: the sender must encode it so"
        ) from None


def properties_of(text: str) -> dict[str, str]:
    """The properties of such a text."""
    # This loop covers every irregular text, and measures within a tenth or so of the shortcut that pairs up all pieces
    # of text.replace("\x02", "\x01").split("\x01"), which reads a text with a stray separator wrongly.
    properties: dict[str, str] = {}
    for pair in text.split("\x02"):
        name, _, value = pair.partition("\x01")
        if value and name:
            properties[name] = value
    return properties


# --- reading what a client sends --------------------------------------------------------------------------------------
#
# An irregular text is repaired when no reader would miss anything, and refused when one would:
#
#     an empty value                     left out, as every reader leaves it out
#     no 0x02 at the end                 added
#     a name twice                       the later one, as every reader takes it
#     a checksum (__CRC32#)              left out: only the store writes it
#     a piece without 0x01, or with two  refused: a name or a value held a separator, and Java's reader would drop the
#                                        property without a word


def read_property_text(text: str) -> tuple[dict[str, str], str]:
    """The properties, and the regular text that says the same; MessageRefused when properties cannot be separated."""
    if text and text[-1] != "\x02":
        text += "\x02"  # clients of 4.9 leave the last one out
    properties = properties_of(text)
    # As many pairs as there are separators of either kind: so each piece is one pair, and no name comes twice.
    if text.count("\x01") == len(properties) == text.count("\x02") and CHECKSUM_PROPERTY not in properties:
        return properties, text
    return _repaired(text)


def _repaired(text: str) -> tuple[dict[str, str], str]:
    properties: dict[str, str] = {}
    for pair in text.split("\x02"):
        name, separator, value = pair.partition("\x01")
        if pair and (not separator or not name or "\x01" in value):
            raise MessageRefused(
                f"the properties cannot be separated at {pair[:40]!r}: 0x01 and 0x02 separate them, so no name and no "
                "value may hold either; encode it differently"
            )
        if value and name != CHECKSUM_PROPERTY:
            properties[name] = value
    return properties, join_properties(properties.items())


def decode_text(data: bytes) -> str:
    """The property text of a batch item; MessageRefused when it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MessageRefused(f"the properties are not UTF-8 at byte {error.start}: encode them so") from None


# --- the fast reader of what a client sends ---------------------------------------------------------------------------
#
# A producer writes the same few properties with each message. After some texts with the same names these names become a
# pattern, which checks the next text and extracts the values that a broker looks at in one pass: 0.6 us, where a dict
# of all pairs takes 1.7. A text that matches needs no further check: its separators alternate, no value is empty,
# no name comes twice, and a response can repeat its unique key without escapes. So `match` finds only regular texts,
# which may lack their last 0x02, and reads them as `read_property_text` does.

PATTERN_VALUES = (Property.UNIQUE_KEY, Property.KEYS, Property.TAGS, Property.WAIT)
"""What a pattern extracts, in this order; None for what is not there."""

SEEN_BEFORE = 8
"""Texts with the same names, before these get a pattern: compiling one takes a quarter of a millisecond."""

_NAMES_MAX = 32
_PATTERNS_MAX = 512


class PropertyPattern(NamedTuple):
    match: Callable[[str], "re.Match[str] | None"]
    groups: tuple[int, int, int, int]
    """The numbers of the pattern's groups that hold PATTERN_VALUES: `match(text).group(*groups)`."""
    is_ordered: bool
    """Whether there is a sharding key."""
    is_half: bool
    """Whether TRAN_MSG is there, and true."""
    delay_group: int
    """That of a delay level without a leading zero; 0 when there is none."""


NO_PATTERN = PropertyPattern(re.compile("(?!)").match, (0, 0, 0, 0), False, False, 0)
"""Matches no text."""


class PropertyPatternCache:
    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], int] = {}
        self._patterns: dict[tuple[str, ...], PropertyPattern] = {}

    def of(self, names: Iterable[str]) -> PropertyPattern:
        """The pattern of texts with these names; NO_PATTERN as long as they are new, or too many."""
        key = tuple(names)
        pattern = self._patterns.get(key)
        if pattern is not None:
            return pattern
        if len(self._seen) >= _PATTERNS_MAX:  # a client makes names up: forget all; those of the others are soon back
            self._seen.clear()
            self._patterns.clear()
        times = self._seen[key] = self._seen.get(key, 0) + 1
        if times < SEEN_BEFORE or len(key) > _NAMES_MAX:
            return NO_PATTERN
        pattern = self._patterns[key] = property_pattern_of(key)
        return pattern


def property_pattern_of(names: tuple[str, ...]) -> PropertyPattern:
    """The last 0x02 may be missing. Possessive (`++`): a text that does not match fails without backtracking."""
    values = [name for name in names if name in _GROUPED]
    pairs = [f"{re.escape(name)}\x01{_VALUE_PATTERNS.get(name, _VALUE)}" for name in names]
    compiled = re.compile("\x02".join(pairs) + (_END if names else "") + _NEVER)
    unique_key, keys, tags, wait = (
        values.index(name) + 1 if name in values else len(values) + 1 for name in PATTERN_VALUES
    )
    return PropertyPattern(
        compiled.fullmatch,
        (unique_key, keys, tags, wait),
        Property.SHARDING_KEY in names,
        Property.TRANSACTION_PREPARED in names,
        values.index(Property.DELAY) + 1 if Property.DELAY in values else 0,
    )


_VALUE = "[^\x01\x02]++"
# A unique key of letters and digits can stand in a JSON response as it is: matched here, it need not be checked again,
# which would take 0.2 us.
_VALUE_PATTERNS = dict.fromkeys(PATTERN_VALUES, f"({_VALUE})") | {
    Property.UNIQUE_KEY: "([0-9A-Za-z]++)",
    Property.TRANSACTION_PREPARED: "true",
    Property.DELAY: "([1-9][0-9]?)",
}
_GROUPED = frozenset({*PATTERN_VALUES, Property.DELAY})
_END = "\x02?"
_NEVER = "(?:(?!)(.))?"  # a last group that holds nothing, for values that are not there


# --- keys of the index ------------------------------------------------------------------------------------------------


def keys_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    return index_keys(properties.get(Property.UNIQUE_KEY), properties.get(Property.KEYS))


def index_keys(unique_key: str | None, keys: str | None) -> tuple[str, ...]:
    """What the index keeps: the unique key first, then the user's own keys, which blanks separate."""
    if keys is None:
        return (unique_key,) if unique_key else ()
    if unique_key and " " not in keys:  # the common case
        return unique_key, keys
    words = [key for key in keys.split(" ") if key]
    return (unique_key, *words) if unique_key else tuple(words)
