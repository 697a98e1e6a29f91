"""Stored records to messages: one by one, back to back in a pull answer, or walked over in a commit log."""

from collections.abc import Iterator

from ariane.errors import RecordError
from ariane.model.ids import PhysicalOffset, QueueOffset
from ariane.model.message import StoredMessage
from ariane.wire.host import decode_host
from ariane.wire.record import RECORD_BYTES_MAX
from ariane.wire.record_view import BlankRecord, BrokenRecord, Buffer, RecordView, Verdict, verify


def decode(
    buffer: Buffer, position: int = 0, *, check_crc: bool = False, size_max: int = RECORD_BYTES_MAX
) -> StoredMessage:
    """The message at `position`, its body as stored; a RecordError when no valid record is there.

    An empty body is fine here. Java 4.7.1 consumers fail on one, so it is for a broker to refuse it.
    """
    verdict = verify(buffer, position, check_body_crc=check_crc, size_max=size_max)
    if isinstance(verdict, RecordView):
        return to_message(buffer, verdict)
    raise _no_message(verdict)


def decode_all(body: Buffer, *, check_crc: bool = False, size_max: int = RECORD_BYTES_MAX) -> list[StoredMessage]:
    """Every message of a pull answer.

    Java ends the list silently at the first bad record and so skips the messages behind it. Here it is a RecordError:
    a consumer that knows can ask again or elsewhere.
    """
    messages = []
    for verdict in walk(body, check_crc=check_crc, size_max=size_max):
        if not isinstance(verdict, RecordView):
            raise _no_message(verdict)
        messages.append(to_message(body, verdict))
    return messages


def walk(
    buffer: Buffer,
    start: int = 0,
    end: int | None = None,
    *,
    check_crc: bool = False,
    size_max: int = RECORD_BYTES_MAX,
) -> Iterator[Verdict]:
    """What stands back to back between `start` and `end`: records, blanks, and at most one broken record, the last.

    A blank is stepped over: in a buffer that spans commit log files the next file follows. After a broken record with
    a known size the caller may walk on behind it.
    """
    position = start
    end = len(buffer) if end is None else min(end, len(buffer))
    while position < end:
        verdict = verify(buffer, position, end=end, check_body_crc=check_crc, size_max=size_max)
        yield verdict
        if isinstance(verdict, BrokenRecord):
            return
        position += verdict.size


def to_message(buffer: Buffer, view: RecordView) -> StoredMessage:
    """The message of a record already verified in `buffer`."""
    return StoredMessage(
        topic=view.topic,
        body=view.body(buffer),
        properties=view.properties(),
        flag=view.flag,
        queue_id=view.queue_id,
        queue_offset=QueueOffset(view.queue_offset),
        physical_offset=PhysicalOffset(view.physical_offset),
        sys_flag=view.sys_flag,
        born_timestamp_ms=view.born_timestamp_ms,
        born_host=decode_host(view.born_host),
        store_timestamp_ms=view.store_timestamp_ms,
        store_host=decode_host(view.store_host),
        reconsume_times=view.reconsume_times,
        prepared_transaction_offset=view.prepared_transaction_offset,
        body_crc=view.body_crc,
        stored_size=view.size,
    )


def _no_message(verdict: BlankRecord | BrokenRecord) -> RecordError:
    found = verdict.reason if isinstance(verdict, BrokenRecord) else "the blank end of a commit log file"
    return RecordError(f"no message at byte {verdict.position}: {found}")
