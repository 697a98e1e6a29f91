"""Batches of messages to Parquet files, one for each topic and day. Runs in a task, and shows nothing by itself."""

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ariane.spark.archive.columns import DELTAS, DICTIONARIES, FILE_SCHEMA, STATISTICS, STORED
from ariane.spark.archive.commits import DAY_US, ArchivedFile, ArchiveLayout, QueueSpan, partition_directory

ROW_GROUP_BYTES = 32 * 1024 * 1024
"""Of messages: what a reader takes at a time, and what statistics tell apart."""
_WAITING_BYTES_MAX = 256 * 1024 * 1024
_ROW_GROUP_ROWS_MAX = 1024 * 1024

Place = tuple[str, int | None]


@dataclass
class _Open:
    """One file on its way."""

    path: Path
    writer: pq.ParquetWriter
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    rows: int = 0
    row_groups: int = 0
    stored_us: tuple[int, int] | None = None
    queues: dict[tuple[str | None, int], tuple[int, int]] = field(default_factory=dict)


class ArchiveWriter:
    """Files get the names `DIRECTORY/STEM.parquet`; until they are committed they are in a directory of the run."""

    def __init__(self, layout: ArchiveLayout, run: str, stem: str, compression: str) -> None:
        self._layout = layout
        self._directory = layout.staged / run
        self._stem = stem
        self._compression = compression
        self._files: dict[Place, _Open] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """The columns of READ_TO_ARCHIVE."""
        for place, part in _by_place(batch):
            file = self._files.get(place) or self._open(place)
            stored = part.select(STORED)
            _note(file, stored)
            file.waiting.append(stored)
            file.waiting_bytes += stored.nbytes
            if file.waiting_bytes >= ROW_GROUP_BYTES:
                self._write(file)
        self._relieve()

    def close(self) -> list[ArchivedFile]:
        """Durable files, not yet visible ones."""
        done = []
        for place, file in self._files.items():
            self._write(file)
            file.writer.close()
            _sync(file.path)
            done.append(self._described(place, file))
        return done

    def _open(self, place: Place) -> _Open:
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"{uuid.uuid4().hex}.parquet"  # a task that is repeated meets no file of its first run
        writer = pq.ParquetWriter(
            path,
            FILE_SCHEMA,
            compression=self._compression,
            use_dictionary=DICTIONARIES,
            column_encoding=DELTAS,
            write_statistics=STATISTICS,
        )
        self._files[place] = _Open(path, writer)
        return self._files[place]

    def _write(self, file: _Open) -> None:
        if file.waiting:
            file.writer.write_table(pa.Table.from_batches(file.waiting), row_group_size=_ROW_GROUP_ROWS_MAX)
            file.row_groups += -(-sum(batch.num_rows for batch in file.waiting) // _ROW_GROUP_ROWS_MAX)
            file.waiting, file.waiting_bytes = [], 0

    def _relieve(self) -> None:
        """A store of many topics has many files open: the fullest give way before the memory does."""
        while sum(file.waiting_bytes for file in self._files.values()) > _WAITING_BYTES_MAX:
            self._write(max(self._files.values(), key=lambda file: file.waiting_bytes))

    def _described(self, place: Place, file: _Open) -> ArchivedFile:
        topic, day = place
        low, high = file.stored_us or (None, None)
        spans = [QueueSpan(broker, queue, first, end) for (broker, queue), (first, end) in file.queues.items()]
        return ArchivedFile(
            path=f"{partition_directory(topic, day)}/{self._stem}.parquet",
            staged=str(file.path.relative_to(self._layout.root)),
            topic=topic,
            rows=file.rows,
            size=file.path.stat().st_size,
            row_groups=file.row_groups,
            stored_min_us=low,
            stored_max_us=high,
            queues=sorted(spans, key=lambda span: (span.broker or "", span.queue_id)),
        )


def _by_place(batch: pa.RecordBatch) -> Iterator[tuple[Place, pa.RecordBatch]]:
    """The batch, cut by topic and day: nearly always it is one piece."""
    stored = batch.column("storeTimestamp").cast(pa.int64())
    days = pc.floor(pc.divide(stored.cast(pa.float64()), float(DAY_US))).cast(pa.int64())
    topics, kinds = pc.unique(batch.column("topic")).to_pylist(), pc.unique(days).to_pylist()
    if len(topics) == 1 and len(kinds) == 1:
        yield (topics[0], kinds[0]), batch
        return
    for topic in topics:
        of_topic = pc.equal(batch.column("topic"), topic)
        for day in kinds:
            of_day = pc.is_null(days) if day is None else pc.fill_null(pc.equal(days, day), False)
            part = batch.filter(pc.and_(of_topic, of_day))
            if part.num_rows:
                yield (topic, day), part


def _note(file: _Open, batch: pa.RecordBatch) -> None:
    file.rows += batch.num_rows
    times = pc.min_max(batch.column("storeTimestamp").cast(pa.int64())).as_py()
    if times["min"] is not None:
        low, high = file.stored_us or (times["min"], times["max"])
        file.stored_us = min(low, times["min"]), max(high, times["max"])
    broker = batch.column("brokerName")[0].as_py()  # a task reads one broker or one store
    queue_ids, offsets = batch.column("queueId").to_numpy(), batch.column("queueOffset").to_numpy()
    for queue_id in np.unique(queue_ids).tolist():
        mine = offsets[queue_ids == queue_id]
        first, end = file.queues.get((broker, queue_id), (int(mine[0]), 0))
        file.queues[broker, queue_id] = min(first, int(mine.min())), max(end, int(mine.max()) + 1)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
