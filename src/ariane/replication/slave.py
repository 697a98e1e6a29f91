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
from ariane.errors import ArianeError
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
        self._arrived = asyncio.Event()
        self._is_enough = asyncio.Event()
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
            following.run_dry()

    @property
    def status(self) -> FollowingStatus:
        link, end = self._link, self.log.end
        is_connected = link is not None and link.is_welcome
        behind = max(0, link.master_end - end) if link is not None and link.master_end else None
        return FollowingStatus(
            self._address if is_connected else None,
            link.connected_ms if link is not None and is_connected else 0,
            end,
            self.log.dispatched_to,
            behind,
        )

    # --- the connection ---------------------------------------------------------------------------------------------

    async def _follow_forever(self) -> None:
        backoff = Backoff(longest_s=_RETRY_LONGEST_S)
        while True:
            try:
                target = await self._find_master()
                was_welcome, reason = await self._follow(target)
            except (ArianeError, OSError, ValueError) as error:  # TimeoutError and ssl.SSLError are OSErrors
                was_welcome, reason = False, str(error) or "no connection in time"
            if was_welcome:
                backoff.reset()
            self._warnings.warning("not following the master", reason[:40], {"reason": reason})
            await self._clock.sleep(backoff.next_s())

    async def _follow(self, target: MasterTarget) -> tuple[bool, str]:
        """Follows it until the connection ends: whether it was any good, and why it ended."""
        hello = (self._identity, self._member) if target.is_native else None
        link = MasterLink(self.log, self._settings, self._clock, self._on_arrival, hello=hello, secret=self._secret)
        parsed = Address.parse(target.address)
        async with asyncio.timeout(self._transport.connect_timeout_s):
            transport, _ = await asyncio.get_running_loop().create_connection(
                lambda: link, parsed.host, parsed.port, ssl=self._tls
            )
        set_options(transport.get_extra_info("socket"), self._transport.keepalive_idle_s)
        self._link, self._address = link, target.address
        log.info("connected to the master", extra={"master": target.address, "from": self.log.end})
        try:
            reason = await link.done
            return link.is_welcome, reason
        finally:
            self._link = None
            link.close("this broker stops")

    def _tick(self) -> None:
        if self._link is not None:
            self._link.tick()

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
            has_more = True
            while has_more:
                has_more = self.log.dispatch()
                self._dispatched()
                await asyncio.sleep(0)


def _context(settings: ReplicationSettings, tls: TlsSettings) -> ssl.SSLContext | None:
    if not settings.tls:
        return None
    return client_context(settings.tls_trust, tls.certificate, tls.key, tls.key_password)
