"""The bits of sysFlag: compression and transaction state."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.errors import RecordError
from ariane.wire.sys_flag import Compression, SysFlag, compression_of, transaction_type, with_compression


@pytest.mark.parametrize(
    ("sys_flag", "kind"),
    [
        (0x000, None),
        (0x100, None),  # a type without the compressed bit means nothing
        (0x001, Compression.ZLIB),  # producers that know only zlib
        (0x101, Compression.LZ4),
        (0x201, Compression.ZSTD),
        (0x301, Compression.ZLIB),
        (0x3FF, Compression.ZLIB),
    ],
)
def test_the_compression_is_in_bits_8_to_10(sys_flag: int, kind: Compression | None) -> None:
    assert compression_of(sys_flag) is kind


@pytest.mark.parametrize("sys_flag", [0x401, 0x501, 0x601, 0x701])
def test_an_unknown_compression_is_refused(sys_flag: int) -> None:
    with pytest.raises(RecordError, match="only 0 to 3"):
        compression_of(sys_flag)


@settings(deadline=None)
@given(st.integers(-(2**31), 2**31 - 1), st.sampled_from([None, *Compression]))
def test_setting_a_compression_leaves_all_other_bits_alone(sys_flag: int, kind: Compression | None) -> None:
    marked = with_compression(sys_flag, kind)
    assert compression_of(marked) is kind
    assert marked & ~0x701 == sys_flag & ~0x701


@pytest.mark.parametrize(
    ("sys_flag", "expected"),
    [
        (0x31, 0),
        (0x35, SysFlag.TRANSACTION_PREPARED),
        (0x39, SysFlag.TRANSACTION_COMMIT),
        (0x3D, SysFlag.TRANSACTION_ROLLBACK),
    ],
)
def test_the_transaction_type_is_a_number_in_bits_2_and_3(sys_flag: int, expected: int) -> None:
    assert transaction_type(sys_flag) == expected
