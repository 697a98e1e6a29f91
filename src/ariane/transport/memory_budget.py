"""One budget of memory for all connections of a process.

A connection holds bytes while a frame is half received, while a request waits for a thread, and while its peer does not
read the responses. Each of these has its own limit, but a hundred connections of 14 MiB are 1.4 GB, and they need not
even log in. So all connections share one budget. When it is used up, the connection that holds the most for the longest
time is closed, with a line in the log: an honest frame of 4 MiB is complete after a moment, one that is kept half sent
is not. A small request always finds room.
"""

import logging
from typing import Protocol

log = logging.getLogger(__name__)

_UNPROVEN_WEIGHT = 8
"""A connection that has never sent a whole frame is closed before one that has, unless that one holds much more."""

_NEW_S = 0.01  # so that of two that have just begun the larger one counts


class Holder(Protocol):
    """A connection, as far as the budget is concerned."""

    peer: str
    has_received_frame: bool

    def abort(self) -> None: ...

    def measure(self) -> None:
        """Reports what it holds now by `MemoryBudget.set_held`."""


class MemoryBudget:
    """Use on the event loop only."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held = 0
        """Bytes in buffers of connections."""
        self.reserved = 0
        """Bytes of requests that are parked. They are refused when there is no room, and never a reason to close."""
        self.closed = 0
        """Connections that were closed because the budget was used up."""
        self._closing = False
        self._holders: dict[Holder, tuple[int, float]] = {}  # bytes, and since when there are any

    @property
    def used(self) -> int:
        return self.held + self.reserved

    def set_held(self, holder: Holder, size: int, now: float) -> None:
        """`holder` holds so many bytes from now on. Closes connections if that is too much for all together."""
        before, since = self._holders.get(holder, (0, now))
        self.held += size - before
        if size:
            self._holders[holder] = size, since
        else:
            self._holders.pop(holder, None)
        if size > before and self.used > self.bytes_max and not self._closing:
            self._closing = True
            try:
                self._close_worst(now)
            finally:
                self._closing = False

    def has_room(self, size: int) -> bool:
        """Whether a request may be parked. Parked ones leave a quarter: frames that are received always find some."""
        return self.reserved + size <= self.bytes_max * 3 // 4 and self.used + size <= self.bytes_max

    def reserve(self, size: int) -> None:
        self.reserved += size

    def release(self, size: int) -> None:
        self.reserved -= size

    def measure(self) -> None:
        """Peers read meanwhile what was written to them, without a word: call this now and then."""
        for holder in tuple(self._holders):
            holder.measure()

    def _close_worst(self, now: float) -> None:
        self.measure()
        while self.used > self.bytes_max and self._holders:
            worst = max(self._holders, key=lambda holder: self._weight(holder, now))
            size, since = self._holders.pop(worst)
            self.held -= size
            self.closed += 1
            log.warning(
                "connection closed: the memory for all connections (memory_bytes_max) is used up, and it holds the "
                "most for the longest time",
                extra={"peer": worst.peer, "bytes": size, "seconds": round(now - since, 3), "limit": self.bytes_max},
            )
            worst.abort()

    def _weight(self, holder: Holder, now: float) -> float:
        size, since = self._holders[holder]
        return size * (now - since + _NEW_S) * (1 if holder.has_received_frame else _UNPROVEN_WEIGHT)
