"""From the bytes of records to the batches that Spark gets: chosen, and with the columns of its schema, no others.

What cannot be given as a row is told: it stops the query, or is counted and left out, or is kept apart in a file.
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
from ariane.spark.read.columns import Columns, keep_promise
from ariane.spark.read.json import BadBody, JsonBodies
from ariane.spark.read.pull_buffers import PullBuffers
from ariane.spark.worker_memory import keep_imports

# --- bad_rows ---
#
# Bad records kept apart: one Parquet file for each task that met some, in the directory of the option badRecordsPath.
#
# The file's name says which part of which queue or log the task read, so a task or a micro-batch that Spark repeats
# replaces its own file: every bad record is there once. A file appears when its task is done, and whole.

COORDINATES = ("topic", "brokerName", "queueId", "queueOffset", "physicalOffset", "msgId", "storeTimestamp")
SCHEMA = pa.schema(
    [*(pa.field(name, COLUMNS[name]) for name in (*COORDINATES, "body")), pa.field("reason", pa.string())]
)
BODY_BYTES_MAX = 4 * 1024 * 1024
"""What is kept of one record: damage can be as long as a log."""
_NOT_IN_NAMES = re.compile(r"[^\w.-]+")


class BadRows:
    """For one task: rows are added while it reads, and the file gets its name at the end."""

    def __init__(self, path: str, place: str) -> None:
        self._files, self._directory = _filesystem(path)
        digest = hashlib.blake2s(place.encode(), digest_size=6).hexdigest()
        self._name = f"bad-{_NOT_IN_NAMES.sub('_', place)[-120:]}-{digest}.parquet"
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
        else:  # the task failed, or nobody wanted the rest of it: whoever repeats it writes the file
            self._files.delete_file(self._draft)


def _filesystem(path: str) -> tuple[fs.FileSystem, str]:
    """A directory of this machine, or an address such as s3://bucket/bad that pyarrow knows the file system of."""
    if "://" not in path:
        return fs.LocalFileSystem(), path.rstrip("/")
    try:
        files, directory = fs.FileSystem.from_uri(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise SettingsError(f"option badRecordsPath is {path[:80]!r}, which cannot be written to: {error}") from None
    return files, directory.rstrip("/")


# ---

log = logging.getLogger(__name__)

Bytes = Callable[[BadRecord], bytes]
"""What stands where a record is damaged, up to BODY_BYTES_MAX of it."""


def selection_of(options: ReadOptions, *, with_times: bool) -> Selection:
    """What is left to check when messages have been read: brokers compare hashes of tags, and of keys know nothing."""
    from_ms, before_ms = options.time_range() if with_times else (None, None)
    tags = options.tag_list
    return Selection(
        stored_from_ms=from_ms,
        stored_before_ms=before_ms,
        tags=None if tags is None else frozenset(tags),
        keys=frozenset(options.key_list) or None,
    )


class Output:
    """Made once for a task, and used in a `with`: at its end the file of bad records is there, or their number told.

    `place` says what the task reads, in words that no other task of the query has.
    """

    def __init__(self, options: ReadOptions, columns: Columns, place: str) -> None:
        self._fails = options.fail_on_data_loss
        self._place = place
        self._apart = None if options.bad_records_path is None else BadRows(options.bad_records_path, place)
        self._left_out = 0
        self._bodies: JsonBodies | None = None
        self._promised = columns.arrow if columns.promised else None
        self.needed = list(columns.names)
        if columns.json is not None:
            self._bodies = JsonBodies(columns.json, options)
            coordinates = COORDINATES if self._apart is not None else ("queueOffset",)
            self.needed = list(dict.fromkeys(["body", *coordinates, *self._bodies.message_columns]))

    def __enter__(self) -> "Output":
        keep_imports()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._apart is not None:
            self._apart.__exit__(kind, error, trace)
        if self._left_out:
            where = "kept apart in badRecordsPath" if self._apart is not None else "left out (mode=DROPMALFORMED)"
            log.warning("%s: %d records are no rows: %s", self._place, self._left_out, where)

    def batches(self, bodies: PullBuffers, wanted: QueueRange, selection: Selection) -> Iterator[pa.RecordBatch]:
        """The messages of answers that lie within `wanted`: a pull with a filter may bring some from behind its end."""
        queue = wanted.queue
        ranges = (OffsetRange(queue.topic, queue.queue_id, wanted.start, wanted.end),)
        selection = replace(selection, ranges=ranges)
        decoder = Decoder(message_schema(self.needed), selection, queue.broker_name)
        whole = decode_pieces(*bodies.pieces(), decoder)
        for batch in self._joined_batches(bodies.joined(), wanted, selection) if whole is None else whole:
            yield from self.shaped(batch)

    def _joined_batches(self, data: bytes, wanted: QueueRange, selection: Selection) -> Iterator[pa.RecordBatch]:
        """The same, record by record where one of them is no message; that is told."""
        queue, done = wanted.queue, 0
        names = {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id}
        while done < len(data):
            decoded = decode_records(
                data, columns=self.needed, selection=selection, broker_name=queue.broker_name, start=done
            )
            self.report(
                decoded.bad, lambda one: data[one.position : one.position + min(one.size, BODY_BYTES_MAX)], names
            )
            yield decoded.batch
            done = decoded.end

    def shaped(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if not batch.num_rows:
            return
        if self._bodies is None:
            yield batch if self._promised is None else keep_promise(batch, self._promised)
            return
        parsed = self._bodies.parse(batch)
        self._leave_out(batch, parsed.bad)
        if parsed.batch.num_rows:
            yield parsed.batch

    def _leave_out(self, batch: pa.RecordBatch, bad: list[BadBody]) -> None:
        self._left_out += len(bad)
        if bad and self._apart is not None:
            rows = batch.select([*COORDINATES, "body"]).take(pa.array([one.number for one in bad])).to_pylist()
            self._apart.add([row | {"reason": one.reason} for row, one in zip(rows, bad, strict=True)])

    def report(self, bad: list[BadRecord], content: Bytes, known: dict[str, Any] | None = None) -> None:
        """Damaged records. `known` are coordinates that all of them have; in a log it is their position."""
        for one in bad:
            what = f"{one.size} bytes at {one.position} are no message that can be read ({one.reason})"
            if self._apart is None:
                report_loss(f"{self._place}: {what}", fail=self._fails)
                continue
            self._left_out += 1
            coordinates = {"physicalOffset": one.position} if known is None else known
            self._apart.add([coordinates | {"body": content(one), "reason": what}])
