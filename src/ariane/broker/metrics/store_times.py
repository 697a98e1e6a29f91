"""When messages were stored, looked up for many at once in a thread: most lie where the page cache has lost them.

Of several messages the oldest is the one that lies first in the log. So a group costs one look into the log for each of
its topics, however many queues these have.
"""

import errno
from collections.abc import Sequence
from typing import NamedTuple

from ariane.store.commit_log import CommitLog
from ariane.store.segments import Segment
from ariane.wire.record import HEAD_V4, head_of

_HEAD_BYTES_MAX = head_of(0x30).size
_SYS_FLAG, _STORE_TIMESTAMP, _PHYSICAL_OFFSET = 7, 10, 6


class Place(NamedTuple):
    """A record in the log. The segment is found on the loop, where the list of segments changes."""

    segment: Segment
    physical: int


def place_of(commit_log: CommitLog, physical: int | None) -> Place | None:
    segment = None if physical is None else commit_log.segments.find(physical)
    return None if segment is None or physical is None else Place(segment, physical)


def stored_ms(places: Sequence[Place | None]) -> list[int | None]:
    """For a thread. None for what is not there, or no longer."""
    return [None if place is None else _stored_ms(place) for place in places]


def _stored_ms(place: Place) -> int | None:
    try:
        head = place.segment.file.read(_HEAD_BYTES_MAX, place.physical - place.segment.base)
    except OSError as error:
        if error.errno == errno.EBADF:  # retention has just closed the file
            return None
        raise
    return _of_head(head, place.physical)


def _of_head(head: bytes, physical: int) -> int | None:
    if len(head) < HEAD_V4.size:
        return None
    shape = head_of(HEAD_V4.unpack_from(head)[_SYS_FLAG])
    if len(head) < shape.size:
        return None
    fields = shape.unpack_from(head)
    found: int = fields[_STORE_TIMESTAMP]
    return found if fields[_PHYSICAL_OFFSET] == physical else None
