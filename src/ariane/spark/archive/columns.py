"""The columns of archived files, and how the columns that are not stored are computed.

| column | in a file |
|---|---|
| topic | as a directory |
| uniqueKey | in `properties` |
| offsetMsgId | from `storeHost` and `physicalOffset` |
| every other one of `ariane.arrow.schema` | as it is |

Bodies are decompressed. Numbers and names that repeat have a dictionary; statistics are kept where a reader can use
them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address

import numpy as np
import pyarrow as pa

from ariane.arrow.gather import uniform_texts
from ariane.arrow.schema import COLUMNS, message_schema
from ariane.model.message import Property

_COMPUTED: Mapping[str, tuple[str, ...]] = {
    "topic": (),
    "uniqueKey": ("properties",),
    "offsetMsgId": ("storeHost", "physicalOffset"),
}
STORED = tuple(name for name in COLUMNS if name not in _COMPUTED)
FILE_SCHEMA = message_schema(STORED)
READ_TO_ARCHIVE = ("topic", *STORED)

DICTIONARIES = [
    "brokerName", "queueId", "tags", "sysFlag", "flag", "reconsumeTimes", "bornHost", "storeHost",
    "preparedTransactionOffset", "storeSize", "properties.key_value.key",
]  # fmt: skip
DELTAS = dict.fromkeys(("queueOffset", "physicalOffset", "bornTimestamp", "storeTimestamp"), "DELTA_BINARY_PACKED")
STATISTICS = ["queueId", "queueOffset", "storeTimestamp", "bornTimestamp", "tags", "physicalOffset", "brokerName"]

_HEX = np.frombuffer("".join(f"{byte:02X}" for byte in range(256)).encode(), np.uint16)


def stored_for(columns: Sequence[str]) -> list[str]:
    """The columns of a file that are needed for these columns of a message."""
    return list(dict.fromkeys(stored for name in columns for stored in _COMPUTED.get(name, (name,))))


def message_columns(batch: pa.RecordBatch, topic: str, names: Sequence[str]) -> pa.RecordBatch:
    """From columns of a file to the requested columns of a message."""
    columns = [_MAKERS[name](batch, topic) if name in _MAKERS else batch.column(name) for name in names]
    return pa.RecordBatch.from_arrays(columns, schema=message_schema(names))


def _topic(batch: pa.RecordBatch, topic: str) -> pa.Array:
    return pa.repeat(pa.scalar(topic, pa.string()), batch.num_rows)


def unique_keys(batch: pa.RecordBatch, topic: str = "") -> pa.Array:
    maps = batch.column("properties")
    is_key = np.asarray(pa.compute.equal(maps.keys, Property.UNIQUE_KEY))
    rows = np.searchsorted(maps.offsets.to_numpy(), np.flatnonzero(is_key), side="right") - 1
    numbers = np.full(batch.num_rows, -1, np.int64)
    numbers[rows] = np.flatnonzero(is_key)
    return maps.items.take(pa.array(numbers, mask=numbers < 0))


def _offset_ids(batch: pa.RecordBatch, topic: str) -> pa.Array:
    hosts = batch.column("storeHost").dictionary_encode()
    offsets = batch.column("physicalOffset").to_numpy().astype(">i8").view(np.uint8).reshape(-1, 8)
    suffixes = uniform_texts(_HEX[offsets].view(np.uint8), pa.string())
    prefixes = pa.array([_host_hex(host) for host in hosts.dictionary.to_pylist()], pa.string()).take(hosts.indices)
    return pa.compute.binary_join_element_wise(prefixes, suffixes, "")


@lru_cache(maxsize=1024)
def _host_hex(host: str) -> str:
    address, _, port = host.rpartition(":")
    return ip_address(address.strip("[]")).packed.hex().upper() + f"{int(port):08X}"


_MAKERS: Mapping[str, Callable[[pa.RecordBatch, str], pa.Array]] = {
    "topic": _topic,
    "uniqueKey": unique_keys,
    "offsetMsgId": _offset_ids,
}
