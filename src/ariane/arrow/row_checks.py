"""Whether there are whole records at many positions at once, and where their parts are.

The checks are those of `ariane.wire.record_view.verify`; for a record that fails, `verify` is asked for the reason, so
that both tell the same.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ariane.arrow.fronts import gather_fronts
from ariane.arrow.head_fields import Heads
from ariane.arrow.rows import Rows
from ariane.arrow.source import STORE_HOST_AT, Bools, Int64s, Source, is_all
from ariane.arrow.topics import TopicSpans
from ariane.arrow.usual_rows import usual_rows
from ariane.wire.host import HOST_BYTES_V4, HOST_BYTES_V6
from ariane.wire.record import (
    BLANK_BYTES_MIN,
    BLANK_MAGIC,
    HOST_BITS,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MAX,
    RECORD_BYTES_MIN,
)
from ariane.wire.record_fields import HEAD_BYTES, heads_at
from ariane.wire.sys_flag import SysFlag

_BORN_HOST_V6 = int(SysFlag.BORN_HOST_V6)
_STORE_HOST_V6 = int(SysFlag.STORE_HOST_V6)
_V6_MORE = HOST_BYTES_V6 - HOST_BYTES_V4
_STORE_TIMESTAMP_AT = 56
_BEHIND_HOSTS_AT = 72


class Checked(NamedTuple):
    rows: Rows
    """The records whose lengths add up."""
    numbers: Int64s
    """Which they are among the positions that were asked for."""
    broken: Int64s
    """Which of the positions hold neither a record nor a blank."""


def check_rows(
    source: Source, positions: Int64s, limit: int, base: int | None, size_max: int = RECORD_BYTES_MAX
) -> Checked:
    """The records at these positions, which ascend and of which only the bytes before `limit` count.

    With `base`, the physical offset of the source's first byte, a record must stand where it says that it does.
    """
    if len(positions) and positions[-1] > limit - HEAD_BYTES:
        return _with_tail(source, positions, limit, base, size_max)
    if len(positions):
        usual = usual_rows(source, gather_fronts(source, positions, limit), positions, limit, base, size_max)
        if usual is not None:
            return Checked(usual, _numbers(len(positions)), _NONE)
    heads = heads_at(source.view, positions)
    magic, size = heads["magic"].astype(np.uint32), heads["size"].astype(np.int64)
    ends = positions + size
    is_wide = magic == MAGIC_V2
    ok = ((magic == MAGIC_V1) | is_wide) & (size >= RECORD_BYTES_MIN) & (size <= size_max) & (ends <= limit)
    if base is not None:
        ok &= heads["physicalOffset"] == positions + base
    rows, ok = _parts(source, heads, base, positions, ends, is_wide, ok)
    if is_all(ok):
        return Checked(rows, _numbers(len(positions)), _NONE)
    is_blank = (magic == BLANK_MAGIC) & (size >= BLANK_BYTES_MIN)
    return Checked(rows.take(ok), np.flatnonzero(ok), np.flatnonzero(~ok & ~is_blank))


_NONE: Int64s = np.empty(0, np.int64)
_kept_numbers: Int64s = _NONE


def _numbers(count: int) -> Int64s:
    """0, 1, 2, ...: kept, because nearly every batch needs them; nobody may write to them."""
    global _kept_numbers
    known = _kept_numbers
    if len(known) < count:
        known = np.arange(2 * count)
        known.flags.writeable = False
        _kept_numbers = known
    return known[:count]


def _with_tail(source: Source, positions: Int64s, limit: int, base: int | None, size_max: int) -> Checked:
    """When the last positions are so near to the limit that only a blank fits: they are blanks, or broken."""
    inside = int(np.searchsorted(positions, limit - HEAD_BYTES, side="right"))
    checked = check_rows(source, positions[:inside], limit, base, size_max)
    is_broken = [not _is_blank(source, at, limit) for at in positions[inside:].tolist()]
    return Checked(checked.rows, checked.numbers, np.append(checked.broken, inside + np.flatnonzero(is_broken)))


def _parts(
    source: Source,
    heads: npt.NDArray[np.void],
    base: int | None,
    positions: Int64s,
    ends: Int64s,
    is_wide: Bools,
    ok: Bools,
) -> tuple[Rows, Bools]:
    """The places of body, topic and properties, and in which rows they fit. Where they do not, nothing is followed."""
    sys_flag = heads["sysFlag"].astype(np.int32)
    born_shift, store_shift, body_at = _behind_hosts(source, heads, sys_flag, positions, ends, ok)
    body_length = heads["bodyLength"].astype(np.int64)
    body_end = body_at + body_length
    topic_at = body_end + 1
    if np.count_nonzero(is_wide):
        topic_at += is_wide
    ok = ok & (body_length >= 0) & (topic_at <= ends)
    topic_length = _topic_lengths(source, _safe(body_end, ok, positions), is_wide)
    text_at = topic_at + topic_length
    text_at += 2
    text_length = ends - text_at
    ok &= (topic_length >= 0) & (text_length >= 0)
    ok &= source.shorts(_safe(text_at - 2, ok, positions)) == text_length
    rows = Rows(
        source=source,
        fields=Heads(heads),
        position=positions,
        standing=None if base is None else positions + base,
        flags=int(np.bitwise_or.reduce(sys_flag)) if len(sys_flag) else 0,
        born_shift=born_shift,
        store_shift=store_shift,
        body_position=body_at,
        body_length=body_length,
        text_position=text_at,
        text_length=text_length,
        found_topics=TopicSpans(source, topic_at, topic_length),
    )
    return rows, ok


def _safe(places: Int64s, ok: Bools, instead: Int64s) -> Int64s:
    """Places that can be looked at: those of rows that are not ok may be anywhere."""
    return places if is_all(ok) else np.where(ok, places, instead)


def _behind_hosts(
    source: Source,
    heads: npt.NDArray[np.void],
    sys_flag: npt.NDArray[np.int32],
    positions: Int64s,
    ends: Int64s,
    ok: Bools,
) -> tuple[Int64s | None, Int64s | None, Int64s]:
    """How much the hosts move what follows, and where bodies begin. The heads get what they hold from where it is."""
    body_at = positions + HEAD_BYTES
    if not np.bitwise_or.reduce(sys_flag) & HOST_BITS:
        return None, None, body_at
    born = np.where(sys_flag & _BORN_HOST_V6, _V6_MORE, 0)
    store = np.where(sys_flag & _STORE_HOST_V6, _V6_MORE, 0)
    body_at += born + store
    ok &= body_at <= ends
    table = np.ndarray((len(heads), HEAD_BYTES), np.uint8, heads)
    moved = np.flatnonzero(ok & (born + store > 0))
    at = positions[moved] + born[moved]
    table[moved, _STORE_TIMESTAMP_AT:STORE_HOST_AT] = source.blocks(at + _STORE_TIMESTAMP_AT, 8)
    at += store[moved]
    table[moved, _BEHIND_HOSTS_AT:HEAD_BYTES] = source.blocks(at + _BEHIND_HOSTS_AT, HEAD_BYTES - _BEHIND_HOSTS_AT)
    return born, store, body_at


def _topic_lengths(source: Source, at: Int64s, is_wide: Bools) -> Int64s:
    """Negative for a length that no topic has."""
    length = source.int8[at].astype(np.int64)
    if np.count_nonzero(is_wide):
        length[is_wide] = source.shorts(at[is_wide])
    return length


def _is_blank(source: Source, at: int, limit: int) -> bool:
    head = bytes(source.view[at : min(at + BLANK_BYTES_MIN, limit)])
    return (
        len(head) == BLANK_BYTES_MIN
        and int.from_bytes(head[4:], "big") == BLANK_MAGIC
        and int.from_bytes(head[:4], "big", signed=True) >= BLANK_BYTES_MIN
    )
