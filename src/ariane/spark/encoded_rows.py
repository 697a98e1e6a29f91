"""Rows as the body of a batch send, column by column: no Python for each row.

    4 size | 4 magic 0 | 4 crc 0 | 4 flag 0 | 4 body length | body | 2 properties length | properties

For rows that have a body and nothing but tags and keys beside, which are most. The data buffer of the joined column
goes over the wire as it is; each message ends where the column's offsets say. Everything else goes message by message,
through `outgoing.py`, which also finds the words for what is wrong: here a row that looks odd is only noticed.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ariane.spark.unique_keys import KEYS_PER_PREFIX, TaskKeys
from ariane.wire.properties import PROPERTIES_BYTES_MAX

_HEAD = np.dtype([("size", ">i4"), ("zeros", "V12"), ("body", ">i4")])
_FIXED_BYTES = _HEAD.itemsize + 2
_COLUMNS = frozenset({"body", "tags", "keys"})
_ODD_TEXT = r"[\x01\x02]|\|\||^\s+$|^ | $|  "
_BODY_BYTES_MAX = 1024 * 1024  # larger ones travel alone


class EncodedRows(NamedTuple):
    data: memoryview
    ends: np.ndarray[Any, Any]
    """Where each message begins in `data`, and where the last one ends."""

    def pieces(self, count_max: int, bytes_max: int) -> Iterator[tuple[int, bytes]]:
        """How many messages, and their bytes; a message that is larger than `bytes_max` is alone."""
        ends, start, count = self.ends, 0, len(self.ends) - 1
        while start < count:
            fit = int(np.searchsorted(ends, ends[start] + bytes_max, "right")) - 1
            end = min(max(fit, start + 1), start + count_max, count)
            yield end - start, bytes(self.data[ends[start] : ends[end]])
            start = end


def can_encode(schema: pa.Schema) -> bool:
    """Arrays of keys, maps, queues and delays are for the other way."""
    text = (pa.types.is_string, pa.types.is_large_string)
    return set(schema.names) <= _COLUMNS and all(
        any(is_text(field.type) for is_text in text) for field in schema if field.name != "body"
    )


def encode_rows(batch: pa.RecordBatch, keys: TaskKeys) -> EncodedRows | None:
    """None when some row needs a closer look; then no key is used up."""
    body = batch.column("body").cast(pa.binary())
    if body.null_count or not _are_sendable(body):
        return None
    texts = [(name.upper(), batch.column(name)) for name in ("keys", "tags") if name in batch.schema.names]
    if any(_is_odd(column) for _, column in texts):
        return None
    pieces = [_property(name, column) for name, column in texts]
    unique = _unique_keys(keys, batch.num_rows)
    properties = pc.binary_join_element_wise(*pieces, "WAIT\x01true\x02UNIQ_KEY\x01", unique, "\x02", "")
    properties = properties.cast(pa.binary())
    lengths, bodies = _lengths(properties), _lengths(body)
    if lengths.size and lengths.max() > PROPERTIES_BYTES_MAX:
        return None
    joined = pc.binary_join_element_wise(_heads(bodies, lengths), body, _shorts(lengths), properties, b"")
    ends = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset : joined.offset + len(joined) + 1]
    return EncodedRows(memoryview(joined.buffers()[2]), ends)


def _are_sendable(body: pa.BinaryArray) -> bool:
    lengths = _lengths(body)
    return not lengths.size or (lengths.min() > 0 and int(lengths.max()) <= _BODY_BYTES_MAX)


def _is_odd(column: pa.StringArray) -> bool:
    return bool(pc.any(pc.match_substring_regex(column, _ODD_TEXT)).as_py())


def _property(name: str, column: pa.StringArray) -> pa.StringArray:
    """`NAME 0x01 value 0x02`, or nothing where the column has no value."""
    column = column.cast(pa.string())
    text = pc.binary_join_element_wise(f"{name}\x01", column, "\x02", "")
    has_none = pc.or_kleene(pc.is_null(column), pc.equal(column, ""))
    return pc.if_else(has_none, "", text)


def _unique_keys(keys: TaskKeys, count: int) -> pa.StringArray:
    pieces = [
        pc.binary_join_element_wise(prefix, _low_parts().slice(low, some), "") for prefix, low, some in keys.take(count)
    ]
    return pa.concat_arrays(pieces) if pieces else pa.array([], pa.string())


@cache
def _low_parts() -> pa.StringArray:
    """0000 to FFFF. Of bytes, because pyarrow imports pandas to look at a list."""
    text = "".join([f"{low:04X}" for low in range(KEYS_PER_PREFIX)]).encode()
    offsets = np.arange(0, len(text) + 1, 4, dtype=np.int32)
    return pa.StringArray.from_buffers(KEYS_PER_PREFIX, pa.py_buffer(offsets.tobytes()), pa.py_buffer(text))


def _lengths(column: pa.BinaryArray) -> np.ndarray[Any, Any]:
    return np.diff(np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1])


def _heads(bodies: np.ndarray[Any, Any], properties: np.ndarray[Any, Any]) -> pa.BinaryArray:
    heads = np.zeros(len(bodies), _HEAD)
    heads["size"] = bodies + properties + _FIXED_BYTES
    heads["body"] = bodies
    return _fixed(heads)


def _shorts(lengths: np.ndarray[Any, Any]) -> pa.BinaryArray:
    return _fixed(lengths.astype(">i2"))


def _fixed(values: np.ndarray[Any, Any]) -> pa.BinaryArray:
    kind = pa.binary(values.dtype.itemsize)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values.tobytes())]).cast(pa.binary())
