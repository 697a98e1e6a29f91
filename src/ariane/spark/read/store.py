"""Batch reads from store directories, without a broker: by physical range, so that many tasks can share one log."""

import glob
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ariane.arrow.filter import OffsetRange
from ariane.arrow.log.files import LogFiles, open_queues, topics_with_queues
from ariane.arrow.log.plan import BYTES_PER_SPLIT, LogPlan, plan_log
from ariane.arrow.log.read import ReadReport, read_split
from ariane.arrow.log.split import LogSplit
from ariane.arrow.walk import BadRecord
from ariane.errors import SettingsError, StoreMismatch
from ariane.spark.data_loss import report_loss
from ariane.spark.offsets import EARLIEST, LATEST, Position
from ariane.spark.options.read import ReadOptions
from ariane.spark.read.columns import Columns
from ariane.spark.read.output import BODY_BYTES_MAX, Output
from ariane.spark.worker_memory import keep_imports
from ariane.store.layout import Layout

_END = 2**63 - 1


class StoreBatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, columns: Columns) -> None:
        if options.records_per_partition is not None:
            raise SettingsError("maxRecordsPerPartition is for brokers: a store is split by maxBytesPerPartition")
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        keep_imports()
        options = self._options
        roots = _roots(options)
        size = options.bytes_per_partition or BYTES_PER_SPLIT
        plans = [self._plan(root, size) for root in roots]
        splits = [split for plan in plans for split in plan.splits]
        if options.partitions_min is not None and len(splits) < options.partitions_min:
            total = sum(split.bytes_estimate for split in splits)
            size = max(1, total // options.partitions_min)
            splits = [split for root in roots for split in self._plan(root, size).splits]
        self._check(roots, plans)
        return [InputPartition(split) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # made by Spark when there is nothing to read
            return
        split = partition.value
        with Output(self._options, self._columns, _description(split)) as output:
            yield from self._rows(split, output)

    def _rows(self, split: LogSplit, output: Output) -> Iterator[pa.RecordBatch]:
        report = ReadReport()
        try:
            for batch in read_split(split, output.needed, broker_name=self._options.broker_name, report=report):
                _report_bad_records(report, output, split)
                yield from output.shaped(batch)
        except StoreMismatch as error:  # retention deleted the file meanwhile
            report_loss(str(error), fail=self._options.fail_on_data_loss)
        _report_bad_records(report, output, split)

    def _plan(self, root: Path, bytes_per_split: int) -> LogPlan:
        options = self._options
        from_ms, before_ms = options.time_range()
        topics = _topics(root, options)
        return plan_log(
            root,
            topics=topics,
            queues=_ranges(root, topics, options),
            starting_timestamp_ms=from_ms,
            ending_timestamp_ms=before_ms,
            tags=options.tag_list,
            keys=options.key_list or None,
            bytes_per_split=bytes_per_split,
            live=options.live,
        )

    def _check(self, roots: list[Path], plans: list[LogPlan]) -> None:
        """Every topic must be in one of the stores, and the logs must have no gap."""
        for topic in self._options.topics:
            if all(topic in plan.topics_missing for plan in plans):
                raise SettingsError(f"topic {topic} is not in {', '.join(map(str, roots))}: correct the option topic")
        for root, plan in zip(roots, plans, strict=True):
            for begin, end in plan.gaps:
                report_loss(
                    f"the log in {root} has no file for its bytes {begin} to {end}",
                    fail=self._options.fail_on_data_loss,
                )


def _description(split: LogSplit) -> str:
    return f"the log in {split.commit_log}, {split.begin} to {split.end}"


def _report_bad_records(report: ReadReport, output: Output, split: LogSplit) -> None:
    if report.bad:
        files = LogFiles(Path(split.commit_log))
        more = report.bad_count - len(report.bad)
        if more:  # the list is limited, the count is not
            report.bad.append(BadRecord(report.bad[-1].position, 0, f"and {more} more behind it"))
        output.report(report.bad, lambda bad: files.bytes_at(bad.position, min(bad.size, BODY_BYTES_MAX)))
    report.bad.clear()
    report.bad_count = 0


def _roots(options: ReadOptions) -> list[Path]:
    assert options.store_path is not None
    roots = sorted(glob.glob(options.store_path)) if glob.has_magic(options.store_path) else [options.store_path]
    if not roots:
        raise SettingsError(f"no directory matches storePath {options.store_path}: correct the pattern")
    return [Path(root) for root in roots]


def _topics(root: Path, options: ReadOptions) -> list[str] | None:
    if options.topic_pattern is not None:
        pattern = re.compile(options.topic_pattern)
        return [topic for topic in topics_with_queues(Layout.under(root)) if pattern.fullmatch(topic)]
    return options.topics or None


def _ranges(root: Path, topics: list[str] | None, options: ReadOptions) -> list[OffsetRange] | None:
    """The offset ranges of the options; None without any, because whole queues are found faster."""
    start, end = options.start_position("earliest"), options.end_position()
    assigned = {(queue.topic, queue.queue_id) for queue in options.assigned()} if options.queues else None
    if start.word == EARLIEST and end.word == LATEST and assigned is None:
        return None
    queues = open_queues(Layout.under(root), topics or topics_with_queues(Layout.under(root)))
    names = [(queue.topic, queue.queue_id) for queue in queues]
    return [
        OffsetRange(topic, queue_id, _first(start, topic, queue_id), _end(end, topic, queue_id))
        for topic, queue_id in names
        if assigned is None or (topic, queue_id) in assigned
    ]


def _first(position: Position, topic: str, queue_id: int) -> int:
    offset = _number(position, topic, queue_id, EARLIEST)
    return {EARLIEST: 0, LATEST: _END}.get(offset, offset)


def _end(position: Position, topic: str, queue_id: int) -> int:
    offset = _number(position, topic, queue_id, LATEST)
    return _END if offset == LATEST else offset


def _number(position: Position, topic: str, queue_id: int, default: int) -> int:
    """The broker name in the JSON is not compared: a store belongs to one broker, but does not have its name."""
    if position.word is not None:
        return position.word
    offsets = [
        offset for queue, offset in position.numbers.items() if (queue.topic, queue.queue_id) == (topic, queue_id)
    ]
    return offsets[0] if offsets else default
