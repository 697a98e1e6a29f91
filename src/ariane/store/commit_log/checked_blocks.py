"""Blocks of the commit log that were compared with their checksums since they were read from the disk.

A flipped bit in a header or a property is found by no client: a record's own checksum covers its body only. So before
records are given to a reader, a thread compares the blocks that they touch with `commitlog_sums/` (checksums.py):

    UNCHECKED   after a start, after a minute, and when the page cache has lost it   a thread compares it first
    INTACT      its bytes are those that were written                                 readers get its records
    DAMAGED     they are not, or the disk cannot read them                            readers get none that may be bad
    UNKNOWN     it has no checksum: Apache's files, or old ones                       a thread checks each record read

What this process wrote since the last checkpoint is not checked: it was not read from the disk.

**Which records of a damaged block are bad?** If some bodies do not match the checksums in their records, the block's
checksum is computed once more as if those bodies were right, with the stored checksum in place of each:

    crc(A body B) = crc(crc(A) shifted by the body's length ^ crc(body), B)

If that gives the block's checksum, every byte outside of these bodies is proven, and only their records are withheld.
Otherwise the damage is in a header or a property, or in a record that reaches into another block. It cannot be located,
and all records that touch the block are withheld.
"""

import errno
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, product
from pathlib import Path

from ariane.store.blocking_io import IoSteps, RecordLocation
from ariane.store.commit_log.checksums import DAMAGED as DAMAGED_CHECKSUM
from ariane.store.commit_log.checksums import (
    NOT_KNOWN,
    BlockChecksum,
    Blocks,
    ChecksumFile,
    checksum_of,
    open_checksums,
)
from ariane.store.commit_log.log import Segment, Segments
from ariane.store.disk import Disk
from ariane.store.layout import offset_name
from ariane.wire.hashes import crc32, running_crc32
from ariane.wire.record.layout import MAGIC_V1, MAGIC_V2
from ariane.wire.record.read import RecordView, verify

log = logging.getLogger(__name__)

UNCHECKED, INTACT, DAMAGED, UNKNOWN = range(4)

_AHEAD_BYTES = 512 * 1024
"""Compared at once, also ahead of what is read: a consumer reads on, and to ask a thread costs as much as the check."""
_AHEAD_IN_SEQUENCE_BYTES = 2 * 1024 * 1024
"""The same where the block before was compared, too: this reader does read on. It takes a millisecond."""
_READ_BYTES = 64 * 1024
"""Per read: what was just copied is then still in the CPU's cache."""
_READ_AHEAD_BYTES = 8 * 1024 * 1024
"""When a page has left the page cache, what lies so close may have been read from the disk with another page."""
_VALID_FOR_S = 60.0
_WITHHELD_KEPT = 65_536
_BAD_BODIES_MAX = 4
_TOP_BIT = 1 << 31
_MAGIC = re.compile(b"|".join(re.escape(magic.to_bytes(4, "big")) for magic in (MAGIC_V1, MAGIC_V2)))
_MAGIC_POSITION = 4


@dataclass(slots=True)
class BlockDamage:
    reason: str
    end: int
    """Where its checksum ends; the block itself may go on."""
    bad: frozenset[int] | None
    """Physical offsets of the bad records; None when they are not known: then all of the block's records are."""


@dataclass(slots=True)
class FileBlocks:
    """The blocks of one log file."""

    blocks: Blocks
    states: bytearray
    damaged: dict[int, BlockDamage] = field(default_factory=dict)

    def numbers(self, offset: int, size: int) -> range:
        return range(self.blocks.number_at(offset), self.blocks.number_at(offset + size - 1) + 1)

    def are_known(self, offset: int, size: int) -> bool:
        """Whether the blocks of a record are intact or damaged."""
        return all(self.states[number] in (INTACT, DAMAGED) for number in self.numbers(offset, size))

    def withholds(self, offset: int, size: int) -> bool:
        return any(
            damage.bad is None or offset in damage.bad
            for number in self.numbers(offset, size)
            if (damage := self.damaged.get(number)) is not None
        )


