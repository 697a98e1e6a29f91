"""The token bucket of each connection."""

from ariane.rpc.rate_limit import ConnectionRateLimit
from ariane.testing import FakeClock
from ariane.transport.connection import Connection
from ariane.transport.settings import TransportSettings


def peer() -> Connection:
    return Connection(lambda *_: None, TransportSettings(), FakeClock(), lambda _: None)


def taken(limit: ConnectionRateLimit, connection: Connection, attempts: int) -> int:
    return sum(limit.take(connection) for _ in range(attempts))


async def test_a_connection_takes_ten_seconds_worth_at_once_and_then_its_rate() -> None:
    clock, connection = FakeClock(), peer()
    limit = ConnectionRateLimit(lambda: 2.0, clock)
    assert taken(limit, connection, 100) == 20
    await clock.advance(1.5)
    assert taken(limit, connection, 100) == 3
    await clock.advance(3600)
    assert taken(limit, connection, 100) == 20


async def test_each_connection_has_its_own_tokens() -> None:
    limit, one, other = ConnectionRateLimit(lambda: 1.0, FakeClock()), peer(), peer()
    assert (taken(limit, one, 100), taken(limit, other, 100)) == (10, 10)


async def test_a_slow_rate_still_gives_one() -> None:
    limit, connection = ConnectionRateLimit(lambda: 0.001, FakeClock()), peer()
    assert taken(limit, connection, 5) == 1


async def test_a_rate_of_zero_is_no_limit() -> None:
    assert taken(ConnectionRateLimit(lambda: 0.0, FakeClock()), peer(), 5000) == 5000


async def test_a_closed_connection_is_forgotten() -> None:
    limit, connection = ConnectionRateLimit(lambda: 1.0, FakeClock()), peer()
    taken(limit, connection, 3)
    connection.connection_lost(None)
    assert limit._buckets == {}
