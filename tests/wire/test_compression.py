"""Compression of bodies: round trips, and limits that no decompression bomb passes."""

import random
import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.errors import RecordError, WireError
from ariane.wire.compression import compress, decompress
from ariane.wire.sys_flag import Compression, with_compression

kinds = pytest.mark.parametrize("kind", list(Compression))
LIMIT = 100_000
BOMB = bytes(50_000_000)
NOISE = random.Random(7).randbytes(5000)


def flag_of(kind: Compression) -> int:
    return with_compression(0, kind)


@settings(deadline=None)
@given(st.binary(max_size=3000), st.sampled_from(list(Compression)), st.integers(1, 9))
def test_bodies_survive_the_round_trip(body: bytes, kind: Compression, level: int) -> None:
    assert decompress(compress(body, kind, level), flag_of(kind), limit=len(body)) == body


def test_a_body_that_is_not_compressed_is_returned_unchanged() -> None:
    body = b"plain"
    assert decompress(body, 0x300, limit=1) is body


def test_zlib_is_read_with_type_bits_zero_and_three() -> None:
    packed = zlib.compress(b"hello" * 100, 5)
    assert decompress(packed, 0x1, LIMIT) == decompress(packed, 0x301, LIMIT) == b"hello" * 100


def test_zstd_frames_without_a_declared_size_are_read() -> None:
    # Java's streaming producer writes such frames.
    stream = zstandard.ZstdCompressor().compressobj()
    packed = stream.compress(b"hello" * 100) + stream.flush()
    assert zstandard.get_frame_parameters(packed).content_size == zstandard.CONTENTSIZE_UNKNOWN
    assert decompress(packed, flag_of(Compression.ZSTD), limit=500) == b"hello" * 100


@kinds
def test_a_bomb_ends_at_the_limit(kind: Compression) -> None:
    packed = compress(BOMB, kind)
    assert len(packed) < 250_000
    with pytest.raises(RecordError, match=f"limit of {LIMIT} bytes"):
        decompress(packed, flag_of(kind), LIMIT)


def test_a_zstd_bomb_without_a_declared_size_ends_at_the_limit() -> None:
    stream = zstandard.ZstdCompressor().compressobj()
    packed = stream.compress(BOMB) + stream.flush()
    with pytest.raises(RecordError, match=f"limit of {LIMIT} bytes"):
        decompress(packed, flag_of(Compression.ZSTD), LIMIT)


def test_a_zstd_frame_that_needs_a_giant_window_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = stream.compress(NOISE) + stream.flush()
    with pytest.raises(RecordError, match="zstd body"):
        decompress(packed, flag_of(Compression.ZSTD), LIMIT)


@kinds
@pytest.mark.parametrize("excess", [0, 1])
def test_the_limit_is_exact(kind: Compression, excess: int) -> None:
    packed = compress(NOISE, kind)
    if excess == 0:
        assert decompress(packed, flag_of(kind), len(NOISE)) == NOISE
    else:
        with pytest.raises(RecordError, match="limit of 4999 bytes"):
            decompress(packed, flag_of(kind), len(NOISE) - excess)


@kinds
@pytest.mark.parametrize("missing", [1, 5, 4990, 5000])
def test_a_truncated_stream_is_refused(kind: Compression, missing: int) -> None:
    packed = compress(NOISE, kind)
    with pytest.raises(RecordError, match="truncated"):
        decompress(packed[:-missing], flag_of(kind), LIMIT)


@kinds
def test_an_empty_body_is_refused(kind: Compression) -> None:
    with pytest.raises(RecordError):
        decompress(b"", flag_of(kind), LIMIT)


@kinds
@pytest.mark.parametrize("garbage", [b"x", b"\x00" * 50])
def test_bytes_after_the_end_are_refused(kind: Compression, garbage: bytes) -> None:
    with pytest.raises(RecordError):
        decompress(compress(NOISE, kind) + garbage, flag_of(kind), LIMIT)


def test_an_lz4_frame_with_a_false_declared_size_is_refused() -> None:
    packed = bytearray(lz4.frame.compress(b"hello" * 100, store_size=True))
    packed[6:14] = (2**40).to_bytes(8, "little")
    with pytest.raises(RecordError):
        decompress(bytes(packed), flag_of(Compression.LZ4), LIMIT)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[bytes, Compression]:
    kind = draw(st.sampled_from(list(Compression)))
    packed = bytearray(compress(draw(st.binary(max_size=300)), kind))
    for _ in range(draw(st.integers(1, 4))):
        packed[draw(st.integers(0, len(packed) - 1))] = draw(st.integers(0, 255))
    return bytes(packed[: draw(st.integers(0, len(packed)))]), kind


@settings(deadline=None)
@given(damaged() | st.tuples(st.binary(max_size=200), st.sampled_from(list(Compression))))
def test_arbitrary_bytes_decompress_within_the_limit_or_raise_a_wire_error(case: tuple[bytes, Compression]) -> None:
    body, kind = case
    try:
        plain = decompress(body, flag_of(kind), LIMIT)
    except WireError:
        return
    assert len(plain) <= LIMIT