class CheckedBlocks:
    """Owned by the event loop; only `BlockCheck.run` is for a thread."""

    def __init__(
        self, disk: Disk, directory: Path, segments: Segments, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._monotonic = monotonic
        self._expires_s = monotonic() + _VALID_FOR_S
        self._files: dict[int, FileBlocks] = {}
        self._invalid: set[int] = set()
        self._reported: set[tuple[int, int]] = set()
        self._running: list[BlockCheck] = []
        self._withheld: set[int] = set()
        self.has_damage = False
        """Whether anything is withheld; readers ask about each record only then."""
        self.damaged_blocks = 0
        """Damaged blocks found since the start, each counted once."""
        self.withheld_records = 0
        """Records that readers did not get, each counted once (the first 65,536 of them)."""

    def are_intact(self, begin: int, end: int) -> bool:
        """Whether these bytes are in one file, and all blocks that they touch are intact."""
        segment = self._segments.find(begin)
        file = None if segment is None else self._files.get(segment.base)
        if segment is None or file is None or end > segment.end:
            return False
        blocks = file.blocks
        first, last = (begin - blocks.base) // blocks.block_bytes, (end - 1 - blocks.base) // blocks.block_bytes
        return file.states.count(INTACT, first, last + 1) == last + 1 - first

    def withholds(self, offset: int, size: int) -> bool:
        """Whether this record may be damaged, so that no reader may get it. It must have been checked."""
        if offset not in self._invalid:
            segment = self._segments.find(offset)
            file = None if segment is None else self._files.get(segment.base)
            if file is None or not file.withholds(offset, size):
                return False
        if offset not in self._withheld and len(self._withheld) < _WITHHELD_KEPT:
            self._withheld.add(offset)
            self.withheld_records += 1
        return True

    def check_steps(self, locations: Sequence[RecordLocation], hot_from: int, *, is_cold: bool) -> IoSteps[None]:
        """Checks these records, if they are not; what was written at or after `hot_from` needs no check.

        `is_cold`: some of their bytes have left the page cache. They are read from the disk, and are checked again.
        """
        while True:
            checks, others = self._checks(locations, hot_from, is_cold=is_cold)
            if not checks and not others:
                return
            self._running += checks
            try:
                yield partial(_run_all, checks, others)
            finally:
                self._running = [check for check in self._running if check not in checks]
            for check in (*checks, *others):
                self._note(check)
            if not others:
                return
            is_cold = False  # what another reader asked for may not be all, or may have failed

    def _checks(
        self, locations: Sequence[RecordLocation], hot_from: int, *, is_cold: bool
    ) -> "tuple[list[BlockCheck], list[BlockCheck]]":
        """Checks to run, and those that others are running: readers of several queues come to a block together."""
        by_segment: dict[int, tuple[Segment, list[RecordLocation]]] = {}
        for offset, size in locations:
            segment = self._segments.find(offset)
            if segment is not None and offset < hot_from and size > 0 and offset + size <= segment.end:
                by_segment.setdefault(segment.base, (segment, []))[1].append((offset, size))
        checks: list[BlockCheck] = []
        others: list[BlockCheck] = []
        for segment, records in by_segment.values():
            file = self._files.get(segment.base)
            if file is not None and is_cold:
                _forget_around(file, records)
            unchecked = [record for record in records if file is None or not file.are_known(*record)]
            if file is not None and not is_cold:
                running = [check for check in self._running if check.segment is segment]
                waited = [check for check in running if any(check.covers(file, record) for record in unchecked)]
                unchecked = [record for record in unchecked if not any(check.covers(file, record) for check in waited)]
                others += waited
            if unchecked:
                path = self._directory / offset_name(segment.base)
                checks.append(BlockCheck(self._disk, path, segment, unchecked, hot_from, file))
        return checks, others

    def _note(self, check: "BlockCheck") -> None:
        """Takes over the results of a check."""
        self._invalid |= check.invalid
        if check.blocks is not None:
            file = self._files.setdefault(check.segment.base, FileBlocks(check.blocks, bytearray(check.blocks.count)))
            for number, state in check.states.items():
                file.states[number] = state
                if state == DAMAGED:
                    self._note_damage(check.segment, file, number, check.damaged[number])
                else:
                    file.damaged.pop(number, None)
        self.has_damage = bool(self._invalid) or any(file.damaged for file in self._files.values())

    def _note_damage(self, segment: Segment, file: FileBlocks, number: int, damage: BlockDamage) -> None:
        file.damaged[number] = damage
        if (segment.base, number) in self._reported:
            return
        self._reported.add((segment.base, number))
        self.damaged_blocks += 1
        first = number * file.blocks.block_bytes
        log.error(
            "the commit log is damaged: records are withheld from consumers, who continue behind them. "
            "`ariane store verify` lists the damage; restore the file from a copy or a replica",
            extra={
                "file": str(segment.path), "from": first, "to": file.blocks.end_of(number) - segment.base - 1,
                "reason": damage.reason,
                "records": "all in these bytes" if damage.bad is None else sorted(damage.bad),
            },
        )  # fmt: skip

    def expire(self) -> None:
        """Once a minute all is unchecked again: another program may have read pages back that were evicted meanwhile.

        Called with each checkpoint. What is damaged stays withheld until it is found intact.
        """
        now_s = self._monotonic()
        if now_s < self._expires_s:
            return
        self._expires_s = now_s + _VALID_FOR_S
        begin = self._segments.base
        self._files = {base: file for base, file in self._files.items() if base >= begin}
        self._invalid = {offset for offset in self._invalid if offset >= begin}
        self.forget_all()

    def forget_all(self) -> None:
        """Everything is unchecked from now on."""
        for file in self._files.values():
            file.states = bytearray(len(file.states))


def _forget_around(file: FileBlocks, records: Iterable[RecordLocation]) -> None:
    """Nothing near these records counts as checked: the kernel reads ahead."""
    around = _READ_AHEAD_BYTES // file.blocks.block_bytes + 1
    for offset, size in records:
        numbers = file.numbers(offset, size)
        begin, end = max(0, numbers.start - around), min(len(file.states), numbers.stop + around)
        file.states[begin:end] = bytes(end - begin)


# --- in a thread ------------------------------------------------------------------------------------------------------


def _run_all(checks: "Sequence[BlockCheck]", others: "Sequence[BlockCheck]") -> None:
    """Threads take calls in the order in which they were made, so what `others` need does not wait behind this one."""
    try:
        for check in checks:
            check.run()
    finally:
        for check in checks:
            check.finished.set()
    for check in others:
        check.finished.wait()


@dataclass(slots=True, eq=False)
class BlockCheck:
    """Compares the blocks that some records of one log file touch. Runs in a thread; the loop reads the results."""

    disk: Disk
    path: Path
    """The checksum file."""
    segment: Segment
    records: list[RecordLocation]
    hot_from: int
    known: FileBlocks | None
    blocks: Blocks | None = None
    states: dict[int, int] = field(default_factory=dict)
    damaged: dict[int, BlockDamage] = field(default_factory=dict)
    invalid: set[int] = field(default_factory=set)
    """Physical offsets of records without a block checksum that are not valid, or that retention has just removed."""
    planned: list[range] = field(default_factory=list)
    """The blocks to compare, as far as this is known beforehand."""
    finished: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        if self.known is not None:
            self.blocks = self.known.blocks
            self.planned = self._runs()

    def covers(self, file: FileBlocks, record: RecordLocation) -> bool:
        """Whether it compares all of a record's blocks that are not known."""
        return all(
            any(number in run for run in self.planned)
            for number in file.numbers(*record)
            if file.states[number] not in (INTACT, DAMAGED)
        )

    def run(self) -> None:
        try:
            is_compared = self._compare_touched()
            unknown = {number for number, state in self.states.items() if state == UNKNOWN}
            if not is_compared:
                self._validate(self.records)
            elif unknown:
                self._validate(record for record in self.records if unknown.intersection(self._numbers(*record)))
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            self.invalid.update(offset for offset, _ in self.records)

    def _compare_touched(self) -> bool:
        """False when the checksum file is missing or cannot be read."""
        segment = self.segment
        try:
            checksums = open_checksums(self.disk, self.path, segment.base, segment.file.size)
            if checksums is None:
                return False
            with closing(checksums):
                if self.blocks != checksums.blocks:
                    self.blocks = checksums.blocks
                    self.planned = self._runs()
                for run in self.planned:
                    self._compare(checksums, run)
        except OSError as error:
            if error.errno == errno.EBADF:
                raise
            log.warning("block checksums cannot be read", extra={"file": str(self.path), "reason": str(error)})
            return False
        return True

    def _runs(self) -> list[range]:
        assert self.blocks is not None
        touched = sorted({number for record in self.records for number in self._unchecked(*record)})
        is_in_sequence = bool(touched and touched[0] and self.known and self.known.states[touched[0] - 1] != UNCHECKED)
        ahead_bytes = _AHEAD_IN_SEQUENCE_BYTES if is_in_sequence else _AHEAD_BYTES
        return list(_runs(touched, self.blocks, self.hot_from, ahead_bytes))

    def _numbers(self, offset: int, size: int) -> range:
        assert self.blocks is not None
        return range(self.blocks.number_at(offset), self.blocks.number_at(offset + size - 1) + 1)

    def _unchecked(self, offset: int, size: int) -> Iterator[int]:
        for number in self._numbers(offset, size):
            if self.known is None or self.known.states[number] not in (INTACT, DAMAGED):
                yield number

    def compare_all(self, begin: int) -> None:
        """Compares every block with a checksum, from that of `begin` on."""
        segment = self.segment
        checksums = open_checksums(self.disk, self.path, segment.base, segment.file.size)
        if checksums is None:
            return
        with closing(checksums):
            self.blocks = checksums.blocks
            known = checksums.last_known()
            numbers = range(self.blocks.number_at(begin), 0 if known is None else known[0] + 1)
            for run in _runs(numbers, self.blocks, hot_from=0):
                self._compare(checksums, run)

    def _compare(self, checksums: ChecksumFile, numbers: range) -> None:
        blocks = checksums.blocks
        expected = checksums.read(numbers.start, len(numbers))
        expected += [NOT_KNOWN] * (len(numbers) - len(expected))
        begin = blocks.begin_of(numbers.start)
        data, _ = self._read(begin, blocks.end_of(numbers[-1]))
        if data is not None:
            for number, checksum in zip(numbers, expected, strict=True):
                at = (number - numbers.start) * blocks.block_bytes
                self._judge(number, begin + at, data[at : at + blocks.block_bytes], checksum)
        else:
            for number, checksum in zip(numbers, expected, strict=True):
                self._read_alone(number, checksum)

    def _read_alone(self, number: int, expected: BlockChecksum) -> None:
        assert self.blocks is not None
        begin = self.blocks.begin_of(number)
        data, error = self._read(begin, self.blocks.end_of(number))
        if data is None:
            end = max(expected.covered_to, begin + 1)
            self._note_damage(number, BlockDamage(f"it cannot be read: {error}", end, None))
        else:
            self._judge(number, begin, data, expected)

    def _read(self, begin: int, end: int) -> tuple[memoryview | None, str | None]:
        """An unreadable sector is an OSError here; through the mapping it would be a SIGBUS."""
        try:
            return memoryview(self.segment.file.read(end - begin, begin - self.segment.base)), None
        except OSError as error:
            if error.errno == errno.EBADF:
                raise
            return None, error.strerror

    def _judge(self, number: int, begin: int, data: memoryview, expected: BlockChecksum) -> None:
        if expected in (NOT_KNOWN, DAMAGED_CHECKSUM):
            self.states[number] = UNKNOWN
            return
        covered_to, crc = expected
        covered = data[: covered_to - begin]
        actual = checksum_of(covered)
        if actual != crc:
            reason = f"its checksum is {actual:#010x}, it was {crc:#010x}"
            self._note_damage(number, BlockDamage(reason, covered_to, locate_bad_bodies(covered, begin, crc)))
        else:
            is_whole = covered_to >= min(begin + len(data), self.hot_from)
            self.states[number] = INTACT if is_whole else UNKNOWN

    def _note_damage(self, number: int, damage: BlockDamage) -> None:
        self.states[number] = DAMAGED
        self.damaged[number] = damage

    def _validate(self, records: Iterable[RecordLocation]) -> None:
        for offset, size in records:
            data, _ = self._read(offset, offset + size)
            view = None if data is None else verify(data)
            if not isinstance(view, RecordView) or view.physical_offset != offset or view.size != size:
                self.invalid.add(offset)


def _runs(numbers: Sequence[int], blocks: Blocks, hot_from: int, ahead_bytes: int = 0) -> Iterator[range]:
    """Consecutive blocks to read at once. If all are consecutive, those that follow are read ahead."""
    if not numbers:
        return
    count_max = max(1, _READ_BYTES // blocks.block_bytes)
    breaks = [at for at, (one, two) in enumerate(pairwise(numbers), 1) if two != one + 1]
    for begin, end in pairwise([0, *breaks, len(numbers)]):
        stop = numbers[end - 1] + 1
        if not breaks:
            cold_count = min(blocks.count, -(-(hot_from - blocks.base) // blocks.block_bytes))
            stop = max(stop, min(numbers[0] + ahead_bytes // blocks.block_bytes, cold_count))
        for first in range(numbers[begin], stop, count_max):
            yield range(first, min(first + count_max, stop))


def locate_bad_bodies(data: memoryview, begin: int, expected: int) -> frozenset[int] | None:
    """The records whose bodies are all of the damage of this block, whose checksum was `expected`; None if unknown.

    `begin` is the physical offset of its first byte.
    """
    bad = [view for view in _records_of(data, begin) if _has_bad_body(view, data)]
    if not 0 < len(bad) <= _BAD_BODIES_MAX:
        return None
    for top_bits in product((0, _TOP_BIT), repeat=len(bad)):  # a record stores 31 of the 32 bits
        crc, at = 0, 0
        for view, top_bit in zip(bad, top_bits, strict=True):
            crc = checksum_of(data[at : view.body_position], crc)
            zeros = bytes(view.body_length)
            crc = running_crc32(zeros, crc) ^ running_crc32(zeros) ^ (view.body_crc | top_bit)
            at = view.body_position + view.body_length
        if checksum_of(data[at:], crc) == expected:
            return frozenset(view.physical_offset for view in bad)
    return None


def _has_bad_body(view: RecordView, data: memoryview) -> bool:
    body = data[view.body_position : view.body_position + view.body_length]
    return view.body_length > 0 and crc32(body) != view.body_crc


def _records_of(data: memoryview, begin: int) -> Iterator[RecordView]:
    """The records that lie in `data` as a whole, whatever their bodies are."""
    position = 0
    for hit in _MAGIC.finditer(data):
        at = hit.start() - _MAGIC_POSITION
        if at >= position:
            view = verify(data, at, check_body_crc=False)
            if isinstance(view, RecordView) and view.physical_offset == begin + at:
                yield view
                position = at + view.size


# --- at start-up ------------------------------------------------------------------------------------------------------


def damaged_ranges(disk: Disk, directory: Path, segments: Segments, begin: int) -> list[tuple[int, int]]:
    """Physical begin and end of the damaged blocks from that of `begin` on, as far as there are checksums."""
    ranges = []
    for segment in segments:
        if segment.end > begin:
            check = BlockCheck(disk, directory / offset_name(segment.base), segment, [], segment.end, None)
            check.compare_all(max(begin, segment.base))
            if check.blocks is not None:
                ranges += [(check.blocks.begin_of(number), damage.end) for number, damage in check.damaged.items()]
    return ranges


def checksummed_to(disk: Disk, directory: Path, segments: Segments) -> int:
    """The end of the last block checksum: everything before it was durable when it was made. 0 if there is none."""
    for segment in reversed(tuple(segments)):
        file = open_checksums(disk, directory / offset_name(segment.base), segment.base, segment.file.size)
        if file is not None:
            with closing(file):
                known = file.last_known()
            if known is not None:
                return known[1].covered_to
    return 0
