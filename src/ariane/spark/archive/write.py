"""Writes batches of messages to Parquet files of an archive, one for each topic and day. Runs in a task; a commit makes
the files visible.
"""

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
"""Of messages: what a reader reads at a time, and what statistics can skip."""
_WAITING_BYTES_MAX = 256 * 1024 * 1024
_ROW_GROUP_ROWS_MAX = 1024 * 1024

TopicDay = tuple[str, int | None]
"""The topic, and the day since 1970; None for messages without a time."""


@dataclass
class _OpenFile:
    """A file that is being written."""

    path: Path
    writer: pq.ParquetWriter
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    rows: int = 0
    row_groups: int = 0
    stored_us: tuple[int, int] | None = None
    queues: dict[tuple[str | None, int], tuple[int, int]] = field(default_factory=dict)


class ArchiveWriter:
    """Final names are `DIRECTORY/STEM.parquet`; until the commit the files are in the staging directory of the run."""

    def __init__(self, layout: ArchiveLayout, run: str, stem: str, compression: str) -> None:
        self._layout = layout
        self._directory = layout.staged / run
        self._stem = stem
        self._compression = compression
        self._files: dict[TopicDay, _OpenFile] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """The columns of READ_TO_ARCHIVE."""
        for day, part in _by_topic_and_day(batch):
            file = self._files.get(day) or self._open(day)
            stored = part.select(STORED)
            _update_statistics(file, stored)
            file.waiting.append(stored)
            file.waiting_bytes += stored.nbytes
            if file.waiting_bytes >= ROW_GROUP_BYTES:
                self._write(file)
        self._limit_memory()

    def close(self) -> list[ArchivedFile]:
        """The files are durable then, and not visible yet."""
        files = []
        for day, file in self._files.items():
            self._write(file)
            file.writer.close()
            _sync(file.path)
            files.append(self._described(day, file))
        return files

    def _open(self, day: TopicDay) -> _OpenFile:
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"{uuid.uuid4().hex}.parquet"  # a repeated task must not find the file of the first
        writer = pq.ParquetWriter(
            path,
            FILE_SCHEMA,
            compression=self._compression,
            use_dictionary=DICTIONARIES,
            column_encoding=DELTAS,
            write_statistics=STATISTICS,
        )
        self._files[day] = _OpenFile(path, writer)
        return self._files[day]

    def _write(self, file: _OpenFile) -> None:
        if file.waiting:
            file.writer.write_table(pa.Table.from_batches(file.waiting), row_group_size=_ROW_GROUP_ROWS_MAX)
            file.row_groups += -(-sum(batch.num_rows for batch in file.waiting) // _ROW_GROUP_ROWS_MAX)
            file.waiting, file.waiting_bytes = [], 0

    def _limit_memory(self) -> None:
        """A store of many topics has many files open: write the largest waiting ones before memory runs out."""
        while sum(file.waiting_bytes for file in self._files.values()) > _WAITING_BYTES_MAX:
            self._write(max(self._files.values(), key=lambda file: file.waiting_bytes))

    def _described(self, topic_day: TopicDay, file: _OpenFile) -> ArchivedFile:
        topic, day = topic_day
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


def _by_topic_and_day(batch: pa.RecordBatch) -> Iterator[tuple[TopicDay, pa.RecordBatch]]:
    """The batch, split by topic and day: nearly always it stays whole."""
    stored = batch.column("storeTimestamp").cast(pa.int64())
    days = pc.floor(pc.divide(stored.cast(pa.float64()), float(DAY_US))).cast(pa.int64())
    topics, distinct_days = pc.unique(batch.column("topic")).to_pylist(), pc.unique(days).to_pylist()
    if len(topics) == 1 and len(distinct_days) == 1:
        yield (topics[0], distinct_days[0]), batch
        return
    for topic in topics:
        of_topic = pc.equal(batch.column("topic"), topic)
        for day in distinct_days:
            of_day = pc.is_null(days) if day is None else pc.fill_null(pc.equal(days, day), False)
            part = batch.filter(pc.and_(of_topic, of_day))
            if part.num_rows:
                yield (topic, day), part


def _update_statistics(file: _OpenFile, batch: pa.RecordBatch) -> None:
    file.rows += batch.num_rows
    times = pc.min_max(batch.column("storeTimestamp").cast(pa.int64())).as_py()
    if times["min"] is not None:
        low, high = file.stored_us or (times["min"], times["max"])
        file.stored_us = min(low, times["min"]), max(high, times["max"])
    broker = batch.column("brokerName")[0].as_py()  # a task reads one broker or one store
    queue_ids, offsets = batch.column("queueId").to_numpy(), batch.column("queueOffset").to_numpy()
    for queue_id in np.unique(queue_ids).tolist():
        of_queue = offsets[queue_ids == queue_id]
        first, end = file.queues.get((broker, queue_id), (int(of_queue[0]), 0))
        file.queues[broker, queue_id] = min(first, int(of_queue.min())), max(end, int(of_queue.max()) + 1)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
