"""Cost of decoding records to Arrow, compared with the row decoder: rows per second and core, best of several rounds.

    python -m bench.arrow

The log holds one topic's records, six properties each, and is decoded in batches of 4 MiB: once 4 MiB, which stay in
the processor's cache, and once 16 MiB, which do not. A store's reader makes batches twice as large, because in Spark a
batch has a higher fixed cost; bench/spark.py measures the cost of a row there. Compared are:

    tuple path    ariane.wire.record.read.decode_all: one object for each message
    prototype     fields and bodies gathered, with record offsets known and nothing checked: the minimum that numpy and
                  pyarrow need, and the reference for this machine
    starts known  the same with every check, as when queues or the index have the offsets of records
    scan          record offsets found, too: a whole log
"""

from collections.abc import Callable, Sequence
from functools import partial
from ipaddress import IPv4Address
from random import Random

import numpy as np
import pyarrow as pa

from ariane.arrow.decode import Decoder
from ariane.arrow.gather import ByteGatherer, Int64s, fixed
from ariane.arrow.schema import TIMESTAMP, message_schema
from ariane.arrow.walk import Walk
from ariane.model.message import HostPort
from ariane.wire.host import encode_host
from ariane.wire.properties import encode_properties
from ariane.wire.record.layout import pack_record
from ariane.wire.record.numpy_fields import HEAD_BYTES, heads_at
from ariane.wire.record.read import decode_all
from bench.timing import us_per_call

DECODED_BYTES = 4 * 1024 * 1024
"""Bytes of log per batch."""
LOG_BYTES = (DECODED_BYTES, 4 * DECODED_BYTES)
SEVEN = ("topic", "queueId", "queueOffset", "physicalOffset", "bornTimestamp", "storeTimestamp", "body")
COLUMN_SETS: dict[str, tuple[str, ...]] = {
    "one long": ("queueOffset",),
    "7 columns": SEVEN,
    "7 + tags, keys": (*SEVEN, "tags", "keys"),
    "13 with the map": (*SEVEN, "tags", "keys", "msgId", "flag", "sysFlag", "properties"),
}
GOALS = {"1 KiB": 4.0, "100 B": 15.0}
_TOPIC = b"BenchTopic"
_HOST = encode_host(HostPort(IPv4Address("127.0.0.1"), 10911))
_NOW_MS = 1_700_000_000_000


def main() -> None:
    for log_bytes in LOG_BYTES:
        for label, size in (("1 KiB", 1024), ("100 B", 100)):
            _report(label, make_log(size, log_bytes))


def _report(label: str, log: bytes) -> None:
    starts = np.array_split(starts_of(log), len(log) // DECODED_BYTES)
    count = sum(map(len, starts))
    print(f"\n{label}: {count} records in {len(log) >> 20} MiB{'':<20}Mrow/s   GB/s of log")
    rows = partial(_row, count, len(log))
    rows("tuple path", lambda: decode_all(log))
    rows("prototype, 7 columns", lambda: [prototype(log, some) for some in starts])
    for name, columns in COLUMN_SETS.items():
        goal = f"   goal {GOALS[label]:.0f}" if name == "7 columns" else ""
        rows(f"{name}, starts known{goal}", partial(known_starts, log, columns, starts))
        rows(f"{name}, scan", partial(scan, log, columns))


def _row(count: int, length: int, name: str, call: Callable[[], object]) -> None:
    us = us_per_call(call)
    print(f"  {name:<46}{count / us:9.2f}{length / us / 1000:9.2f}")


def make_log(body_bytes: int, log_bytes: int) -> bytes:
    """Consecutive records of one topic in four queues, from physical offset 0. Bodies differ: Parquet would store equal
    ones only once."""
    records: list[bytes] = []
    position, bodies = 0, Random(body_bytes)
    while position < log_bytes:
        records.append(_record(bodies.randbytes(body_bytes), len(records), position))
        position += len(records[-1])
    return b"".join(records)


def _record(body: bytes, number: int, position: int) -> bytes:
    properties = {
        "KEYS": f"order-{number}",
        "UNIQ_KEY": f"7F00000100002A9F{number:016X}",
        "CLUSTER": "DefaultCluster",
        "TAGS": f"Tag{'ABC'[number % 3]}",
        "WAIT": "true",
        "region": "hangzhou",
    }
    return pack_record(
        topic=_TOPIC,
        body=body,
        properties=encode_properties(properties),
        queue_id=number % 4,
        flag=0,
        queue_offset=number // 4,
        physical_offset=position,
        sys_flag=0,
        born_timestamp_ms=_NOW_MS + number,
        born_host=_HOST,
        store_timestamp_ms=_NOW_MS + number,
        store_host=_HOST,
    )


def starts_of(log: bytes) -> Int64s:
    walk = Walk(ByteGatherer(log), len(log), 0)
    return np.concatenate([span.rows.position for span in walk.spans(0, len(log))])


def known_starts(log: bytes, columns: Sequence[str], starts: Sequence[Int64s]) -> int:
    walk = Walk(ByteGatherer(log), len(log), 0)
    decoder = Decoder(schema=message_schema(columns))
    return sum(part.batch.num_rows for some in starts for part in decoder.parts(walk, walk.check_at(some).rows))


def scan(log: bytes, columns: Sequence[str]) -> int:
    walk = Walk(ByteGatherer(log), len(log), 0)
    decoder = Decoder(schema=message_schema(columns))
    spans = walk.spans(0, len(log), piece_bytes=DECODED_BYTES)
    return sum(part.batch.num_rows for span in spans for part in decoder.parts(walk, span.rows))


def prototype(log: bytes, starts: Int64s) -> pa.RecordBatch:
    """Seven columns of records that are known to be whole, of one layout and of topics of one length."""
    source = ByteGatherer(log)
    heads = heads_at(source.view, starts)
    body, length = starts + HEAD_BYTES, heads["bodyLength"].astype(np.int64)
    topic = body + length + 1
    arrays = [
        source.gather(topic, source.bytes[topic - 1].astype(np.int64), pa.string()),
        fixed(heads["queueId"].astype(np.int32), pa.int32()),
        fixed(heads["queueOffset"].astype(np.int64), pa.int64()),
        fixed(heads["physicalOffset"].astype(np.int64), pa.int64()),
        fixed(heads["bornTimestamp"].astype(np.int64) * 1000, TIMESTAMP),
        fixed(heads["storeTimestamp"].astype(np.int64) * 1000, TIMESTAMP),
        source.gather(body, length, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=message_schema(SEVEN))


if __name__ == "__main__":
    main()
