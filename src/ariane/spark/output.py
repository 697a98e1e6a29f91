"""From the bytes of records to the batches that Spark gets: chosen, and with the columns of its schema, no others."""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from ariane.arrow.bad_records import BadRecord
from ariane.arrow.decode import decode_records
from ariane.arrow.selection import QueueRange as Range
from ariane.arrow.selection import Selection
from ariane.spark.columns import Columns
from ariane.spark.data_loss import report_loss
from ariane.spark.json_bodies import JsonBodies
from ariane.spark.ranges import QueueRange
from ariane.spark.read_options import ReadOptions


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
    """Made once for a task."""

    def __init__(self, options: ReadOptions, columns: Columns) -> None:
        self._fails = options.fail_on_data_loss
        self._bodies: JsonBodies | None = None
        self.needed = list(columns.names)
        if columns.json is not None:
            self._bodies = JsonBodies(columns.json, options.bad_record_column, options.column_list)
            self.needed = list(dict.fromkeys(["body", "queueOffset", *self._bodies.message_columns]))

    def batches(self, data: bytes, wanted: QueueRange, selection: Selection) -> Iterator[pa.RecordBatch]:
        """The messages in `data` that lie within `wanted`: a pull with a filter may bring some from behind its end."""
        queue = wanted.queue
        ranges = (Range(queue.topic, queue.queue_id, wanted.start, wanted.end),)
        done = 0
        while done < len(data):
            decoded = decode_records(
                data,
                columns=self.needed,
                selection=replace(selection, ranges=ranges),
                broker_name=queue.broker_name,
                start=done,
            )
            place = f"queue {queue.queue_id} of topic {queue.topic} on {queue.broker_name}"
            self.report(decoded.bad, place)
            yield from self.shaped(decoded.batch)
            done = decoded.end

    def shaped(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if batch.num_rows:
            yield batch if self._bodies is None else self._bodies.parse(batch)

    def report(self, bad: list[BadRecord], place: str) -> None:
        for one in bad:
            report_loss(
                f"{place}: {one.size} bytes at {one.position} are no message that can be read ({one.reason})",
                fail=self._fails,
            )
