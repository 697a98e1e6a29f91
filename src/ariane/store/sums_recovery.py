"""Block sums at a start: those that the recovered log does not bear out go, before a byte of it changes.

A sum covers nothing but bytes that were durable when it was made, so after any crash the bytes are there with it. They
change in one case: recovery ends the log before them, as with a blank record that nothing follows, and zeroes the rest.
So the sums are cut first, and durably: a sum that is missing says "not known", a stale one would tell of damage that
there is not. It is done whether sums are being made or not, since an earlier run may have left some.
"""

import logging
from contextlib import suppress
from pathlib import Path

from ariane.store.disk import Disk
from ariane.store.layout import offset_name, offset_of
from ariane.store.segments import Segment, Segments
from ariane.store.sums_file import DAMAGED, NOT_KNOWN, Blocks, Sum, SumsFile, open_sums
from ariane.wire.crc import crc32_onward

log = logging.getLogger(__name__)

LOOK_BACK_BYTES = 512 * 1024 * 1024
"""How much of the log without sums a start makes up for: more than lies between two checkpoints, even under load."""


def cut_sums(disk: Disk, directory: Path, segments: Segments, end: int) -> None:
    """Leaves no sum of a byte at or behind `end`, and none of a file that is gone."""
    files = {offset_name(segment.base): segment for segment in segments if segment.base < end}
    strays = [name for name in _names(disk, directory) if not _belongs(disk, directory / name, files.get(name))]
    _remove(disk, directory, strays)
    segment = segments.find(end)
    if segment is not None and segment.base < end:
        try:
            _cut_within(disk, directory / offset_name(segment.base), segment, end)
        except OSError as error:  # then none of them counts: no sum is a reason not to start
            log.warning("block sums removed: they cannot be written", extra={"reason": str(error)})
            _remove(disk, directory, [offset_name(segment.base)])


def drop_sums_before(disk: Disk, directory: Path, low: int) -> None:
    """For retention: the log begins at `low` now."""
    for name in _names(disk, directory):
        if int(name) < low:
            with suppress(FileNotFoundError):
                disk.remove(directory / name)


def newest_sum(disk: Disk, directory: Path, segments: Segments, block_bytes: int, begin: int, end: int) -> Sum:
    """Where to go on: the last known sum, not before the block that holds `begin`; else that of no byte of this block.

    From `begin` on the log was walked just now. What is missing before it nobody has looked at: see sums_gaps.py. It is
    not further back than a start can afford to read, either.
    """
    begin = max(begin, segments.base, end - LOOK_BACK_BYTES)
    first = block_begin(disk, directory, segments.find(begin), begin, block_bytes)
    for segment in reversed(tuple(segments)):
        if segment.end <= first:
            break
        found = _newest_of(disk, directory, segment) if segment.base < end else None
        if found is not None and found.covered_to >= first:
            return found
    return Sum(first, 0)


def block_begin(disk: Disk, directory: Path, segment: Segment | None, offset: int, block_bytes: int) -> int:
    """Of the block that holds `offset`, which may also be where a file ends and none follows yet."""
    if segment is None:
        return offset
    file = open_sums(disk, directory / offset_name(segment.base), segment.base, segment.file.size)
    if file is None:
        return Blocks(segment.base, segment.file.size, block_bytes).whole_below(offset)
    file.close()
    return file.blocks.whole_below(offset)


def _names(disk: Disk, directory: Path) -> list[str]:
    """What is not named like a log file is not ours."""
    return [name for name in disk.names(directory) if offset_of(name) is not None]


def _belongs(disk: Disk, path: Path, segment: Segment | None) -> bool:
    """Whether there is such a log file. A crash may also have kept the name of a new sums file and lost its head."""
    if segment is None:
        return False
    file = open_sums(disk, path, segment.base, segment.file.size)
    if file is None:
        log.warning("block sums removed: their file is damaged", extra={"file": str(path)})
        return False
    file.close()
    return True


def _remove(disk: Disk, directory: Path, names: list[str]) -> None:
    for name in names:
        with suppress(FileNotFoundError):
            disk.remove(directory / name)
    if names:
        disk.sync_directory(directory)


def _cut_within(disk: Disk, path: Path, segment: Segment, end: int) -> None:
    file = open_sums(disk, path, segment.base, segment.file.size, writable=True)
    if file is None:
        return
    try:
        first = file.blocks.number_at(end)
        before = file.read(first)
        after = [_shortened(file.blocks, found, segment, end) for found in before[:1]]
        if after != before:
            file.write(first, after + [NOT_KNOWN] * (len(before) - 1))
            file.sync()
    finally:
        file.close()


def _shortened(blocks: Blocks, found: Sum, segment: Segment, end: int) -> Sum:
    """The sum of the block that holds `end`, up to there. It is only made anew from bytes that the old one confirms."""
    begin = blocks.whole_below(end)
    if begin == end or found in (NOT_KNOWN, DAMAGED):
        return NOT_KNOWN
    if found.covered_to <= end:
        return found
    view = segment.file.view()
    if crc32_onward(view[begin - segment.base : found.covered_to - segment.base]) != found.crc:
        log.error(
            "bytes of the commit log are not those that were written: restore the file from a copy or a replica",
            extra={"file": str(segment.path), "from": begin, "to": found.covered_to},
        )
        return NOT_KNOWN
    return Sum(end, crc32_onward(view[begin - segment.base : end - segment.base]))


def _newest_of(disk: Disk, directory: Path, segment: Segment) -> Sum | None:
    """The last known sum of a file. Of a whole block, as that of no byte of the next."""
    file = open_sums(disk, directory / offset_name(segment.base), segment.base, segment.file.size)
    if file is None:
        return None
    try:
        return _last_known(file)
    finally:
        file.close()


def _last_known(file: SumsFile) -> Sum | None:
    for number, found in reversed(list(enumerate(file.read()))):
        if found not in (NOT_KNOWN, DAMAGED):
            return Sum(found.covered_to, 0) if found.covered_to == file.blocks.end_of(number) else found
    return None
