"""From the bytes of records to the batches that Spark gets: filtered, and with exactly the columns of its schema.

A record that cannot become a row is never dropped silently: it stops the query, or it is counted and left out, or it is
written to a file of bad records. That is one Parquet file for each task that found some, in the directory of the option
badRecordsPath. Its name says which part of which queue or log the task read, so a task or a micro-batch that Spark
repeats replaces its own file, and every bad record is there once. A file appears when its task is done.
"""

import hashlib
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from ariane.arrow.decode import Decoder, decode_pieces, decode_records
from ariane.arrow.filter import OffsetRange, Selection
from ariane.arrow.schema import COLUMNS, message_schema
from ariane.arrow.walk import BadRecord
from ariane.errors import SettingsError
from ariane.spark.data_loss import report_loss
from ariane.spark.offsets import QueueRange
from ariane.spark.options.read import ReadOptions
from ariane.spark.read.columns import Columns, check_nulls
from ariane.spark.read.json import BadBody, JsonBodies
from ariane.spark.read.pull_buffers import PullBuffers
from ariane.spark.worker_memory import keep_imports

# --- files of bad records ---

COORDINATES = ("topic", "brokerName", "queueId", "queueOffset", "physicalOffset", "msgId", "storeTimestamp")
SCHEMA = pa.schema(
    [*(pa.field(name, COLUMNS[name]) for name in (*COORDINATES, "body")), pa.field("reason", pa.string())]
)
BODY_BYTES_MAX = 4 * 1024 * 1024
"""At most this much is kept of one record: a damaged part can be as long as a log."""
_NOT_IN_NAMES = re.compile(r"[^\w.-]+")


class BadRows:
    """The file of one task: rows are added while the task reads, and the file gets its name at the end."""

    def __init__(self, path: str, source: str) -> None:
        self._files, self._directory = _filesystem(path)
        digest = hashlib.blake2s(source.encode(), digest_size=6).hexdigest()
        self._name = f"bad-{_NOT_IN_NAMES.sub('_', source)[-120:]}-{digest}.parquet"
        self._draft = f"{self._directory}/.{self._name}.{uuid4().hex}"
        self._writer: pq.ParquetWriter | None = None
        self.count = 0

    def add(self, rows: list[dict[str, Any]]) -> None:
        if self._writer is None:
            self._files.create_dir(self._directory, recursive=True)
            self._writer = pq.ParquetWriter(self._draft, SCHEMA, filesystem=self._files, compression="zstd")
        self._writer.write_table(pa.Table.from_pylist(rows, schema=SCHEMA))
        self.count += len(rows)

    def __enter__(self) -> "BadRows":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is None:
            return
        self._writer.close()
        if kind is None:
            self._files.move(self._draft, f"{self._directory}/{self._name}")
        else:  # the task failed, or Spark did not read it to the end: if it is repeated, that run writes the file
            self._files.delete_file(self._draft)


