"""The file that holds the checksums of a log file's blocks: read back as written, and nothing else believed."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.store.commit_log.checksums import (
    BLOCK_BYTES_MIN,
    CHECKSUM_BYTES,
    DAMAGED,
    NOT_KNOWN,
    BlockChecksum,
    Blocks,
    ChecksumFile,
    create_checksums,
    open_checksums,
)
from tests.simulation.simulated_disk import SimulatedDisk

PATH = Path("/00000000000000008192")
BLOCKS = Blocks(base=8192, file_bytes=8192, block_bytes=1000)
WHOLE = BlockChecksum(9192, 0xFFFFFFFF)


def made(disk: SimulatedDisk, blocks: Blocks = BLOCKS) -> ChecksumFile:
    return create_checksums(disk, PATH, blocks)


def again(disk: SimulatedDisk) -> ChecksumFile:
    file = open_checksums(disk, PATH, BLOCKS.base, BLOCKS.file_bytes, writable=True)
    assert file is not None
    return file


@st.composite
def blocks_with_sums(draw: st.DrawFn) -> tuple[Blocks, list[BlockChecksum]]:
    file_bytes = draw(st.integers(BLOCK_BYTES_MIN, 20_000))
    block_bytes = draw(st.integers(BLOCK_BYTES_MIN, 5000))
    blocks = Blocks(draw(st.integers(0, 2**40)) * file_bytes, file_bytes, block_bytes)
    known = [
        st.builds(BlockChecksum, st.integers(blocks.begin_of(n) + 1, blocks.end_of(n)), st.integers(0, 2**32 - 1))
        for n in range(blocks.count)
    ]
    return blocks, [draw(st.just(NOT_KNOWN) | checksum) for checksum in known]


@given(blocks_with_sums())
def test_checksums_are_read_as_they_were_written(case: tuple[Blocks, list[BlockChecksum]]) -> None:
    blocks, checksums = case
    disk = SimulatedDisk()
    made(disk, blocks).write(0, checksums)
    file = open_checksums(disk, PATH, blocks.base, blocks.file_bytes)
    assert file is not None
    assert file.blocks == blocks
    while checksums and checksums[-1] == NOT_KNOWN:
        checksums.pop()
    assert file.read() == checksums
    assert file.read(1) == checksums[1:]


def test_the_last_block_of_a_file_may_be_shorter() -> None:
    assert BLOCKS.count == 9
    assert (BLOCKS.begin_of(8), BLOCKS.end_of(8)) == (16192, 16384)
    assert [BLOCKS.whole_below(offset) for offset in (9191, 9192, 16383, 16384, 20000)] == [
        8192,
        9192,
        16192,
        16384,
        16384,
    ]


def test_nothing_is_known_of_a_new_file() -> None:
    assert made(SimulatedDisk()).read() == []


def test_every_flipped_bit_of_a_sum_shows() -> None:
    disk = SimulatedDisk()
    made(disk).write(0, [WHOLE])
    begin = BLOCKS.position_of(0)
    for position in range(begin, begin + CHECKSUM_BYTES):
        for bit in range(8):
            disk.flip_bit(PATH, position, bit)
            assert again(disk).read()[0] == DAMAGED
            disk.flip_bit(PATH, position, bit)
    assert again(disk).read()[0] == WHOLE


def test_every_flipped_bit_of_the_head_makes_the_file_nobodys() -> None:
    disk = SimulatedDisk()
    made(disk)
    for position in range(BLOCKS.position_of(0)):
        for bit in range(8):
            disk.flip_bit(PATH, position, bit)
            assert open_checksums(disk, PATH, BLOCKS.base, BLOCKS.file_bytes) is None
            disk.flip_bit(PATH, position, bit)


@pytest.mark.parametrize("reach", [8192, 9193, 2**62], ids=["no byte", "the next block", "far away"])
def test_a_sum_that_belongs_elsewhere_is_not_believed(reach: int) -> None:
    file = made(SimulatedDisk())
    file.write(0, [BlockChecksum(reach, 1)])
    assert file.read()[0] == DAMAGED


@pytest.mark.parametrize(("base", "size"), [(0, 8192), (8192, 4096)], ids=["another place", "another size"])
def test_the_checksums_of_another_log_file_are_not_opened(base: int, size: int) -> None:
    disk = SimulatedDisk()
    made(disk)
    assert open_checksums(disk, PATH, base, size) is None


def test_a_file_that_is_not_there_or_cut_short_has_no_checksums() -> None:
    disk = SimulatedDisk()
    assert open_checksums(disk, PATH, BLOCKS.base, BLOCKS.file_bytes) is None
    file = disk.create(PATH, 40, allocated=0)
    file.write(BLOCKS.pack(), 0)
    assert open_checksums(disk, PATH, BLOCKS.base, BLOCKS.file_bytes) is None


def test_a_file_that_cannot_be_written_leaves_no_name_behind() -> None:
    disk = SimulatedDisk()
    disk.fail_writes(OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space"):
        made(disk)
    assert disk.size(PATH) is None
