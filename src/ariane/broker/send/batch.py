"""Batch sends: several messages in one body, which become as many records, all or none.

They share the header's topic, queue, flags and times. What concerns a message alone is in its own properties, so these
go into the record as they came; the batch's own properties only say whether to wait (WAIT). As in Apache 4.x they get
no CLUSTER property.

There are three readers of a batch's properties, each faster and narrower than the one before:

    message by message     `BatchProperties._read_each`    everything; reports errors one table of strings
    `BatchProperties._read_table`   the same names in the same order one array of bytes     `UniformPropertiesReader`
    the same names and lengths, ASCII (wire/record/uniform_batch.py)
"""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from ariane.broker.writer import DEFERRING
from ariane.errors import MessageRefused, RecordError
from ariane.model.ids import RETRY_PREFIX
from ariane.model.message import Property
from ariane.store.append.batch import BatchKeys, DraftBatch
from ariane.store.index.entries import Int64s, row_hashes
from ariane.wire.hashes import tags_code
from ariane.wire.properties import (
    CHECKSUM_PROPERTY,
    NAME_END,
    NAME_END_BYTES,
    PAIR_END,
    PAIR_END_BYTES,
    decode_text,
    encode_text,
    keys_of,
    read_property_text,
)
from ariane.wire.record.batch import BatchColumns, split_batch
from ariane.wire.record.uniform_batch import Bytes2D, UniformBatch, UniformSizes
from ariane.wire.requests.send import Send
from ariane.wire.sys_flag import SysFlag

# --- properties as a table of strings ---------------------------------------------------------------------------------
#
# The messages of a batch mostly come from the same line of a program: they have the same properties in the same order,
# and only values differ. Then all texts, joined, are one table, which C code takes apart:
#
#     KEYS 01 a 02 TAGS 01 x 02 | 03 KEYS 01 b 02 TAGS 01 x 02 | 03 KEYS ...     names  KEYS TAGS 03.KEYS TAGS ...
#                                                                                values a    x    b       x    ...
#
# The mark 03 before each message but the first shows that a message begins where a row of the table does: no other 03
# is in the table, and as many names begin with one as there are rows to begin. What is not such a table is read message
# by message.

_SINGLE_ONLY = DEFERRING | {Property.TRANSACTION_PREPARED}
NOT_IN_TABLES = _SINGLE_ONLY | {CHECKSUM_PROPERTY}
_TAGS, _KEYS, _UNIQUE_KEY = Property.TAGS, Property.KEYS, Property.UNIQUE_KEY

_ALL_BUT_SEPARATORS = bytes(byte for byte in range(256) if byte not in (1, 2))
_PAIR = NAME_END_BYTES + PAIR_END_BYTES


class BatchProperties:
    """Its constructor raises MessageRefused when a text cannot be read, or asks for what only a single message may."""

    __slots__ = ("keys", "tags_codes", "texts", "texts_end")

    def __init__(self, texts: list[bytes]) -> None:
        self.texts = texts
        self.texts_end = PAIR_END_BYTES if texts and texts[0] and texts[0][-1] != 2 else b""
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
            cells = table.decode().replace(PAIR_END, NAME_END).split(NAME_END)
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
        key_columns = [column for column in (unique_keys, keys) if column is not None]
        texts = [""] * (len(key_columns) * count)
        for position, column in enumerate(key_columns):
            texts[position :: len(key_columns)] = column
        self.keys = BatchKeys(texts, len(key_columns))

    def _read_each(self) -> None:
        self.texts_end = b""
        repaired: list[bytes] = []
        self.tags_codes, every = [], []
        for data in self.texts:
            text = decode_text(data)
            properties, regular = read_property_text(text)
            check_no_single(properties)
            repaired.append(data if regular is text else encode_text(regular))
            self.tags_codes.append(tags_code(properties.get(_TAGS)))
            every.append(properties)
        self.texts = repaired
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


# --- one batch, message by message ------------------------------------------------------------------------------------

BATCH_COUNT_MAX = 65_536
"""More than 4 MiB hold of the smallest messages with a key."""

_TRANSACTION_BITS = int(SysFlag.TRANSACTION_TYPE)


def draft_batch(request: Send, queue_id: int, sys_flag: int, born_host: bytes) -> DraftBatch:
    """MessageRefused when the body is not a batch, or holds what only a single message may be."""
    if request.topic.startswith(RETRY_PREFIX):
        raise MessageRefused(f"a batch to {request.topic}: messages are retried one by one")
    if sys_flag & _TRANSACTION_BITS:
        raise MessageRefused(f"a batch with sysFlag {sys_flag:#x}: a transaction is a single message")
    check_no_single(read_property_text(request.properties or "")[0])
    bodies, texts, flags = items_of(request.body)
    properties = BatchProperties(texts)
    return DraftBatch(
        topic=request.topic,
        queue_id=queue_id,
        bodies=bodies,
        properties=properties.texts,
        properties_end=properties.texts_end,
        flags=flags,
        tags_codes=properties.tags_codes,
        keys=properties.keys,
        born_timestamp_ms=request.born_timestamp,
        born_host=born_host,
        sys_flag=sys_flag,
        reconsume_times=request.reconsume_times or 0,
    )


def items_of(body: bytes) -> BatchColumns:
    """MessageRefused when the body is not a batch, or when one of its messages has no body."""
    try:
        items = split_batch(body, count_max=BATCH_COUNT_MAX)
    except RecordError as error:
        raise MessageRefused(str(error)) from None
    if not items.bodies or not all(items.bodies):
        raise MessageRefused("a message of the batch has an empty body: 4.x consumers fail on it, so send a byte")
    return items


