"""A rate limit for each connection: a token bucket, for what a client can cause with one small request."""

from collections.abc import Callable

from ariane.clock import Clock
from ariane.transport.connection import Connection

_BURST_S = 10.0


class ConnectionRateLimit:
    """Each connection may take `rate()` tokens a second, and after a pause those of ten seconds at once."""

    def __init__(self, rate: Callable[[], float], clock: Clock) -> None:
        """`rate` is asked each time, so that a setting can change. 0 is no limit."""
        self._rate = rate
        self._clock = clock
        self._buckets: dict[Connection, tuple[float, float]] = {}  # tokens, and when they were counted

    def take(self, connection: Connection) -> bool:
        """Whether the connection had a token left, which is taken."""
        rate = self._rate()
        if rate <= 0:
            return True
        now = self._clock.monotonic()
        burst = max(1.0, rate * _BURST_S)
        tokens, counted_at = self._buckets.get(connection) or self._first(connection, burst, now)
        tokens = min(burst, tokens + (now - counted_at) * rate)
        if tokens < 1:
            return False
        self._buckets[connection] = tokens - 1, now
        return True

    def _first(self, connection: Connection, burst: float, now: float) -> tuple[float, float]:
        connection.on_close(lambda: self._forget(connection))
        return burst, now

    def _forget(self, connection: Connection) -> None:
        self._buckets.pop(connection, None)
