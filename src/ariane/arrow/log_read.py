"""The batches of one split of a log. Runs where the split is sent to, and asks nobody but the files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from ariane.arrow.bad_records import BadRecord, next_record
from ariane.arrow.decode import Decoder
from ariane.arrow.log_entries import QueuedRecords, queued_records
from ariane.arrow.log_files import LogFiles
from ariane.arrow.log_split import LogSplit, Way
from ariane.arrow.log_visible import Visible
from ariane.arrow.rows import Rows
from ariane.arrow.schema import message_schema
from ariane.arrow.source import Int64s
from ariane.arrow.walk import Walk
from ariane.errors import StoreMismatch
from ariane.store.layout import Layout
from ariane.store.scan import DataFile

BATCH_BYTES = 8 * 1024 * 1024
"""Of records for each batch. The calls for one cost as much as some hundred rows of 1 KiB, whatever its size; and a
worker of Spark and its JVM each hold one or two of them."""
_BAD_KEPT = 10_000


@dataclass
class ReadReport:
    """What happened while splits were read. Every bad record counts; the first ones are kept."""

    rows: int = 0
    records: int = 0
    """Looked at, wanted or not."""
    bytes: int = 0
    bad_count: int = 0
    bad: list[BadRecord] = field(default_factory=list)

    def add_bad(self, more: list[BadRecord]) -> None:
        self.bad_count += len(more)
        self.bad += more[: max(0, _BAD_KEPT - len(self.bad))]


def read_split(
    split: LogSplit,
    columns: Sequence[str] | None = None,
    *,
    include_properties: bool = False,
    broker_name: str | None = None,
    decompress: bool = True,
    check_crc: bool = False,
    batch_bytes: int = BATCH_BYTES,
    report: ReadReport | None = None,
) -> Iterator[pa.RecordBatch]:
    """The wanted rows, in the order of the log; no batch is empty. Bad records are in `report`.

    StoreMismatch when a file is gone that was there when the split was made.
    """
    decoder = Decoder(
        schema=message_schema(columns, include_properties=include_properties),
        selection=split.selection,
        broker_name=broker_name,
        decompress=decompress,
        check_crc=check_crc,
    )
    return _SplitReader(split, decoder, batch_bytes, report if report is not None else ReadReport()).batches()


class _SplitReader:
    def __init__(self, split: LogSplit, decoder: Decoder, batch_bytes: int, report: ReadReport) -> None:
        self._split = split
        self._decoder = decoder
        self._batch_bytes = batch_bytes
        self._report = report
        self._layout = Layout.under(Path(split.store_root), Path(split.commit_log))
        self._files = LogFiles(self._layout.commit_log)
        self._visible = Visible(self._layout) if split.by_queues else None

    def batches(self) -> Iterator[pa.RecordBatch]:
        match self._split.way:
            case Way.SCAN:
                return self._scan()
            case Way.QUEUES:
                return self._at(queued_records(self._layout, self._split))
            case Way.OFFSETS:
                return self._at(QueuedRecords(np.array(self._split.offsets, np.int64)))

    # --- one record after the other ---------------------------------------------------------------------------------

    def _scan(self) -> Iterator[pa.RecordBatch]:
        split = self._split
        self._check_begin(split.begin)
        for file in self._files.overlapping(split.begin, split.end):
            walk = self._files.walk(file, split.limit)
            start, end = max(split.begin - file.base, 0), min(split.end - file.base, walk.limit)
            if start and not split.is_aligned:
                start = next_record(walk.source, start, walk.limit, file.base)
            for stretch in walk.stretches(start, end, piece_bytes=self._batch_bytes):
                self._report.add_bad(stretch.bad)
                self._report.bytes += stretch.end - start
                start = stretch.end
                yield from self._decoded(walk, stretch.rows)

    def _check_begin(self, begin: int) -> None:
        """What was there when the split was made has to be there still: less is not an answer."""
        if self._files.begin > begin:
            raise StoreMismatch(
                f"the commit log begins at {self._files.begin} now, but the split at {begin}: retention has removed "
                "what it should read"
            )

    # --- at known places --------------------------------------------------------------------------------------------

    def _at(self, wanted: QueuedRecords) -> Iterator[pa.RecordBatch]:
        bytes_to = None if wanted.sizes is None else np.cumsum(wanted.sizes, dtype=np.int64)
        begin = 0
        while begin < len(wanted):
            first = int(wanted.offsets[begin])
            file = self._files.find(first)
            if file is None:
                raise StoreMismatch(f"no file of the commit log holds offset {first} any more: read again")
            end = int(np.searchsorted(wanted.offsets, file.end))
            if bytes_to is not None:
                end = min(end, self._batch_end(bytes_to, begin))
            yield from self._known(self._files.walk(file, self._split.limit), wanted.part(begin, end), file)
            begin = end

    def _batch_end(self, bytes_to: Int64s, begin: int) -> int:
        """Before which record a batch ends that begins with this one: `bytes_to` counts from the first of all."""
        before = int(bytes_to[begin - 1]) if begin else 0
        return max(begin + 1, int(np.searchsorted(bytes_to, before + self._batch_bytes)))

    def _known(self, walk: Walk, wanted: QueuedRecords, file: DataFile) -> Iterator[pa.RecordBatch]:
        checked = walk.check(wanted.offsets - file.base)
        rows, bad = wanted.fitting(walk, checked)
        self._report.add_bad(bad)
        self._report.bytes += int(rows.field("size", np.int64).sum())
        yield from self._decoded(walk, rows)

    def _decoded(self, walk: Walk, rows: Rows) -> Iterator[pa.RecordBatch]:
        self._report.records += len(rows)
        seen = rows if self._visible is None else self._visible.only(rows)
        for part in self._decoder.parts(walk, seen):
            self._report.add_bad(part.bad)
            self._report.rows += part.batch.num_rows
            if part.batch.num_rows:
                yield part.batch
