"""A slave: keeps a connection to its master, and dispatches what arrived.

A dispatch has a fixed price, so it waits for 256 records or 20 ms. At the end everything that arrived is dispatched.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ariane.clock import Clock
from ariane.errors import ArianeError, ConnectFailed, StoreCorrupt, StoreMismatch
from ariane.lifecycle import Backoff, background, every
from ariane.logs import RepeatedWarnings
from ariane.model.address import Address
from ariane.replication.hello import Identity
from ariane.replication.master_link import MasterLink
from ariane.replication.settings import ReplicationSettings
from ariane.store.following import FollowingLog
from ariane.transport.listener import set_options
from ariane.transport.settings import TlsSettings, TransportSettings
from ariane.transport.tls import client_context

log = logging.getLogger(__name__)

GATHERED_RECORDS = 256
GATHER_S = 0.02
_RETRY_LONGEST_S = 5.0
_TICK_S_MAX = 1.0


class MasterTarget(NamedTuple):
    """Where the master's replication port is, and whether it is known to be one of Ariane.

    Never native on suspicion: see `MAGIC`.
    """

    address: str
    is_native: bool


FindMaster = Callable[[], Awaitable[MasterTarget]]
"""Called before each connection; an ArianeError says why there is no master to follow now."""


@dataclass(frozen=True, slots=True)
class FollowingStatus:
    """For operators."""

    master: str | None
    """The replication port that we are connected to; None when we are not."""
    connected_ms: int
    end: int
    dispatched: int
    behind_bytes: int | None
    """None when it is not known: masters of Apache do not say where they are."""
    behind_s: float | None
    """How long ago it had everything that the master had; None if that is not known."""
    reason: str | None
    """Why it is not connected, as the log says."""
    received_ms: int | None
    """When something arrived last, and was sent last, on this connection."""
    reported_ms: int | None
    bytes_per_s: int
    """How fast the log grew in the last second or so."""


class Slave:
    """Open it with `async with Slave.open(...)`. Use on the event loop only."""

    def __init__(
        self,
        following: FollowingLog,
        settings: ReplicationSettings,
        identity: Identity,
        member: int,
        find_master: FindMaster,
        clock: Clock,
        transport: TransportSettings,
        tls: ssl.SSLContext | None,
        dispatched: Callable[[], None],
    ) -> None:
        self.log = following
        self._dispatched = dispatched
        self._settings = settings
        self._identity = identity
        self._member = member
        self._find_master = find_master
        self._clock = clock
        self._transport = transport
        self._tls = tls
        self._secret = settings.secret()
        self._link: MasterLink | None = None
        self._address: str | None = None
        self._reason: str | None = "it has just been started"
        self._caught_up_at: float | None = None
        self._bytes_per_s = 0
        self._measured_to: int | None = None
        self._measured_at = clock.monotonic()
        self._arrived = asyncio.Event()
        self._is_enough = asyncio.Event()
        self._failure: StoreCorrupt | StoreMismatch | None = None
        """Why it does not go on until it is started again: what the master sent cannot be dispatched."""
        self._warnings = RepeatedWarnings(log)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        following: FollowingLog,
        settings: ReplicationSettings,
        identity: Identity,
        member: int,
        find_master: FindMaster,
        clock: Clock,
        *,
        transport: TransportSettings | None = None,
        tls: TlsSettings | None = None,
        dispatched: Callable[[], None] = lambda: None,
    ) -> AsyncIterator["Slave"]:
        """Follows the master while the body runs. `dispatched` is called when consumers can read more."""
        context, transport = _context(settings, tls or TlsSettings()), transport or TransportSettings()
        slave = cls(following, settings, identity, member, find_master, clock, transport, context, dispatched)
        tick_s = min(_TICK_S_MAX, settings.heartbeat_interval_s / 2, settings.housekeeping_interval_s / 4)
        jobs = slave._follow_forever, slave._dispatch_forever, partial(every, clock, tick_s, slave._tick, tick_s)
        try:
            async with background(*jobs):
                yield slave
        finally:
            if slave._link is not None:
                slave._link.close("this broker stops")
            if slave._failure is None:
                following.run_dry()

    @property
    def status(self) -> FollowingStatus:
        link, end, now = self._link, self.log.end, self._clock.monotonic()
        if link is None or not link.is_introduced:
            behind_s = None if self._caught_up_at is None else now - self._caught_up_at
            reason = self._reason
            if link is not None and not link.is_native:  # masters of Apache are silent for up to 5 s
                reason = f"{self._address} has not sent anything yet"
            return FollowingStatus(
                None, 0, end, self.log.dispatched_to, None, behind_s, reason, None, None, self._bytes_per_s
            )
        behind = None if link.master_end is None else max(0, link.master_end - end)
        if behind == 0:
            self._caught_up_at = now
        started_ms = self._clock.now_ms() - now * 1000
        return FollowingStatus(
            self._address,
            link.connected_ms,
            end,
            self.log.dispatched_to,
            behind,
            None if behind is None or self._caught_up_at is None else now - self._caught_up_at,
            None,
            round(started_ms + link.received_at * 1000),
            round(started_ms + link.written_at * 1000),
            self._bytes_per_s,
        )

    # --- the connection ---------------------------------------------------------------------------------------------

    async def _follow_forever(self) -> None:
        backoff = Backoff(longest_s=_RETRY_LONGEST_S)
        while self._failure is None:
            try:
                target = await self._find_master()
                was_welcome, reason = await self._follow(target)
            except (ArianeError, OSError, ValueError) as error:  # TimeoutError and ssl.SSLError are OSErrors
                was_welcome, reason = False, str(error) or "no connection in time"
            if was_welcome:
                backoff.reset()
            self._reason = reason
            self._warnings.warning("not following the master", reason[:40], {"reason": reason})
            await self._clock.sleep(backoff.next_s())

    async def _follow(self, target: MasterTarget) -> tuple[bool, str]:
        """Follows it until the connection ends: whether it was any good, and why it ended."""
        hello = (self._identity, self._member) if target.is_native else None
        link = MasterLink(self.log, self._settings, self._clock, self._on_arrival, hello=hello, secret=self._secret)
        parsed = Address.parse(target.address)
        async with asyncio.timeout(self._transport.connect_timeout_s):
            try:
                transport, _ = await asyncio.get_running_loop().create_connection(
                    lambda: link, parsed.host, parsed.port, ssl=self._tls
                )
            except (ConnectionResetError, ConnectionAbortedError, ssl.SSLError) as error:
                if self._tls is None:
                    raise
                raise ConnectFailed(f"no TLS with the master at {target.address} (replication.tls): {error}") from error
        set_options(transport.get_extra_info("socket"), self._transport.keepalive_idle_s)
        self._link, self._address = link, target.address
        if self._failure is not None:  # meanwhile
            link.close(str(self._failure))
        log.info("connected to the master", extra={"master": target.address, "from": self.log.end})
        try:
            reason = await link.done
            return link.is_welcome, reason
        finally:
            self._link = None
            link.close("this broker stops")

    def _tick(self) -> None:
        self._measure()
        if self._link is not None:
            self._link.tick()

    def _measure(self) -> None:
        now, end = self._clock.monotonic(), None if self.log.is_empty else self.log.end
        if now > self._measured_at:
            grown = 0 if end is None or self._measured_to is None else end - self._measured_to
            self._bytes_per_s = round(grown / (now - self._measured_at))
            self._measured_to, self._measured_at = end, now
        master_end = None if self._link is None else self._link.master_end
        if master_end is not None and master_end <= self.log.end:
            self._caught_up_at = now

    # --- dispatch ---------------------------------------------------------------------------------------------------

    def _on_arrival(self) -> None:
        self._arrived.set()
        if not self._is_enough.is_set() and self.log.undispatched_records() >= GATHERED_RECORDS:
            self._is_enough.set()

    async def _dispatch_forever(self) -> None:
        while True:
            await self._arrived.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(GATHER_S):
                    await self._is_enough.wait()
            self._arrived.clear()
            self._is_enough.clear()
            try:
                while self.log.dispatch():
                    self._dispatched()
                    await asyncio.sleep(0)
            except (StoreCorrupt, StoreMismatch) as error:
                self._give_up(error)
                return
            self._dispatched()

    def _give_up(self, error: StoreCorrupt | StoreMismatch) -> None:
        """What was dispatched before is served on: a copy that stands still is better than none."""
        self._failure, self._reason = error, str(error)
        log.critical("this slave follows its master no longer", extra={"reason": str(error)})
        if self._link is not None:
            self._link.close(str(error))


def _context(settings: ReplicationSettings, tls: TlsSettings) -> ssl.SSLContext | None:
    if not settings.tls:
        return None
    return client_context(settings.tls_trust, tls.certificate, tls.key, tls.key_password)
