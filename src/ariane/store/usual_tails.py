"""What stands behind the bodies of many records, joined: topics and properties, and what queues and index keep of them.

The lengths in between become 0x02, which ends a property anyway. So each topic and each property follows one, and ends
before the next or with the last tail:

    2 topic 2 2 name 1 value 2 name 1 value 2 │ 2 topic 2 2 name 1 value │ 2 topic 2 2 name 1 value 2
    record 0                                    record 1                   record 2, the last

Only three names are looked for. The answer is that of `RecordView.dispatch_facts`: of two values the later one counts,
and an empty one is none.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ariane.model.message import Property
from ariane.wire.java_hash import tags_code
from ariane.wire.record_fields import at_every_byte

Int64s: TypeAlias = npt.NDArray[np.int64]

_NAME_ENDS, _VALUE_ENDS = 1, 2
_ROOM = bytes(16)
"""Behind the tails, so that a name can be compared wherever one begins."""


class Facts(NamedTuple):
    tags_codes: list[int]
    keys: list[Sequence[str]]
    """Of each record, the unique key first."""


class Tails(NamedTuple):
    data: bytes
    begins: Int64s
    """Where each tail begins, and where the last one ends."""
    topic_lengths: Int64s

    @classmethod
    def joined(cls, pieces: Iterable[memoryview], lengths: Int64s, topic_lengths: Int64s) -> "Tails":
        data = bytearray().join(pieces)
        begins = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        lengths_at = begins[:-1] + topic_lengths
        places = np.frombuffer(data, np.uint8)
        for at in (begins[:-1], lengths_at + 1, lengths_at + 2):
            places[at] = _VALUE_ENDS
        return cls(bytes(data), begins, topic_lengths)

    def first(self, count: int) -> "Tails":
        return Tails(self.data[: self.begins[count]], self.begins[: count + 1], self.topic_lengths[:count])

    def count_plain(self) -> int:
        """Tails before one that is not UTF-8, or that has a zero, as a page has that was lost (log_recovery.py).

        Of what is not UTF-8 it is not known where it is: the first tail that is not ASCII counts.
        """
        if b"\0" not in self.data and (self.data.isascii() or _is_utf8(self.data)):
            return len(self.topic_lengths)
        first = int((np.frombuffer(self.data, np.int8) <= 0).argmax())
        return int(np.searchsorted(self.begins, first, side="right")) - 1

    def topics(self) -> list[str]:
        begins = self.begins[:-1] + 1
        return list(map(self._text_at(), map(slice, begins.tolist(), (begins + self.topic_lengths).tolist())))

    @property
    def _text_begins(self) -> Int64s:
        return self.begins[:-1] + 3 + self.topic_lengths

    def text(self, number: int) -> bytes:
        """The properties of one record."""
        return self.data[self._text_begins[number] : self.begins[number + 1]]

    def _text_at(self) -> Callable[[slice], str]:
        """What cuts out a text; where all is ASCII from one long text, which takes half the time."""
        joined = self.data
        return joined.decode().__getitem__ if joined.isascii() else lambda place: joined[place].decode()

    # --- properties -------------------------------------------------------------------------------------------------

    def facts(self) -> Facts:
        data = np.frombuffer(self.data + _ROOM, np.uint8)
        separators = np.append(np.flatnonzero(data == _VALUE_ENDS), len(self.data))
        tags, unique_keys, keys = (
            self._values(name, data, separators) for name in (Property.TAGS, Property.UNIQUE_KEY, Property.KEYS)
        )
        codes = {tag: tags_code(tag) for tag in set(tags)}
        return Facts(list(map(codes.__getitem__, tags)), self._all_keys(unique_keys, keys))

    def _all_keys(self, unique_keys: list[str | None], keys: list[str | None]) -> list[Sequence[str]]:
        """The usual cases are one call for all: each message has a unique key, or keys, or both, and keys are one."""
        if b" " not in self.data:
            some = [column for column in (unique_keys, keys) if any(column)]
            if not any(None in column for column in some):
                return list(zip(*some, strict=True)) if some else [()] * len(keys)
        return list(map(_together, unique_keys, keys))

    def _values(self, name: str, data: npt.NDArray[np.uint8], separators: Int64s) -> list[str | None]:
        """The value that each record has, None where there is none."""
        begins, ends = _places_of(name.encode(), data, separators)
        numbers = np.searchsorted(self._text_begins, begins, side="right") - 1
        is_property = (numbers >= 0) & (begins < self.begins[numbers + 1])  # and no part of a strange topic
        if not is_property.all():
            numbers, begins, ends = numbers[is_property], begins[is_property], ends[is_property]
        texts = map(self._text_at(), map(slice, begins.tolist(), ends.tolist()))
        values: list[str | None] = [None] * len(self.topic_lengths)
        if np.array_equal(numbers, np.arange(len(values))):
            return list(texts)
        for number, text in zip(numbers.tolist(), texts, strict=True):
            values[number] = text
        return values


def _places_of(name: bytes, data: npt.NDArray[np.uint8], separators: Int64s) -> tuple[Int64s, Int64s]:
    """Where the values of this name begin and end."""
    kind = np.dtype(f"<u{len(name)}")  # compared as one number, which is fast: the names have 4 and 8 letters
    found = np.flatnonzero(at_every_byte(data.data, kind)[separators[:-1] + 1] == np.frombuffer(name, kind)[0])
    name_ends, ends = separators[found] + 1 + len(name), separators[found + 1]
    has_value = (data[name_ends] == _NAME_ENDS) & (name_ends + 1 < ends)
    return name_ends[has_value] + 1, ends[has_value]


def _together(unique_key: str | None, keys: str | None) -> Sequence[str]:
    words = () if keys is None else (keys,) if " " not in keys else tuple(word for word in keys.split(" ") if word)
    return words if unique_key is None else (unique_key, *words)


def _is_utf8(joined: bytes) -> bool:
    """Of all together, so of each: what separates them is no part of a character."""
    try:
        joined.decode()
    except UnicodeDecodeError:
        return False
    return True
