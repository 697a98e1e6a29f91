"""The property texts of many records, one behind the other, ready to be cut.

    name 0x01 value 0x02 name 0x01 value 0x02 ...        the last 0x02 may be missing

They are gathered with the byte before each of them, which becomes a 0x02, and without the 0x02 at the end. So every
pair follows a 0x02, and ends before the next one or with the data:

    2 name 1 value 2 name 1 value │ 2 name 1 value │ 2 name 1 value 2 name 1 value
    record 0                        record 1         record 2
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from ariane.arrow.rows import Rows
from ariane.arrow.source import Bytes, Int64s, Source, data_of, offsets_of

NAME_ENDS, VALUE_ENDS = 1, 2


@dataclass(frozen=True, eq=False)
class PropertyTexts:
    rows: int
    """Of the batch, with and without a text."""
    row: Int64s
    """Numbers of the rows that have a text."""
    starts: Int64s
    """Where the 0x02 before each text is in the data."""
    data: Bytes
    """UTF-8 throughout."""

    @cached_property
    def source(self) -> Source:
        return Source(self.data)

    @property
    def is_dense(self) -> bool:
        """Whether every row has a text."""
        return len(self.row) == self.rows

    def text(self, number: int) -> bytes:
        """One text alone."""
        end = int(self.starts[number + 1]) if number + 1 < len(self.starts) else len(self.data)
        return self.data[int(self.starts[number]) + 1 : end].tobytes()


def property_texts(rows: Rows) -> PropertyTexts:
    position, length = rows.text_position, rows.text_length
    ends = position + length
    length = length - (rows.source.bytes[ends - 1] == VALUE_ENDS)  # without a text, some other byte: see the next line
    has_text = (length > 0) & (rows.text_length > 0)
    number = np.flatnonzero(has_text)
    if len(number) < len(rows):
        position, length = position[number], length[number]
    gathered = rows.source.spans(position - 1, length + 1, pa.binary())
    starts = offsets_of(gathered)[:-1].astype(np.int64)
    data = data_of(gathered)
    data = data if data.flags.writeable else data.copy()
    data[starts] = VALUE_ENDS
    return _as_text(PropertyTexts(len(rows), number, starts, data))


def _as_text(texts: PropertyTexts) -> PropertyTexts:
    """What is not UTF-8 becomes U+FFFD, as in Java's consumers: an odd property must not cost the message."""
    if not len(texts.data) or texts.data.max() < 0x80:
        return texts
    try:
        str(texts.data.data, "utf-8")
    except UnicodeDecodeError:
        mended = [b"\x02" + texts.text(number).decode(errors="replace").encode() for number in range(len(texts.row))]
        lengths = np.fromiter(map(len, mended), np.int64, len(mended))
        data = np.frombuffer(b"".join(mended), np.uint8)
        return PropertyTexts(texts.rows, texts.row, np.cumsum(lengths) - lengths, data)
    return texts
