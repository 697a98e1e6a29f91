"""Compression of message bodies with zlib, lz4 (frame format) or zstd, according to the sysFlag.

A decompression bomb can turn a few bytes into gigabytes. So every decompressor gets an output limit before it
allocates, and fails one byte past it.

lz4 and zstd are imported for the first body that needs them: few programs use both, and most use neither.
"""

import zlib

from ariane.errors import RecordError
from ariane.wire.sys_flag import Compression, compression_of

# A zstd frame may require a window of gigabytes. The specification (RFC 8878) recommends that decoders support at least
# 8 MiB and that encoders stay within it; the levels that producers use need at most 4 MiB.
_ZSTD_WINDOW_BYTES_MAX = 8 * 1024 * 1024


def compress(body: bytes, kind: Compression, level: int = 5) -> bytes:
    """`body` compressed; the caller sets the sysFlag (`with_compression`). lz4 ignores the level, as in Java."""
    match kind:
        case Compression.ZLIB:
            return zlib.compress(body, level)
        case Compression.ZSTD:
            import zstandard

            return zstandard.ZstdCompressor(level=level).compress(body)
        case Compression.LZ4:
            import lz4.frame

            compressed: bytes = lz4.frame.compress(body)
            return compressed


def decompress(body: bytes, sys_flag: int, limit: int) -> bytes:
    """The decompressed body, at most `limit` bytes; `body` itself when `sys_flag` says that it is not compressed."""
    kind = compression_of(sys_flag)
    if kind is None:
        return body
    try:
        plain = _DECOMPRESSORS[kind](body, limit)
    except (zlib.error, RuntimeError) as error:  # RuntimeError: all that lz4 ever raises
        # zstd does not distinguish a truncated frame from one that is too large, so the message covers both.
        raise RecordError(
            f"the {kind.name.lower()} body of {len(body)} bytes is damaged, truncated or larger than the limit of "
            f"{limit} bytes when decompressed: {error}"
        ) from None
    if len(plain) > limit:
        raise _too_large(kind, limit)
    return plain


def _inflate(body: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj()
    plain = stream.decompress(body, limit + 1)
    _check_end(Compression.ZLIB, len(plain) > limit or stream.eof, stream.unused_data)
    return plain


def _decompress_lz4(body: bytes, limit: int) -> bytes:
    import lz4.frame

    stream = lz4.frame.LZ4FrameDecompressor()
    plain: bytes = stream.decompress(body, max_length=limit + 1)
    _check_end(Compression.LZ4, len(plain) > limit or stream.eof, stream.unused_data)
    return plain


def _decompress_zstd(body: bytes, limit: int) -> bytes:
    import zstandard

    try:
        # When the frame declares its size, the library allocates that much and ignores max_output_size: check it first.
        # Java's streaming producer declares none: then max_output_size bytes are allocated, and the limit holds.
        declared = zstandard.get_frame_parameters(body).content_size
        if declared != zstandard.CONTENTSIZE_UNKNOWN and declared > limit:
            raise _too_large(Compression.ZSTD, limit)
        decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
        return decompressor.decompress(body, max_output_size=limit + 1, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise RuntimeError(error) from None  # the type that lz4 raises, so that the caller need not import zstandard


def _check_end(kind: Compression, at_end: bool, trailing: bytes | None) -> None:
    if not at_end:
        raise RecordError(f"the {kind.name.lower()} body is truncated: its stream has no end")
    if trailing:
        raise RecordError(f"{len(trailing)} bytes follow the end of the {kind.name.lower()} body")


def _too_large(kind: Compression, limit: int) -> RecordError:
    return RecordError(f"the {kind.name.lower()} body decompresses to more than the limit of {limit} bytes")


_DECOMPRESSORS = {
    Compression.ZLIB: _inflate,
    Compression.LZ4: _decompress_lz4,
    Compression.ZSTD: _decompress_zstd,
}
