"""Where a message lies in its broker's files.

physical offset 1073742080, files of 1073741824 bytes
└──▶ commitlog/00000000001073741824, byte 256

queue offset 300001, files of 300000 entries of 20 bytes
└──▶ consumequeue/TOPIC/QUEUE/00000000000006000000, byte 20: where it is (8), how long (4), hash of its tag (8)
"""

from collections.abc import Mapping

import msgspec

from ariane.client.admin import Admin
from ariane.client.received import Received
from ariane.errors import ArianeError
from ariane.wire.java_hash import tags_code

_ENTRY_BYTES = 20
_LOG_SIZE, _QUEUE_SIZE = "mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue"


class MessagePlace(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker does not tell is None."""

    log_file: str | None
    log_byte: int | None
    queue_file: str | None
    queue_byte: int | None
    tags_code: int
    """As it follows from the tag."""
    entry: str
    """What the entry of the queue says about it."""


async def place_of(admin: Admin, message: Received) -> MessagePlace:
    sizes = await _settings(admin, message.queue.broker_name)
    queue = f"consumequeue/{message.queue.topic}/{message.queue.queue_id}"
    log_file, log_byte = file_and_byte("commitlog", message.physical_offset, _number(sizes, _LOG_SIZE))
    queue_file, queue_byte = file_and_byte(queue, message.queue_offset * _ENTRY_BYTES, _number(sizes, _QUEUE_SIZE))
    return MessagePlace(
        log_file=log_file,
        log_byte=log_byte,
        queue_file=queue_file,
        queue_byte=queue_byte,
        tags_code=tags_code(message.tags),
        entry=await _entry(admin, message),
    )


def file_and_byte(directory: str, position: int, file_bytes: int | None) -> tuple[str | None, int | None]:
    """Files are named after the position of their first byte."""
    if not file_bytes:
        return None, None
    base = position - position % file_bytes
    return f"{directory}/{base:020d}", position - base


async def _settings(admin: Admin, broker: str) -> Mapping[str, str]:
    try:
        (settings,) = (await admin.brokers.config(broker=broker)).answers.values()
    except (ArianeError, ValueError):  # a broker may keep its settings from us: the rest is worth telling
        return {}
    return settings


def _number(settings: Mapping[str, str], name: str) -> int | None:
    text = settings.get(name, "")
    return int(text) if text.isdecimal() else None


async def _entry(admin: Admin, message: Received) -> str:
    try:
        (entry,) = (await admin.queues.entries(message.queue, message.queue_offset, 1)).entries[:1]
    except (ArianeError, ValueError) as error:
        return f"not told: {error}"
    if entry.physic_offset != message.physical_offset:
        return f"points to byte {entry.physic_offset} of the log, where another message is: run `ariane store verify`"
    return f"{entry.physic_size} bytes at {entry.physic_offset}, tag hash {entry.tags_code}"
