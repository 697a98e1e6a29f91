"""Units of consumequeue_ext, which Apache writes for SQL filters."""

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.errors import StoreCorrupt, StoreError
from ariane.store.consume_queue.entry import ExtensionUnit, QueueExtension, decode_unit, extension_offset
from ariane.store.disk import RealDisk

LONG_MIN = -(2**63)
END_OF_FILE = b"\xff\xff"

units = st.builds(
    ExtensionUnit,
    tags_code=st.integers(-(2**31), 2**31 - 1),
    store_timestamp_ms=st.integers(0, 2**50),
    bitmap=st.binary(max_size=64),
)


def packed(unit: ExtensionUnit) -> bytes:
    size = 20 + len(unit.bitmap)
    return struct.pack(">hqqh", size, unit.tags_code, unit.store_timestamp_ms, len(unit.bitmap)) + unit.bitmap


UNIT = ExtensionUnit(tags_code=2598919, store_timestamp_ms=1_700_000_000_000, bitmap=bytes(range(14)))


def test_the_bytes_of_a_unit_as_apache_writes_them() -> None:
    data = bytes.fromhex("0022 000000000027a807 0000018bcfe56800 000e 000102030405060708090a0b0c0d")
    assert decode_unit(data) == UNIT
    assert packed(UNIT) == data


@settings(deadline=None)
@given(st.lists(units, min_size=1))
def test_units_stand_back_to_back(written: list[ExtensionUnit]) -> None:
    data = b"".join(map(packed, written))
    position = 0
    for unit in written:
        assert decode_unit(data, position) == unit
        position += len(packed(unit))
    assert position == len(data)


@settings(deadline=None)
@given(st.binary(max_size=64), st.integers(-5, 70))
def test_any_bytes_are_a_unit_or_store_corrupt(data: bytes, position: int) -> None:
    try:
        unit = decode_unit(data, position)
    except StoreCorrupt:
        return
    assert packed(unit) == data[position : position + 20 + len(unit.bitmap)]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        packed(UNIT)[:19],
        packed(UNIT)[:-1],
        bytes(40),
        END_OF_FILE + bytes(40),
        struct.pack(">hqqh", 19, 0, 0, -1) + bytes(40),
        struct.pack(">hqqh", 30, 0, 0, 9) + bytes(40),
    ],
    ids=["nothing", "half a head", "half a bitmap", "zeros", "the file's end", "negative bitmap", "lengths differ"],
)
def test_what_is_no_unit_is_store_corrupt(data: bytes) -> None:
    with pytest.raises(StoreCorrupt):
        decode_unit(data)


@pytest.fixture
def extension(tmp_path: Path) -> QueueExtension:
    """Two files of 100 bytes; the second unit did not fit the first one."""
    (tmp_path / f"{0:020d}").write_bytes((packed(UNIT) + END_OF_FILE).ljust(100, b"\0"))
    (tmp_path / f"{100:020d}").write_bytes(packed(ExtensionUnit(7, 8, b"")).ljust(100, b"\0"))
    (tmp_path / "notes.txt").write_text("not ours")
    return QueueExtension(RealDisk(), tmp_path)


def test_a_unit_is_found_by_the_address_in_an_entry(extension: QueueExtension) -> None:
    for address, unit in [(LONG_MIN, UNIT), (LONG_MIN + 100, ExtensionUnit(7, 8, b""))]:
        offset = extension_offset(address)
        assert offset is not None
        assert extension.unit(offset) == unit


def test_an_address_outside_the_files_is_store_corrupt(tmp_path: Path, extension: QueueExtension) -> None:
    (tmp_path / f"{0:020d}").unlink()
    for offset in (5_000, len(packed(UNIT)) + 100, -1):
        with pytest.raises(StoreCorrupt):
            extension.unit(offset)
    with pytest.raises(StoreCorrupt, match="no file"):
        QueueExtension(RealDisk(), tmp_path).unit(0)
    with pytest.raises(StoreError, match="cannot be read"):
        extension.unit(0)


def test_the_mark_at_the_end_of_a_file_is_no_unit(extension: QueueExtension) -> None:
    with pytest.raises(StoreCorrupt, match="end of a file"):
        extension.unit(len(packed(UNIT)))


def test_a_queue_without_extension_has_no_unit(tmp_path: Path) -> None:
    with pytest.raises(StoreCorrupt, match="no file"):
        QueueExtension(RealDisk(), tmp_path / "missing").unit(0)
