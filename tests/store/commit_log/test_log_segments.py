"""A run of files: what is opened, what is refused, and what a crash may leave of one that is being made."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ariane.errors import StoreMismatch
from ariane.store.blocking_io import run_sync
from ariane.store.commit_log.log import Segments
from ariane.store.disk import Disk, RealDisk, replace_all
from ariane.store.layout import offset_name
from tests.simulation.crashes import ROOT, after_each_crash, cuts, new_disk
from tests.simulation.simulated_disk import SimulatedDisk

BYTES = 8192


@pytest.fixture
def disk() -> SimulatedDisk:
    return new_disk()


def opened(disk: Disk, directory: Path = ROOT, *, writable: bool = True) -> Segments:
    return Segments(disk, directory, BYTES, writable=writable)


def add(segments: Segments, base: int, content: bytes = b"") -> None:
    segment = segments.create(base, allocated=BYTES)
    segment.file.write(content, 0)
    segment.file.sync()
    segments.adopt(segment)


def with_files(disk: Disk, count: int, first: int = 0) -> Segments:
    segments = opened(disk)
    for base in range(first, first + count * BYTES, BYTES):
        add(segments, base, b"from %d" % base)
    return segments


def bases(segments: Segments) -> list[int]:
    return [segment.base for segment in segments]


def test_an_empty_or_missing_directory_has_no_segments(disk: SimulatedDisk) -> None:
    for directory in (ROOT, ROOT / "missing"):
        segments = opened(disk, directory)
        assert (len(segments), segments.first, segments.last, segments.base) == (0, None, None, 0)
        assert segments.find(0) is None
        assert segments.before(BYTES) == []


def test_a_segment_is_named_by_its_first_offset(disk: SimulatedDisk) -> None:
    with_files(disk, 2, first=3 * BYTES)
    assert disk.names(ROOT) == ["00000000000000024576", "00000000000000032768"]


def test_what_was_added_is_found_again_in_order(disk: SimulatedDisk) -> None:
    with_files(disk, 3, first=BYTES)
    segments = opened(disk)
    assert bases(segments) == [BYTES, 2 * BYTES, 3 * BYTES]
    assert [segment.file.read(9, 0) for segment in segments] == [b"from 8192", b"from 1638", b"from 2457"]
    assert (segments.base, len(segments), segments.segment_bytes) == (BYTES, 3, BYTES)


def test_other_names_are_left_alone(disk: SimulatedDisk) -> None:
    for name in ("lock", "0" * 19, "0" * 21, "0" * 20 + ".tmp", "٣" * 20):
        replace_all(disk, ROOT / name, b"not a segment")
    with_files(disk, 1)
    assert bases(opened(disk)) == [0]
    assert len(disk.names(ROOT)) == 6


def test_find_knows_where_segments_begin_and_end(disk: SimulatedDisk) -> None:
    segments = with_files(disk, 2, first=BYTES)
    found = [segments.find(offset) for offset in (BYTES - 1, BYTES, 2 * BYTES - 1, 2 * BYTES, 3 * BYTES - 1, 3 * BYTES)]
    assert [segment and segment.base for segment in found] == [None, BYTES, BYTES, 2 * BYTES, 2 * BYTES, None]


def test_before_takes_whole_segments_only(disk: SimulatedDisk) -> None:
    segments = with_files(disk, 2)
    counts = [len(segments.before(offset)) for offset in (0, BYTES - 1, BYTES, 2 * BYTES - 1, 2 * BYTES)]
    assert counts == [0, 0, 1, 1, 2]


def test_a_file_of_another_size_is_refused_with_both_sizes(disk: SimulatedDisk) -> None:
    with_files(disk, 1)
    disk.create(ROOT / offset_name(BYTES), 100, allocated=0)
    with pytest.raises(StoreMismatch, match=r"00000000000000008192 has 100 bytes, the settings say 8192: set"):
        opened(disk)


def test_a_gap_is_refused_with_the_names_beside_it(disk: SimulatedDisk) -> None:
    with_files(disk, 3)
    disk.remove(ROOT / offset_name(BYTES))
    with pytest.raises(StoreMismatch, match=r"0016384 does not follow .*0000000: a file between them is missing"):
        opened(disk)


def test_a_name_off_the_grid_is_refused(disk: SimulatedDisk) -> None:
    with_files(disk, 1)
    disk.create(ROOT / offset_name(BYTES + 1), BYTES, allocated=0)
    with pytest.raises(StoreMismatch, match="does not follow"):
        opened(disk)


def test_segments_follow_each_other(disk: SimulatedDisk) -> None:
    segments = with_files(disk, 1)
    with pytest.raises(AssertionError, match="follow each other"):
        segments.adopt(segments.create(2 * BYTES, allocated=0))


def test_a_new_segment_takes_its_blocks_at_once(disk: SimulatedDisk) -> None:
    disk.space_left = 2 * BYTES
    segments = opened(disk)
    add(segments, 0)
    assert disk.space_left == BYTES
    run_sync(segments.drop_first_steps())
    assert disk.space_left == 2 * BYTES


def test_a_segment_is_durable_and_empty_when_create_returns(disk: SimulatedDisk) -> None:
    opened(disk).create(0, allocated=BYTES)
    for after in cuts(disk):
        (segment,) = opened(after)
        assert segment.file.read(BYTES, 0) == bytes(BYTES)


def test_a_crash_while_a_segment_is_made_costs_nothing_that_was_there() -> None:
    for after in after_each_crash(lambda disk: with_files(disk, 2), add_third):
        segments = opened(after)
        assert bases(segments)[:2] == [0, BYTES]
        assert [segment.file.read(6, 0) for segment in segments][:2] == [b"from 0", b"from 8"]
        if len(segments) == 2:
            add(segments, 2 * BYTES)
        assert bases(opened(after)) == [0, BYTES, 2 * BYTES]


def add_third(disk: SimulatedDisk) -> None:
    opened(disk).create(2 * BYTES, allocated=BYTES)


def test_a_reader_leaves_an_unfinished_file_alone(disk: SimulatedDisk) -> None:
    with_files(disk, 1)
    disk.create(ROOT / offset_name(BYTES), 0, allocated=0)
    assert bases(opened(disk, writable=False)) == [0]
    assert len(disk.names(ROOT)) == 2
    assert bases(opened(disk, writable=True)) == [0]
    assert len(disk.names(ROOT)) == 1


def test_a_reader_cannot_write(disk: SimulatedDisk) -> None:
    with_files(disk, 1)
    (segment,) = opened(disk, writable=False)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        segment.file.write(b"x", 0)


def test_segments_are_dropped_from_either_end(disk: SimulatedDisk) -> None:
    segments = with_files(disk, 4)
    assert run_sync(segments.drop_first_steps()).base == 0
    assert segments.drop_last().base == 3 * BYTES
    assert bases(segments) == bases(opened(disk)) == [BYTES, 2 * BYTES]
    assert (segments.base, segments.find(0)) == (BYTES, None)


@pytest.mark.parametrize("make", [RealDisk, SimulatedDisk])
def test_a_view_held_by_a_reader_stays_valid_after_drop_and_close(make: Callable[[], Disk], tmp_path: Path) -> None:
    disk = make()
    disk.make_directory(tmp_path)
    segments = opened(disk, tmp_path)
    add(segments, 0, b"first")
    add(segments, BYTES, b"second")
    first, second = [segment.file.view() for segment in segments]
    run_sync(segments.drop_first_steps())
    segments.close()
    assert (bytes(first[:5]), bytes(second[:6])) == (b"first", b"second")
    assert disk.names(tmp_path) == [offset_name(BYTES)]


def test_close_closes_every_file(disk: SimulatedDisk) -> None:
    segments = with_files(disk, 2)
    files = [segment.file for segment in segments]
    segments.close()
    assert len(segments) == 0
    for file in files:
        with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
            file.read(1, 0)
