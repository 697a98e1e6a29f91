"""Lock-out after repeated bad signatures: slows the guessing of secrets without locking out who knows the secret.

    what is counted                       limit in a minute   then
    bad signatures of one account from    10                  that account is refused from that address for a minute
      one address
    bad signatures and unknown accounts   50                  that address is refused for a minute
      from one address
    bad signatures of one account from    200                 one attempt a second, from all addresses together
      all addresses together

Who guesses at somebody else's account must not shut that account out. So a connection that has proved its account is
never refused, and an address where the account was proved before is exempt from the last two limits. Only an honest
client that shares its address with the guesser has to wait, and only with a new connection.

Nothing is verified while a limit holds, and nothing is counted. The tables are bounded: the entries that were used
least recently go first. An IPv6 address counts by its network of 64 bits.
"""

import logging
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Generic, TypeVar

from ariane.clock import Clock

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

WINDOW_S = 60.0
LOCK_S = 60.0
PAIR_FAILURES_MAX = 10
ADDRESS_FAILURES_MAX = 50
ACCOUNT_FAILURES_MAX = 200
ACCOUNT_PAUSE_S = 1.0
ENTRIES_MAX = 10_000


@dataclass(slots=True)
class _Failures:
    since: float
    count: int = 0
    refused_until: float = 0.0


class _Table(Generic[K]):
    """Failures by key, bounded."""

    def __init__(self, failures_max: int) -> None:
        self.failures_max = failures_max
        self.entries: OrderedDict[K, _Failures] = OrderedDict()

    def fail(self, key: K, now: float, refused_s: float) -> bool:
        """Counts a failure; whether it is the one that begins a lock."""
        entry = self.entries.get(key)
        if entry is None or now - entry.since > WINDOW_S:
            entry = self.entries[key] = _Failures(now)
        self.entries.move_to_end(key)
        if len(self.entries) > ENTRIES_MAX:
            self.entries.popitem(last=False)
        entry.count += 1
        if entry.count < self.failures_max or entry.refused_until > now:
            return False
        entry.refused_until = now + refused_s
        return entry.count == self.failures_max

    def wait_s(self, key: K, now: float) -> float:
        entry = self.entries.get(key)
        return 0.0 if entry is None else max(0.0, entry.refused_until - now)

    def locked(self, now: float) -> int:
        return sum(entry.refused_until > now for entry in self.entries.values())


class Lockout:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pairs: _Table[tuple[str, str]] = _Table(PAIR_FAILURES_MAX)
        self._addresses: _Table[str] = _Table(ADDRESS_FAILURES_MAX)
        self._accounts: _Table[str] = _Table(ACCOUNT_FAILURES_MAX)
        self._proved: OrderedDict[tuple[str, str], None] = OrderedDict()
        self.failures = 0
        """Bad signatures and unknown accounts since the start."""

    def problem(self, host: str, account: str) -> str | None:
        """Why nobody may try to prove this account from this address now; None when it may be tried."""
        if not (self._pairs.entries or self._addresses.entries):
            return None
        address, now = _network(host), self._clock.monotonic()
        pair = address, account
        wait_s = self._pairs.wait_s(pair, now)
        if wait_s == 0.0 and pair not in self._proved:
            wait_s = self._addresses.wait_s(address, now) or self._pause_of(account, now)
        if wait_s == 0.0:
            return None
        return f"too many bad signatures from {host} for accessKey={account}: correct the secret, wait {wait_s:.0f} s"

    def _pause_of(self, account: str, now: float) -> float:
        entry = self._accounts.entries.get(account)
        if entry is None or entry.count < ACCOUNT_FAILURES_MAX or now - entry.since > WINDOW_S + LOCK_S:
            return 0.0
        wait_s = max(0.0, entry.refused_until - now)
        if wait_s == 0.0:
            entry.refused_until = now + ACCOUNT_PAUSE_S  # this one may try; the next after a pause
        return wait_s

    def fail(self, host: str, account: str, *, exists: bool = True) -> None:
        """A bad signature, or an account that does not exist."""
        address, now = _network(host), self._clock.monotonic()
        self.failures += 1
        fields = {"address": host, "account": account[:255]}
        if self._addresses.fail(address, now, LOCK_S):
            log.warning("address locked: too many bad signatures", extra=fields)
        if not exists:  # invented names would only fill the tables
            return
        if self._pairs.fail((address, account), now, LOCK_S):
            log.warning("account locked for this address: too many bad signatures", extra=fields)
        if self._accounts.fail(account, now, ACCOUNT_PAUSE_S):
            log.warning("account slowed down for new addresses: too many bad signatures", extra=fields)

    def prove(self, host: str, account: str) -> None:
        """A valid signature on a new connection."""
        pair = _network(host), account
        self._pairs.entries.pop(pair, None)
        self._proved[pair] = None
        self._proved.move_to_end(pair)
        if len(self._proved) > ENTRIES_MAX:
            self._proved.popitem(last=False)

    def locked(self) -> dict[str, int]:
        """How many accounts at an address, and how many addresses, are refused now."""
        now = self._clock.monotonic()
        return {"account_at_address": self._pairs.locked(now), "address": self._addresses.locked(now)}


def _network(host: str) -> str:
    """The address; of an IPv6 address the network of 64 bits, which is what one customer has."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> 64 << 64))
