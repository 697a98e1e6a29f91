"""Lock-out: guessing is slowed down, honest clients are not, and the tables stay small."""

import pytest

from ariane.rpc import lockout
from ariane.rpc.lockout import (
    ACCOUNT_FAILURES_MAX,
    ACCOUNT_PAUSE_S,
    ADDRESS_FAILURES_MAX,
    LOCK_S,
    PAIR_FAILURES_MAX,
    Lockout,
)
from ariane.testing import FakeClock

HOME, AWAY = "192.0.2.1", "198.51.100.7"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def locks(clock: FakeClock) -> Lockout:
    return Lockout(clock)


def guess(locks: Lockout, host: str, account: str, times: int) -> None:
    for _ in range(times):
        locks.fail(host, account)


def test_a_few_mistakes_lock_nothing(locks: Lockout) -> None:
    guess(locks, HOME, "shop", PAIR_FAILURES_MAX - 1)
    assert locks.problem(HOME, "shop") is None
    assert locks.locked() == {"account_at_address": 0, "address": 0}


async def test_repeated_mistakes_lock_the_account_at_that_address_for_a_while(locks: Lockout, clock: FakeClock) -> None:
    guess(locks, AWAY, "shop", PAIR_FAILURES_MAX)
    assert "wait 60 s" in (locks.problem(AWAY, "shop") or "")
    assert locks.locked() == {"account_at_address": 1, "address": 0}
    assert locks.problem(HOME, "shop") is None, "who guesses elsewhere does not lock out the owner"
    assert locks.problem(AWAY, "other") is None
    await clock.advance(LOCK_S + 1)
    assert locks.problem(AWAY, "shop") is None


async def test_old_mistakes_do_not_count(locks: Lockout, clock: FakeClock) -> None:
    guess(locks, HOME, "shop", PAIR_FAILURES_MAX - 1)
    await clock.advance(lockout.WINDOW_S + 1)
    guess(locks, HOME, "shop", 1)
    assert locks.problem(HOME, "shop") is None


def test_a_valid_signature_clears_the_mistakes(locks: Lockout) -> None:
    guess(locks, HOME, "shop", PAIR_FAILURES_MAX - 1)
    locks.prove(HOME, "shop")
    guess(locks, HOME, "shop", PAIR_FAILURES_MAX - 1)
    assert locks.problem(HOME, "shop") is None


def test_an_address_that_tries_many_names_is_locked_for_accounts_it_has_not_proved(locks: Lockout) -> None:
    locks.prove(AWAY, "honest")
    for number in range(ADDRESS_FAILURES_MAX):
        locks.fail(AWAY, f"invented-{number}", exists=False)
    assert locks.problem(AWAY, "shop") is not None
    assert locks.problem(AWAY, "honest") is None
    assert locks.problem(HOME, "shop") is None
    assert locks.locked()["address"] == 1


async def test_guesses_from_many_addresses_slow_down_new_addresses_only(locks: Lockout, clock: FakeClock) -> None:
    locks.prove(HOME, "shop")
    for number in range(ACCOUNT_FAILURES_MAX):
        locks.fail(f"203.0.113.{number % 250}", "shop")
    await clock.advance(ACCOUNT_PAUSE_S)
    assert locks.problem(AWAY, "shop") is None, "one attempt a second"
    assert locks.problem(AWAY, "shop") is not None
    assert locks.problem(HOME, "shop") is None
    await clock.advance(ACCOUNT_PAUSE_S)
    assert locks.problem(AWAY, "shop") is None
    await clock.advance(lockout.WINDOW_S + LOCK_S)
    assert locks.problem(AWAY, "shop") is None
    assert locks.problem(AWAY, "shop") is None


def test_an_ipv6_network_is_one_address(locks: Lockout) -> None:
    for number in range(PAIR_FAILURES_MAX):
        locks.fail(f"2001:db8::{number + 1:x}", "shop")
    assert locks.problem("2001:db8::ffff", "shop") is not None
    assert locks.problem("2001:db8:0:1::1", "shop") is None


def test_the_tables_are_bounded(locks: Lockout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lockout, "ENTRIES_MAX", 20)
    for number in range(1000):
        locks.fail(f"10.0.{number // 250}.{number % 250}", f"account-{number}")
        locks.prove(f"10.1.{number // 250}.{number % 250}", f"account-{number}")
    tables = (locks._pairs.entries, locks._addresses.entries, locks._accounts.entries, locks._proved)
    assert [len(table) for table in tables] == [20] * 4