# --- properties as an array of bytes ----------------------------------------------------------------------------------
#
# The same names at the same positions in every row of a uniform batch.
#
#     KEYS 01 order-000017 02 UNIQ_KEY 01 7F0000...0017 02 TAGS 01 paid
#     KEYS 01 order-000018 02 UNIQ_KEY 01 7F0000...0018 02 TAGS 01 paid
#     ==== == ............ == ======== == ............. == ==== == ....
#
#     = as in the first row    . a value: 0x03 to 0x7F
#
# One subtraction and one comparison check that of all bytes of all rows (0.1 us a text of 100 bytes, where a table of
# strings takes 1.2): a byte that must be `low` may be so up to `low + span`, and in a name or a separator span is 0.
# No value holds a separator then, or half a character of UTF-8. Anything else, which includes all text beyond ASCII, is
# left to the reader of strings.

_VALUE_LOW, _VALUE_HIGH = 0x03, 0x7F
_BLANK = ord(" ")
_LAYOUTS_MAX = 512


class UniformProperties(NamedTuple):
    """What the store needs of the texts."""

    end: bytes
    """The last separator, if the client left it out."""
    tags_codes: int | Int64s
    keys: list[Bytes2D]


class _Layout:
    """The positions of names and values in texts of one length."""

    __slots__ = ("_keys", "_low", "_span", "_tags", "_unique_key", "end")

    def __init__(self, text: str) -> None:
        """Of an ASCII text that `_is_regular`."""
        self.end = b"" if text.endswith(PAIR_END) else PAIR_END_BYTES
        self._low = np.frombuffer(text.encode(), np.uint8).copy()
        self._span = np.zeros(len(text), np.uint8)
        values: dict[str, slice] = {}
        position = 0
        for pair in text.removesuffix(PAIR_END).split(PAIR_END):
            name, _, value = pair.partition(NAME_END)
            value_at = position + len(name) + 1
            position = value_at + len(value)
            values[name] = slice(value_at, position)
            self._low[value_at:position], self._span[value_at:position] = _VALUE_LOW, _VALUE_HIGH - _VALUE_LOW
            position += 1
        self._tags, self._keys, self._unique_key = (values.get(name) for name in (_TAGS, _KEYS, _UNIQUE_KEY))

    def read(self, texts: Bytes2D) -> UniformProperties | None:
        """None when the texts are not laid out so, or when one holds several keys."""
        if np.count_nonzero(texts - self._low > self._span):
            return None
        keys = [texts[:, position] for position in (self._unique_key, self._keys) if position is not None]
        if self._keys is not None and np.count_nonzero(keys[-1] == _BLANK):
            return None
        return UniformProperties(self.end, 0 if self._tags is None else _tags_codes(texts[:, self._tags]), keys)


class UniformPropertiesReader:
    """Caches the layout of the last texts of each length: the next nearly always have the same."""

    def __init__(self) -> None:
        self._layouts: dict[int, _Layout] = {}

    def read(self, texts: Bytes2D) -> UniformProperties | None:
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
    """Whether it is stored as it came, and has no property that only a single message may have."""
    if not text.isascii():
        return False
    try:
        properties, kept = read_property_text(text.decode())
    except MessageRefused:
        return False
    return kept.encode() in (text, text + PAIR_END_BYTES) and NOT_IN_TABLES.isdisjoint(properties)


def _tags_codes(tags: Bytes2D) -> int | Int64s:
    if not np.count_nonzero(tags != tags[0]):
        return tags_code(tags[0].tobytes().decode())
    return row_hashes(tags).view(np.int32).astype(np.int64)


# --- several batches --------------------------------------------------------------------------------------------------

UNIFORM_MIN = 64
"""Messages from which on a uniform batch is cheaper than lists: 280 us whatever its size, then 0.3 to 0.8 each."""


class Contents(NamedTuple):
    counts: Sequence[int]
    """How many messages each batch has."""
    items: UniformBatch | BatchColumns
    properties_end: bytes
    tags_codes: int | Int64s
    keys: list[Bytes2D] | BatchKeys


class ContentsReader:
    def __init__(self) -> None:
        self._properties = UniformPropertiesReader()

    def read(self, bodies: Sequence[memoryview], sizes: UniformSizes | None) -> Contents:
        """MessageRefused when one of them cannot be stored. `sizes` are of the first items, if all may have them."""
        table = None
        if sizes is not None and sum(map(len, bodies)) >= UNIFORM_MIN * sizes.size:
            table = self._read_uniform(bodies, sizes)
        return _read_columns(bodies) if table is None else table

    def _read_uniform(self, bodies: Sequence[memoryview], sizes: UniformSizes) -> Contents | None:
        counts = [len(body) // sizes.size for body in bodies]
        joined = bodies[0] if len(bodies) == 1 else b"".join(bodies)
        table = UniformBatch.of(joined, sizes) if max(counts) <= BATCH_COUNT_MAX else None
        columns = None if table is None else self._properties.read(table.texts())
        if table is None or columns is None:
            return None
        return Contents(counts, table, columns.end, columns.tags_codes, columns.keys)


def _read_columns(bodies: Sequence[memoryview]) -> Contents:
    counts: list[int] = []
    items = BatchColumns([], [], [])
    for body in bodies:
        split = items_of(bytes(body))
        counts.append(len(split.bodies))
        items.bodies.extend(split.bodies)
        items.properties.extend(split.properties)
        items.flags.extend(split.flags)
    properties = BatchProperties(items.properties)
    codes = np.array(properties.tags_codes, np.int64)
    return Contents(counts, items._replace(properties=properties.texts), properties.texts_end, codes, properties.keys)
