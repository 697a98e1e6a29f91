"""The properties of all messages of a batch, read at once.

The messages of a batch mostly come from the same line of a program: they have the same properties in the same order,
and only values differ. Then all texts, joined, are one table, which C code takes apart:

    KEYS 01 a 02 TAGS 01 x 02 | 03 KEYS 01 b 02 TAGS 01 x 02 | 03 KEYS ...     names  KEYS TAGS 03.KEYS TAGS ...
                                                                               values a    x    b       x    ...

The mark 03 before each message but the first shows that a message begins where a row of the table does: no other 03 is
in the table, and as many names begin with one as there are rows to begin. What is not such a table is read message by
message.
"""

from itertools import chain

from ariane.broker.delay_rewrite import DEFERRING
from ariane.broker.incoming import SEAL, keys_of
from ariane.broker.property_text import decoded, encoded, read_property_text
from ariane.errors import MessageRefused
from ariane.model.message import Property
from ariane.store.draft_batch import BatchKeys
from ariane.wire.java_hash import tags_code

_SINGLE_ONLY = DEFERRING | {Property.TRANSACTION_PREPARED}
NOT_IN_TABLES = _SINGLE_ONLY | {SEAL}
_TAGS, _KEYS, _UNIQUE_KEY = Property.TAGS, Property.KEYS, Property.UNIQUE_KEY

_ALL_BUT_SEPARATORS = bytes(byte for byte in range(256) if byte not in (1, 2))
_PAIR = b"\x01\x02"


class BatchProperties:
    """MessageRefused, from its making, when a text cannot be read, or asks for what only a single message may."""

    __slots__ = ("keys", "tags_codes", "texts", "texts_end")

    def __init__(self, texts: list[bytes]) -> None:
        self.texts = texts
        self.texts_end = b"\x02" if texts and texts[0] and texts[0][-1] != 2 else b""
        """What each text lacks: clients of 4.9 leave the last separator out."""
        self.tags_codes: list[int]
        self.keys: BatchKeys
        if not self._read_table():
            self._read_each()

    def _read_table(self) -> bool:
        """Whether the texts are a table, without an empty value."""
        count = len(self.texts)
        table = (self.texts_end + b"\x03").join(self.texts) + self.texts_end
        separators = table.translate(None, _ALL_BUT_SEPARATORS)
        width = len(separators) // (2 * count)
        if separators != _PAIR * (width * count) or table.count(b"\x03") != count - 1:
            return False
        try:
            cells = table.decode().replace("\x02", "\x01").split("\x01")
        except UnicodeDecodeError:
            return False
        names = cells[: 2 * width : 2]
        following = ["\x03" + name for name in names[:1]] + names[1:]
        if cells[::2] != [*names, *following * (count - 1), ""]:
            return False
        if len(set(names)) != width or not NOT_IN_TABLES.isdisjoint(names) or cells.count("") != 1:
            return False
        self._take(dict(zip(names, (cells[column :: 2 * width] for column in range(1, 2 * width, 2)), strict=True)))
        return True

    def _take(self, columns: dict[str, list[str]]) -> None:
        count = len(self.texts)
        tags, keys, unique_keys = (columns.get(name) for name in (_TAGS, _KEYS, _UNIQUE_KEY))
        codes = {tag: tags_code(tag) for tag in set(tags or ())}
        self.tags_codes = [0] * count if tags is None else [codes[tag] for tag in tags]
        if keys is not None and " " in "".join(keys):
            rows = zip(*columns.values(), strict=True)
            self.keys = _keys_of_each([dict(zip(columns, row, strict=True)) for row in rows])
            return
        found = [column for column in (unique_keys, keys) if column is not None]
        texts = [""] * (len(found) * count)
        for place, column in enumerate(found):
            texts[place :: len(found)] = column
        self.keys = BatchKeys(texts, len(found))

    def _read_each(self) -> None:
        self.texts_end = b""
        mended: list[bytes] = []
        self.tags_codes, every = [], []
        for came in self.texts:
            text = decoded(came)
            properties, regular = read_property_text(text)
            check_no_single(properties)
            mended.append(came if regular is text else encoded(regular))
            self.tags_codes.append(tags_code(properties.get(_TAGS)))
            every.append(properties)
        self.texts = mended
        self.keys = _keys_of_each(every)


def _keys_of_each(every: list[dict[str, str]]) -> BatchKeys:
    keys = list(map(keys_of, every))
    return BatchKeys(list(chain.from_iterable(keys)), list(map(len, keys)))


def check_no_single(properties: dict[str, str]) -> None:
    """MessageRefused when the properties ask for what only a single message may."""
    if _SINGLE_ONLY.isdisjoint(properties):
        return
    for name in _SINGLE_ONLY.intersection(properties):
        if name != Property.DELAY or properties[name] != "0":  # level 0 is what Java writes for "no delay"
            raise MessageRefused(f"a batch with property {name}: send delayed and transactional messages one by one")
