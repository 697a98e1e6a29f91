"""A client's property text, read once and stored as it came.

Nearly every text is regular, `name 0x01 value 0x02` over and over: it goes into the record without being written anew.
An irregular one is mended when no reader would miss anything, and refused when one would:

    an empty value                     left out, as every reader leaves it out
    no 0x02 at the end                 added
    a name twice                       the later one, as every reader takes it
    a seal (__CRC32#)                  left out: only the store writes it
    a piece without 0x01, or with two  refused: a name or a value held a separator, and Java's reader would drop the
                                       property without a word
"""

from ariane.broker.incoming import SEAL
from ariane.errors import MessageRefused


def read_property_text(text: str) -> tuple[dict[str, str], str]:
    """The properties, and the text that says the same and nothing else; MessageRefused when it cannot be told."""
    if text and text[-1] != "\x02":
        text += "\x02"  # clients of 4.9 leave the last one out
    properties: dict[str, str] = {}
    for pair in text.split("\x02"):
        name, _, value = pair.partition("\x01")
        if value and name:
            properties[name] = value
    # As many pairs as there are separators of either kind: so each piece is one pair, and no name comes twice.
    if text.count("\x01") == len(properties) == text.count("\x02") and SEAL not in properties:
        return properties, text
    return _mended(text)


def encoded(text: str) -> bytes:
    """The text as bytes; MessageRefused for half a surrogate pair, which a JSON header can carry and UTF-8 cannot."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        name = text[: error.start].rpartition("\x02")[2].partition("\x01")[0]
        raise MessageRefused(
            f"property {name[:80]!r} holds half a surrogate pair, which UTF-8 cannot express"
        ) from None


def decoded(data: bytes) -> str:
    """The text of a batch item's properties; MessageRefused when it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MessageRefused(f"the properties are not UTF-8 at byte {error.start}: encode them so") from None


def _mended(text: str) -> tuple[dict[str, str], str]:
    properties: dict[str, str] = {}
    for pair in text.split("\x02"):
        name, mark, value = pair.partition("\x01")
        if pair and (not mark or not name or "\x01" in value):
            raise MessageRefused(
                f"the properties cannot be told apart at {pair[:40]!r}: 0x01 and 0x02 separate them, so no name and no "
                "value may hold either; encode it differently"
            )
        if value and name != SEAL:
            properties[name] = value
    return properties, "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