def _filesystem(path: str) -> tuple[fs.FileSystem, str]:
    """A local directory, or a URI such as s3://bucket/bad of a file system that pyarrow supports."""
    if "://" not in path:
        return fs.LocalFileSystem(), path.rstrip("/")
    try:
        files, directory = fs.FileSystem.from_uri(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise SettingsError(f"option badRecordsPath is {path[:80]!r}, which cannot be written to: {error}") from None
    return files, directory.rstrip("/")


# --- batches ---

log = logging.getLogger(__name__)

Bytes = Callable[[BadRecord], bytes]
"""The bytes of a damaged record, at most BODY_BYTES_MAX."""


def selection_of(options: ReadOptions, *, with_times: bool) -> Selection:
    """The filter for messages that were read: brokers only compare hashes of tags, and do not filter by keys."""
    from_ms, before_ms = options.time_range() if with_times else (None, None)
    tags = options.tag_list
    return Selection(
        stored_from_ms=from_ms,
        stored_before_ms=before_ms,
        tags=None if tags is None else frozenset(tags),
        keys=frozenset(options.key_list) or None,
    )


class Output:
    """Of one task, as a context manager: at its end the file of bad records is complete, or their number is logged.

    `source` describes what the task reads, and is unique within the query.
    """

    def __init__(self, options: ReadOptions, columns: Columns, source: str) -> None:
        self._fails = options.fail_on_data_loss
        self._source = source
        self._bad_rows = None if options.bad_records_path is None else BadRows(options.bad_records_path, source)
        self._left_out = 0
        self._bodies: JsonBodies | None = None
        self._not_null = columns.arrow if columns.not_null else None
        self.needed = list(columns.names)
        if columns.json is not None:
            self._bodies = JsonBodies(columns.json, options)
            coordinates = COORDINATES if self._bad_rows is not None else ("queueOffset",)
            self.needed = list(dict.fromkeys(["body", *coordinates, *self._bodies.message_columns]))

    def __enter__(self) -> "Output":
        keep_imports()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bad_rows is not None:
            self._bad_rows.__exit__(kind, error, trace)
        if self._left_out:
            where = "written to badRecordsPath" if self._bad_rows is not None else "left out (mode=DROPMALFORMED)"
            log.warning("%s: %d records are not rows: %s", self._source, self._left_out, where)

    def batches(self, bodies: PullBuffers, offsets: QueueRange, selection: Selection) -> Iterator[pa.RecordBatch]:
        """The messages of pull responses within `offsets`: a pull with a filter may bring some from behind the end."""
        queue = offsets.queue
        ranges = (OffsetRange(queue.topic, queue.queue_id, offsets.start, offsets.end),)
        selection = replace(selection, ranges=ranges)
        decoder = Decoder(message_schema(self.needed), selection, queue.broker_name)
        whole = decode_pieces(*bodies.pieces(), decoder)
        for batch in self._joined_batches(bodies.joined(), offsets, selection) if whole is None else whole:
            yield from self.shaped(batch)

    def _joined_batches(self, data: bytes, offsets: QueueRange, selection: Selection) -> Iterator[pa.RecordBatch]:
        """The same, where some record is damaged: it is reported, and the others are decoded."""
        queue, done = offsets.queue, 0
        names = {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id}
        while done < len(data):
            decoded = decode_records(
                data, columns=self.needed, selection=selection, broker_name=queue.broker_name, start=done
            )
            self.report(
                decoded.bad, lambda bad: data[bad.position : bad.position + min(bad.size, BODY_BYTES_MAX)], names
            )
            yield decoded.batch
            done = decoded.end

    def shaped(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if not batch.num_rows:
            return
        if self._bodies is None:
            yield batch if self._not_null is None else check_nulls(batch, self._not_null)
            return
        parsed = self._bodies.parse(batch)
        self._leave_out(batch, parsed.bad)
        if parsed.batch.num_rows:
            yield parsed.batch

    def _leave_out(self, batch: pa.RecordBatch, bad: list[BadBody]) -> None:
        self._left_out += len(bad)
        if bad and self._bad_rows is not None:
            rows = batch.select([*COORDINATES, "body"]).take(pa.array([body.number for body in bad])).to_pylist()
            self._bad_rows.add([row | {"reason": body.reason} for row, body in zip(rows, bad, strict=True)])

    def report(self, bad: list[BadRecord], content: Bytes, known: dict[str, Any] | None = None) -> None:
        """Damaged records. `known` are coordinates that all of them share; in a log each has its position."""
        for record in bad:
            what = f"{record.size} bytes at {record.position} are not a readable message ({record.reason})"
            if self._bad_rows is None:
                report_loss(f"{self._source}: {what}", fail=self._fails)
                continue
            self._left_out += 1
            coordinates = {"physicalOffset": record.position} if known is None else known
            self._bad_rows.add([coordinates | {"body": content(record), "reason": what}])
