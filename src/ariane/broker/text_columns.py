"""The property texts of a table of batches: the same names at the same places in every row.

    KEYS 01 order-000017 02 UNIQ_KEY 01 7F0000...0017 02 TAGS 01 paid
    KEYS 01 order-000018 02 UNIQ_KEY 01 7F0000...0018 02 TAGS 01 paid
    ==== == ............ == ======== == ............. == ==== == ....

    = as in the first row    . a value: 0x03 to 0x7F

One subtraction and one comparison check that of all bytes of all rows (0.1 us a text of 100 bytes, where a table of
strings takes 1.2): a byte that must be `low` may be so up to `low + span`, and in a name or a separator span is 0.
No value holds a separator then, or half a character of UTF-8. What is not so - which is rare, and includes all
text beyond ASCII - is left to the way that reads message by message.
"""

from typing import NamedTuple

import numpy as np

from ariane.broker.batch_properties import NOT_IN_TABLES
from ariane.broker.property_text import read_property_text
from ariane.errors import MessageRefused
from ariane.model.message import Property
from ariane.store.item_table import Bytes2D
from ariane.store.key_hash import Int64s, row_hashes
from ariane.wire.java_hash import tags_code

_TAGS, _KEYS, _UNIQUE_KEY = Property.TAGS, Property.KEYS, Property.UNIQUE_KEY
_VALUE_LOW, _VALUE_HIGH = 0x03, 0x7F
_BLANK = ord(" ")
_LAYOUTS_MAX = 512


class TextColumns(NamedTuple):
    """What the store wants to know of the texts."""

    end: bytes
    """The last separator, if the client left it out."""
    tags_codes: int | Int64s
    keys: list[Bytes2D]


class _Layout:
    """Where names and values stand in texts of one length."""

    __slots__ = ("_keys", "_low", "_span", "_tags", "_unique_key", "end")

    def __init__(self, text: str) -> None:
        """Of a text in ASCII that `_is_regular`."""
        self.end = b"" if text.endswith("\x02") else b"\x02"
        self._low = np.frombuffer(text.encode(), np.uint8).copy()
        self._span = np.zeros(len(text), np.uint8)
        places: dict[str, slice] = {}
        position = 0
        for pair in text.removesuffix("\x02").split("\x02"):
            name, _, value = pair.partition("\x01")
            value_at = position + len(name) + 1
            position = value_at + len(value)
            places[name] = slice(value_at, position)
            self._low[value_at:position], self._span[value_at:position] = _VALUE_LOW, _VALUE_HIGH - _VALUE_LOW
            position += 1
        self._tags, self._keys, self._unique_key = (places.get(name) for name in (_TAGS, _KEYS, _UNIQUE_KEY))

    def read(self, texts: Bytes2D) -> TextColumns | None:
        """None when the texts are not laid out so, or when one holds several keys."""
        if np.count_nonzero(texts - self._low > self._span):
            return None
        keys = [texts[:, place] for place in (self._unique_key, self._keys) if place is not None]
        if self._keys is not None and np.count_nonzero(keys[-1] == _BLANK):
            return None
        return TextColumns(self.end, 0 if self._tags is None else _tags_codes(texts[:, self._tags]), keys)


class TextReader:
    """Remembers how the last texts of each length were laid out: nearly always, so are the next."""

    def __init__(self) -> None:
        self._layouts: dict[int, _Layout] = {}

    def read(self, texts: Bytes2D) -> TextColumns | None:
        """None when the texts have to be read one by one."""
        length = texts.shape[1]
        layout = self._layouts.get(length)
        columns = layout.read(texts) if layout is not None else None
        if columns is not None:
            return columns
        first = texts[0].tobytes()
        if not _is_regular(first):
            return None
        if len(self._layouts) >= _LAYOUTS_MAX:
            self._layouts.clear()
        layout = self._layouts[length] = _Layout(first.decode())
        return layout.read(texts)


def _is_regular(text: bytes) -> bool:
    """Whether it is stored as it came, and asks for nothing that only a single message may."""
    if not text.isascii():
        return False
    try:
        properties, kept = read_property_text(text.decode())
    except MessageRefused:
        return False
    return kept.encode() in (text, text + b"\x02") and NOT_IN_TABLES.isdisjoint(properties)


def _tags_codes(tags: Bytes2D) -> int | Int64s:
    if not np.count_nonzero(tags != tags[0]):
        return tags_code(tags[0].tobytes().decode())
    return row_hashes(tags).view(np.int32).astype(np.int64)
