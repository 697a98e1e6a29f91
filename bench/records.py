"""Benchmark of the message codecs, function by function: CPU microseconds per call, the best of several rounds.

Targets are what prototypes of the broker's hot path reached on a quiet machine (2 virtual CPUs, an optimised build of
CPython 3.11). A ratio mixes this code with this machine and its Python, so two rejected prototypes are measured in
the same run: compare with those.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address

from ariane.model.message import HostPort
from ariane.wire.hashes import crc32, java_hash, tags_code
from ariane.wire.host import encode_host
from ariane.wire.message_id import UniqueKeys, offset_message_id
from ariane.wire.properties import decode_properties, encode_properties
from ariane.wire.record.batch import BatchItem, decode_batch, encode_batch
from ariane.wire.record.layout import MAGIC_V1, encode, pack_record
from ariane.wire.record.read import RecordView, decode, decode_all, verify, walk
from bench.timing import us_per_call

Row = tuple[str, float]
Case = tuple[str, Callable[[], object], int]
"""A name, a function, and how many records one call of it handles."""

RECORDS = 32

TARGETS_US = {
    "crc32, isal, 1 KiB": 0.052,
    "crc32, isal, 100 B": 0.039,
    "crc32, zlib, 1 KiB": 0.391,
    "crc32, zlib, 100 B": 0.159,
    "pack_record, 1 KiB": 0.30,
    "prototype: cached Struct, 1 KiB": 0.30,
    "prototype: zip of pieces, 6 pairs": 0.70,
    "decode_properties, 6 pairs": 0.70,
    "java_hash, 46 characters": 1.94,
    "tags_code, cached": 0.025,
}

_TOPIC = b"BenchTopic"
_UNIQUE_KEY = "FD00000000000000000000000000000239FE30946E094CB2B1EB0000"
_PROPERTIES = {
    "KEYS": "order-123456",
    "UNIQ_KEY": _UNIQUE_KEY,
    "CLUSTER": "DefaultCluster",
    "TAGS": "TagA",
    "WAIT": "true",
    "region": "hangzhou",
}
_PROPERTY_TEXT = encode_properties(_PROPERTIES)
_HOST = encode_host(HostPort(IPv4Address("127.0.0.1"), 10911))
_NOW_MS = 1_700_000_000_000


def main() -> None:
    print(f"{'':<34}{'us':>9}{'target':>9}{'ratio':>7}")
    for name, us in rows():
        target = TARGETS_US.get(name)
        comparison = f"{target:9.3f}{us / target:7.2f}" if target else ""
        print(f"{name:<34}{us:9.3f}{comparison}")


def rows() -> list[Row]:
    """Every measurement as (name, microseconds a record)."""
    return [(name, us_per_call(call) / records) for name, call, records in _cases()]


def _cases() -> Iterator[Case]:
    for size, label in ((100, "100 B"), (1024, "1 KiB")):
        yield from _record_cases(bytes(range(256)) * 4, size, label)
    yield from _text_cases()


def _record_cases(source: bytes, size: int, label: str) -> Iterator[Case]:
    body = source[:size]
    record = _pack(body)
    message = decode(record)
    log = record * RECORDS
    batch = encode_batch([BatchItem(body, _PROPERTY_TEXT)] * RECORDS)
    yield from _crc_cases(body, label)
    yield f"pack_record, {label}", lambda: _pack(body), 1
    yield f"prototype: cached Struct, {label}", _cached_struct_prototype(body), 1
    yield f"encode, {label}", lambda: encode(message), 1
    yield f"verify, {label}", lambda: verify(record), 1
    yield f"verify without crc, {label}", lambda: verify(record, check_body_crc=False), 1
    yield f"walk, {label}", lambda: sum(verdict.size for verdict in walk(log)), RECORDS
    yield f"verify and dispatch_facts, {label}", lambda: _view(record).dispatch_facts(), 1
    yield f"decode, {label}", lambda: decode(record), 1
    yield f"decode_all, {label}", lambda: decode_all(log), RECORDS
    yield f"decode_batch, {label}", lambda: decode_batch(batch, count_max=RECORDS), RECORDS


def _crc_cases(body: bytes, label: str) -> Iterator[Case]:
    try:
        from isal import isal_zlib
    except ImportError:
        pass
    else:
        yield f"crc32, isal, {label}", lambda: isal_zlib.crc32(body), 1
    yield f"crc32, zlib, {label}", lambda: zlib.crc32(body), 1
    yield f"crc32 as used, {label}", lambda: crc32(body), 1


def _text_cases() -> Iterator[Case]:
    keys = UniqueKeys(IPv4Address("127.0.0.1"), 1, b"salt", lambda: _NOW_MS)
    hashed = f"BenchTopic#{_UNIQUE_KEY}"[:46]
    yield "encode_properties, 6 pairs", lambda: encode_properties(_PROPERTIES), 1
    yield "decode_properties, 6 pairs", lambda: decode_properties(_PROPERTY_TEXT), 1
    yield "prototype: zip of pieces, 6 pairs", _zip_of_pieces, 1
    yield "java_hash, 46 characters", lambda: java_hash(hashed), 1
    yield "tags_code, cached", lambda: tags_code("TagA"), 1
    yield "offset_message_id", lambda: offset_message_id(_HOST, 123456), 1
    yield "UniqueKeys.next", keys.next, 1


def _pack(body: bytes) -> bytes:
    return pack_record(
        topic=_TOPIC,
        body=body,
        properties=_PROPERTY_TEXT,
        queue_id=3,
        flag=0,
        queue_offset=123456,
        physical_offset=123456789,
        sys_flag=0,
        born_timestamp_ms=_NOW_MS,
        born_host=_HOST,
        store_timestamp_ms=_NOW_MS,
        store_host=_HOST,
    )


def _cached_struct_prototype(body: bytes) -> Callable[[], bytes]:
    """One Struct for the whole record, found by its lengths: what `pack_record` was measured against."""
    structs: dict[tuple[int, int, int], struct.Struct] = {}

    def pack() -> bytes:
        b, t, p = len(body), len(_TOPIC), len(_PROPERTY_TEXT)
        layout = structs.get((b, t, p))
        if layout is None:
            layout = structs[b, t, p] = struct.Struct(f">iIIiiqqiq8sq8siqi{b}sb{t}sh{p}s")
        start = (
            91 + b + t + p,
            MAGIC_V1,
            crc32(body),
            3,
            0,
            123456,
            123456789,
            0,
            _NOW_MS,
            _HOST,
            _NOW_MS,
            _HOST,
            0,
            0,
        )
        return layout.pack(*start, b, body, t, _TOPIC, p, _PROPERTY_TEXT)

    assert pack() == _pack(body)
    return pack


def _zip_of_pieces() -> dict[str, str]:
    """Reads regular property texts only: what `decode_properties` was measured against."""
    pieces = iter(_PROPERTY_TEXT.decode().replace("\x02", "\x01").split("\x01"))
    return dict(zip(pieces, pieces, strict=False))


def _view(record: bytes) -> RecordView:
    view = verify(record, check_body_crc=False)
    assert isinstance(view, RecordView)
    return view


if __name__ == "__main__":
    main()
