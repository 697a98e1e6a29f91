"""CRC-32 of bodies: masked to 31 bits, with isal or zlib."""

import runpy
import sys
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.wire import hashes
from ariane.wire.hashes import crc32, running_crc32


def test_trap_12_crc_is_masked_to_31_bits() -> None:
    # Its plain CRC-32 is 0xE8B7BE43: the top bit is set, and Java would show it as a negative number.
    assert zlib.crc32(b"a") == 0xE8B7BE43
    assert crc32(b"a") == 0x68B7BE43


def test_the_polynomial_is_that_of_zlib() -> None:
    assert crc32(b"123456789") == 0xCBF43926 & 0x7FFFFFFF


def test_without_isal_zlib_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)  # an import of it now fails
    fallback = runpy.run_path(hashes.__file__)
    assert fallback["_crc32"] is zlib.crc32
    assert fallback["crc32"](b"a") == 0x68B7BE43


def test_an_empty_body_has_the_checksum_zero() -> None:
    assert crc32(b"") == 0


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_a_running_checksum_continues_that_of_the_preceding_bytes(front: bytes, rest: bytes) -> None:
    assert running_crc32(rest, running_crc32(front)) == zlib.crc32(front + rest)


@settings(deadline=None)
@given(st.binary(max_size=2000))
def test_every_buffer_type_has_the_checksum_of_zlib(data: bytes) -> None:
    expected = zlib.crc32(data) & 0x7FFFFFFF
    assert crc32(data) == crc32(bytearray(data)) == crc32(memoryview(data)) == expected
