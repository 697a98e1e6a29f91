"""A record's fields as numpy sees them, and a buffer as an array that has one at every byte.

A view whose items overlap, one at every byte, turns "the field at each of these positions" into one indexing operation:

    buffer     b0 b1 b2 b3 b4 b5 b6 b7 b8 ...
    view[0]    b0 b1 b2 b3
    view[1]       b1 b2 b3 b4
    view[2]          b2 b3 b4 b5
"""

from typing import Any

import numpy as np
import numpy.typing as npt

HEAD_TYPE = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">u4"),
        ("bodyCRC", ">i4"),
        ("queueId", ">i4"),
        ("flag", ">i4"),
        ("queueOffset", ">i8"),
        ("physicalOffset", ">i8"),
        ("sysFlag", ">i4"),
        ("bornTimestamp", ">i8"),
        ("bornHost", "V8"),
        ("storeTimestamp", ">i8"),
        ("storeHost", "V8"),
        ("reconsumeTimes", ">i4"),
        ("preparedTransactionOffset", ">i8"),
        ("bodyLength", ">i4"),
    ]
)
"""A record's fields up to bodyLength, with two IPv4 hosts; drawn in `ariane.wire.record.layout`."""
HEAD_BYTES = HEAD_TYPE.itemsize
_HEAD_BLOCK = f"V{HEAD_BYTES}"


def at_every_byte(view: memoryview, dtype: Any) -> npt.NDArray[Any]:
    """An array with one overlapping item for every byte that can begin one."""
    item = np.dtype(dtype)
    return np.ndarray((max(len(view) - item.itemsize + 1, 0),), item, buffer=view, strides=(1,))


def heads_at(view: memoryview, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.void]:
    """A copy of the first fields of the record at each position, all of which must be inside."""
    return at_every_byte(view, _HEAD_BLOCK)[positions].view(HEAD_TYPE)
