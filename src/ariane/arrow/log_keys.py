"""The index files asked for keys: where in the log the messages with these keys are, without reading it."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ariane.arrow.source import Int64s
from ariane.errors import StoreError
from ariane.store.disk import Disk, RealDisk
from ariane.store.index_reader import IndexReader
from ariane.store.key_hash import key_hash
from ariane.store.layout import Layout
from ariane.store.scan_index import IndexScan, list_index, open_index

LOOKUPS_MAX = 10_000
"""Topics times keys: beyond, reading the log once is cheaper than asking the index so often."""


class KeyHits(NamedTuple):
    offsets: Int64s
    """Physical offsets of records that may have one of the keys, ascending: the index knows hashes only."""
    begin: int
    end: int
    """The part of the log that the index speaks of: from its first message on, and before its last."""


def find_keys(layout: Layout, topics: Iterable[str], keys: frozenset[str], disk: Disk | None = None) -> KeyHits | None:
    """None when the index cannot answer: there is none, it is damaged, or there are too many questions."""
    disk = disk or RealDisk()
    topics = list(topics)
    if len(topics) * len(keys) > LOOKUPS_MAX:
        return None
    hashes = {key_hash(topic, key) for topic in topics for key in keys}
    try:
        files = [open_index(disk, path) for path in list_index(disk, layout.index)]
        files = [file for file in files if file.header.entry_count > 1]
        if not files:
            return None
        hits = [_hits(disk, file, hashes) for file in files]
    except (StoreError, OSError):
        return None
    begin = min(file.header.begin_physical for file in files)
    end = max(file.header.end_physical for file in files)
    found = np.unique(np.concatenate(hits))
    return KeyHits(found[(found >= begin) & (found < end)], begin, end)


def _hits(disk: Disk, scan: IndexScan, hashes: set[int]) -> Int64s:
    file = disk.open(scan.path, writable=False)
    try:
        reader = IndexReader(scan.path, file, scan.slots)
        parts = [_chain(reader, scan, wanted) for wanted in hashes]
    finally:
        file.close()
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _chain(reader: IndexReader, scan: IndexScan, wanted: int) -> Int64s:
    slot = wanted % scan.slots
    found = [
        entries["physical"][entries["hash"] == wanted].astype(np.int64)
        for _, entries in reader.chain(slot, reader.head(slot), scan.capacity)
    ]
    return np.concatenate(found) if found else np.empty(0, np.int64)
