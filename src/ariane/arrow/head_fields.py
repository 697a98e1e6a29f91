"""The fields of many heads, by name.

Columns    one array for each field that nearly every reader asks for; others are gathered when somebody asks for them
Heads      whole heads, one behind the other: few, or those of another layout, whose fields were moved to their places
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ariane.arrow.source import Bools, Int64s, Source
from ariane.wire.record_fields import HEAD_TYPE

Array: TypeAlias = npt.NDArray[Any]


class Columns:
    """Of records at these positions, with IPv4 hosts. Arrays are shared: nobody may write to them."""

    __slots__ = ("_columns", "_positions", "_source")

    def __init__(self, source: Source, positions: Int64s, columns: dict[str, Array]) -> None:
        self._source = source
        self._positions = positions
        self._columns = columns

    def __getitem__(self, name: str) -> Array:
        column = self._columns.get(name)
        if column is None:
            kind, at = place_of(name)
            column = self._columns[name] = self._source.at_every_byte(kind)[self._positions + at]
        return column

    def take(self, which: Int64s | Bools) -> "Columns":
        chosen = {name: column[which] for name, column in self._columns.items()}
        return Columns(self._source, self._positions[which], chosen)


class Heads:
    __slots__ = ("_heads",)

    def __init__(self, heads: npt.NDArray[np.void]) -> None:
        self._heads = heads

    def __getitem__(self, name: str) -> Array:
        column: Array = self._heads[name]
        return column

    def take(self, which: Int64s | Bools) -> "Heads":
        """As blocks without names: to choose from arrays with named fields is slow."""
        heads = self._heads
        blocks = np.ndarray(heads.shape, f"V{heads.itemsize}", heads)[which]
        return Heads(np.ndarray(blocks.shape, heads.dtype, blocks))


Fields: TypeAlias = Columns | Heads


assert HEAD_TYPE.names is not None
HEAD_NAMES = HEAD_TYPE.names


def place_of(name: str) -> tuple[np.dtype[Any], int]:
    """The type of a field, and where it is in a head."""
    assert HEAD_TYPE.fields is not None
    kind, at, *_ = HEAD_TYPE.fields[name]
    return kind, at
