"""Half messages that were sent a moment ago, kept in memory until their outcome comes.

A producer ends most transactions within milliseconds. What is delivered then is the draft that was stored as the half
message, in its own topic: made from memory it takes 0.3 us, where the record is found, verified and its properties read
in 8. Only what the fast path stored is kept (send/fast_path.py): its text is the producer's, and has no delay.

What is not here any more is read from the log, so losing it costs nothing but time.
"""

import msgspec
from msgspec.structs import replace

from ariane.model.message import Property
from ariane.store.append.draft import Appended, Draft
from ariane.wire.properties import NAME_END, PAIR_END, PAIR_END_BYTES, decode_properties
from ariane.wire.sys_flag import SysFlag

RECENT_MAX = 10_000
RECENT_BYTES_MAX = 8 * 1024 * 1024

_COMMIT_BITS = int(SysFlag.TRANSACTION_COMMIT)


class RecentHalfMessage(msgspec.Struct, frozen=True, gc=False):
    """As much of a half message as its outcome needs; a `HalfRecord` (half_messages.py) has the same from the log."""

    real_topic: str
    real_queue_id: int
    properties: bytes
    """Without a checksum, which is that of the half message."""
    draft: Draft
    appended: Appended

    @property
    def first_offset(self) -> int:
        return self.appended.queue_offset

    @property
    def physical_offset(self) -> int:
        return self.appended.physical_offset

    @property
    def size(self) -> int:
        return self.appended.size

    @property
    def producer_group(self) -> str:
        return decode_properties(self.properties).get(Property.PRODUCER_GROUP, "")

    def is_of_group(self, group: str) -> bool:
        """Without reading all properties: the text is regular, so a pair stands between two separators. False also for
        a group that no text can have."""
        if NAME_END in group or PAIR_END in group:
            return False
        pair = f"{PAIR_END}{Property.PRODUCER_GROUP}{NAME_END}{group}{PAIR_END}"
        try:
            return pair.encode() in PAIR_END_BYTES + self.properties
        except UnicodeEncodeError:
            return False

    def real(self) -> Draft:
        """The message as it is delivered."""
        return replace(
            self.draft,
            topic=self.real_topic,
            queue_id=self.real_queue_id,
            properties=self.properties,
            sys_flag=self.draft.sys_flag | _COMMIT_BITS,
            prepared_transaction_offset=self.appended.physical_offset,
        )


class RecentHalfMessages:
    """By queue offset. The oldest go when there are too many."""

    def __init__(self) -> None:
        self._messages: dict[int, RecentHalfMessage] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, real_topic: str, real_queue_id: int, properties: bytes, draft: Draft, appended: Appended) -> None:
        half = RecentHalfMessage(real_topic, real_queue_id, properties, draft, appended)
        self._messages[appended.queue_offset] = half
        self._bytes += appended.size
        while self._bytes > RECENT_BYTES_MAX or len(self._messages) > RECENT_MAX:
            self.take(next(iter(self._messages)))

    def take(self, offset: int) -> RecentHalfMessage | None:
        half = self._messages.pop(offset, None)
        if half is not None:
            self._bytes -= half.appended.size
        return half
