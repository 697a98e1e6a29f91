"""Stored messages as messages to send: what the user gave them stays, what brokers and clients added goes."""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from ariane.model.message import RESERVED_PROPERTIES, Property
from ariane.model.route import MessageQueue
from ariane.spark.jobs.replay_progress import Lane
from ariane.spark.outgoing import Outgoing
from ariane.wire.properties import encode_properties

_KEPT = frozenset({Property.KEYS, Property.TAGS, Property.SHARDING_KEY, Property.UNIQUE_KEY})
_DROPPED = (RESERVED_PROPERTIES - _KEPT) | {
    # What 5.x and our own broker add besides: a delay that is over must not begin again, a seal would not fit.
    "__CRC32#", "BORN_HOST", "BORN_TIMESTAMP", "DLQ_ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_TOPIC", "FIRST_POP_TIME",
    "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "INNER_NUM", "POP_CK", "TIMER_DEL_UNIQKEY", "TIMER_DEQUEUE_MS",
    "TIMER_ENQUEUE_MS", "TIMER_OUT_MS", "TIMER_ROLL_TIMES", "__STARTDELIVERTIME",
}  # fmt: skip


class Pending(NamedTuple):
    lane: Lane
    offset: int
    stored_us: int
    message: Outgoing


class LaneMessages:
    """Messages with a sharding key go where the key says, as before; the others of a lane go to one queue."""

    def __init__(self, topic: str, to_topic: str, lane: Lane, queue: MessageQueue) -> None:
        self._topic = topic
        self._to_topic = to_topic
        self._lane = lane
        self._queue = queue

    def of(self, batch: pa.RecordBatch) -> Iterator[Pending]:
        times = batch.column("storeTimestamp").cast(pa.int64()).to_pylist()
        rows = zip(
            batch.column("queueOffset").to_pylist(),
            times,
            batch.column("body").to_pylist(),
            batch.column("properties").to_pylist(),
            strict=True,
        )
        for offset, stored_us, body, properties in rows:
            yield Pending(self._lane, offset, stored_us or 0, self._outgoing(offset, body, dict(properties)))

    def _outgoing(self, offset: int, body: bytes, properties: dict[str, str]) -> Outgoing:
        kept = {name: value for name, value in properties.items() if name not in _DROPPED}
        kept.setdefault(Property.UNIQUE_KEY, self._unique_key(offset))
        kept[Property.WAIT] = "true"
        sharding_key = kept.get(Property.SHARDING_KEY)
        fixed = None if sharding_key is not None else self._queue
        return Outgoing(
            self._to_topic,
            body,
            encode_properties(kept),
            sharding_key,
            None if fixed is None else fixed.queue_id,
            None if fixed is None else fixed.broker_name,
            travels_alone=False,
        )

    def _unique_key(self, offset: int) -> str:
        """For a message that has none: the same each time, so that what is sent again can be told."""
        place = "\x00".join((self._topic, self._lane.broker or "", str(self._lane.queue_id), str(offset)))
        digest = hashlib.sha256(place.encode()).hexdigest().upper()
        return f"{digest[:20]}00000000{digest[20:24]}"
