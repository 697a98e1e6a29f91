"""A draft, which is a message on its way into the log, and the result of its append."""

import msgspec

from ariane.wire.record.layout import RECORD_BYTES_MIN, TOPIC_BYTES_MAX_V1


class Draft(msgspec.Struct, kw_only=True, gc=False):
    """A message to append: texts that go to the disk are bytes already, values for queue and index are not."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    born_timestamp_ms: int
    born_host: bytes
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    tags_code: int = 0
    """What the queue entry carries: the hash of the tags."""
    delay_ms: int = 0
    """For a delayed message: its entry carries the delivery time, counted from the store time, in place of the tags."""
    keys: tuple[str, ...] = ()
    """For the index: the unique key first, then the user's keys."""


class Appended(msgspec.Struct, frozen=True, gc=False):
    physical_offset: int
    queue_offset: int
    size: int
    store_timestamp_ms: int

    @property
    def end(self) -> int:
        """Wait for this offset to be durable."""
        return self.physical_offset + self.size


def record_bytes(draft: Draft, topic_bytes: int, store_host_bytes: int) -> int:
    """The size that the record of `draft` will have."""
    hosts = len(draft.born_host) + store_host_bytes - 16
    long_topic = 1 if topic_bytes > TOPIC_BYTES_MAX_V1 else 0
    return RECORD_BYTES_MIN + hosts + long_topic + len(draft.body) + topic_bytes + len(draft.properties)
