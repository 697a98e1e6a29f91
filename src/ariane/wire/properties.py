"""The property text: what a message carries besides its body, as it stands in records, batches and headers.

name 0x01 value 0x02 name 0x01 value 0x02 ...      UTF-8, at most 32767 bytes (a signed 16-bit length)
"""

from collections.abc import Mapping

from ariane.errors import RecordError

PROPERTIES_BYTES_MAX = 32767


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The property text, in the order of the mapping; a RecordError names the property that cannot be written."""
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    if not _is_regular(text, len(properties)):
        raise RecordError(_illegal_property(properties))
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        name = text[: error.start].rpartition("\x02")[2].partition("\x01")[0]
        raise RecordError(f"property {name!r} holds half a surrogate pair, which UTF-8 cannot express") from None
    if len(encoded) > PROPERTIES_BYTES_MAX:
        raise RecordError(_too_long(properties, len(encoded)))
    return encoded


def decode_properties(data: bytes | bytearray | memoryview) -> dict[str, str]:
    """The properties in their stored order. A pair without a name, a value or a separator is dropped.

    Everything after the first 0x01 is the value, as 5.x reads it. 4.x drops a value that holds another 0x01, but a
    property that one reader sees and the other does not is worse than an odd value, and the newer rule loses nothing.
    An empty value is dropped by both, and so by us: filters must not see a property that Java consumers do not. The
    last 0x02 may be missing. Of two pairs with one name the later wins.
    """
    return properties_of(property_text(data))


def property_text(data: bytes | bytearray | memoryview) -> str:
    """The property text as such, for who may not need the properties."""
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


def _is_regular(text: str, pairs: int) -> bool:
    """Whether only the separators that encoding put there are in `text`, and something stands between any two."""
    # Some 4 scans in C for the whole text are cheaper than looking at each name and value in Python.
    return (
        text.count("\x01") == text.count("\x02") == pairs
        and "\x01\x02" not in text
        and "\x02\x01" not in text
        and not text.startswith("\x01")
    )


def _illegal_property(properties: Mapping[str, str]) -> str:
    name = next(name for name, value in properties.items() if not _is_regular(f"{name}\x01{value}\x02", 1))
    if not name or not properties[name]:
        return f"property {name!r} has an empty name or value, which every reader drops: leave it out"
    return f"property {name!r} holds 0x01 or 0x02, which separate properties: encode the value differently"


def _too_long(properties: Mapping[str, str], size: int) -> str:
    name = max(properties, key=lambda candidate: len(properties[candidate]))
    return (
        f"the properties take {size} bytes, at most {PROPERTIES_BYTES_MAX} fit a record; "
        f"the longest is {name!r} with {len(properties[name])} characters: move it to the body"
    )
