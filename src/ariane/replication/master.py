"""The master's end of replication: the port where slaves connect, and the wait for their acknowledgements.

Who may connect: others on this machine, and the addresses of `replication.allowed_peers`. All others must know the
secret, and so need the native protocol. When there are too many connections, the oldest that has not reported yet is
closed for a new one, so that silent peers do not keep slaves out.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import IPv6Address, ip_address
from socket import socket
from typing import Any

from ariane.clock import Clock
from ariane.lifecycle import TaskSet, background, every
from ariane.logs import RepeatedWarnings
from ariane.model.address import Address
from ariane.replication.frames import Report
from ariane.replication.hello import Identity
from ariane.replication.history import LogHistory
from ariane.replication.log_source import LogSource
from ariane.replication.progress import Acks, AckWaiters, Replicated
from ariane.replication.settings import ReplicationSettings
from ariane.replication.slave_link import SharedFrames, SlaveLink
from ariane.store.service import StoreService
from ariane.transport.listener import accept_forever, listen, set_options
from ariane.transport.settings import TlsSettings, TransportSettings
from ariane.transport.tls import chosen_tls, server_context

log = logging.getLogger(__name__)

LINKS_MAX = 64
LOST_MAX = 16
LOST_FOR_S = 86_400.0
_TICK_S_MAX = 1.0
_GATHER_S = 0.002
"""How long a link waits for an acknowledgement before it sends the little that is new."""


@dataclass(frozen=True, slots=True)
class SlaveStatus:
    """One connected slave, for operators."""

    address: str
    member: int | None
    """Its brokerId, if it is one of Ariane."""
    is_native: bool
    connected_ms: int
    sent_to: int
    acknowledged: int
    dispatched: int | None
    behind_bytes: int
    behind_s: float | None
    """How long ago it had everything; None if that was before this master was started."""
    is_in_sync: bool
    """Whether a SYNC_MASTER would wait for it."""
    bytes_per_s: int


@dataclass(frozen=True, slots=True)
class LostSlave:
    """A slave that is not connected any more, or a peer that was refused, for operators."""

    address: str
    member: int | None
    lost_ms: int
    reason: str | None
    """Why the master closed the connection; None if the other end did."""
    acknowledged: int | None
    """None for one that was never a slave of this master."""
    behind_s: float | None


class Master:
    """Open it with `async with Master.open(...)`. Use on the event loop only."""

    def __init__(
        self,
        service: StoreService,
        settings: ReplicationSettings,
        identity: Identity,
        clock: Clock,
    ) -> None:
        self.source = LogSource(service)
        self.settings = settings
        self.identity = identity
        self.secret = settings.secret()
        self.clock = clock
        self.address = Address("", 0)
        self.shared = SharedFrames()
        self._networks = settings.allowed_networks
        self._links: dict[SlaveLink, None] = {}  # oldest first
        self._starting: dict[SlaveLink, asyncio.Task[None]] = {}  # TLS or not, and its handshake
        self._dispatched: dict[SlaveLink, int] = {}
        self._acks: Acks[SlaveLink] = Acks()
        self._waiters: AckWaiters[asyncio.Future[Replicated]] = AckWaiters()
        self._history = LogHistory()
        self._lost: dict[int | str, LostSlave] = {}
        self._sent_to_others = 0
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = TaskSet()
        self._is_pumping = False
        self._progress = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None
        self._warnings = RepeatedWarnings(log)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        address: Address,
        service: StoreService,
        settings: ReplicationSettings,
        identity: Identity,
        clock: Clock,
        *,
        transport: TransportSettings | None = None,
        tls: TlsSettings | None = None,
    ) -> AsyncIterator["Master"]:
        """Slaves are served while the body runs."""
        master = cls(service, settings, identity, clock)
        transport, tls = transport or TransportSettings(), tls or TlsSettings()
        context = server_context(tls)
        with listen(address, transport.backlog) as listener:
            master.address = Address(*listener.getsockname()[:2])
            service.store.on_append(master.appended)
            service.store.add_log_reader(master.needed_from)
            master._note_end()
            tick_s = min(_TICK_S_MAX, settings.heartbeat_interval_s / 2, settings.housekeeping_interval_s / 4)
            start = partial(master._start, context=context, tls=tls, transport=transport)
            jobs = (partial(accept_forever, listener, partial(master._accept, start)),)
            async with background(*jobs, partial(every, clock, tick_s, master._tick, tick_s)):
                try:
                    yield master
                    await master._give_all()
                finally:
                    master._close()
                    await master._tasks.wait()

    # --- for the broker ---------------------------------------------------------------------------------------------

    def appended(self) -> None:
        """The log has a new end. Slaves get it when this event-loop iteration is over, all of it at once."""
        if self._links:
            self.pump_soon()

    def pump_soon(self) -> None:
        if not self._is_pumping:
            self._is_pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def pump_later(self) -> None:
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(_GATHER_S, self._pump, True)

    def _pump(self, is_overdue: bool = False) -> None:
        if is_overdue:
            self._later = None
        else:
            self._is_pumping = False
        for link in tuple(self._links):
            link.pump(is_overdue=is_overdue)
        self.shared.clear()

    def is_replicated(self, end: int) -> bool:
        """Whether a slave has all records below `end`."""
        return end <= self._acks.best

    def replicated(self, end: int) -> "asyncio.Future[Replicated]":
        """Done when a slave has all records below `end`; at once, if there is none or it is too far behind."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Replicated] = loop.create_future()
        outcome = self._acks.outcome(end, self.source.end, self.settings.fall_behind_bytes_max)
        if outcome is not None:
            future.set_result(outcome)
        else:
            self._waiters.add(future, end, loop.time() + self.settings.slave_timeout_s)
            self._set_timer()
        return future

    def needed_from(self) -> int | None:
        """The first byte of the log that a connected slave does not have; None without one. For retention."""
        needed = [max(acked, link.started_at) for link in self._links if (acked := self._acks.of(link)) is not None]
        return min(needed, default=None)

    def slaves(self) -> list[SlaveStatus]:
        return list(self._statuses())

    def _statuses(self) -> Iterator[SlaveStatus]:
        now = self._note_end()
        for link in self._links:
            acked = self._acks.of(link)
            if acked is not None:
                behind = self.source.end - acked
                yield SlaveStatus(
                    link.peer,
                    link.member,
                    link.is_native,
                    link.connected_ms,
                    link.sent_to,
                    acked,
                    self._dispatched.get(link),
                    behind,
                    self._history.age_s(acked, now),
                    behind < self.settings.fall_behind_bytes_max,
                    link.bytes_per_s,
                )

    def lost(self) -> list[LostSlave]:
        """Slaves and peers of the last day that are not connected, the latest last; some are forgotten earlier."""
        now, now_ms = self._note_end(), self.clock.now_ms()
        since = {key: link.connected_ms for link in self._links if link.is_streaming for key in (_key(link), link.host)}
        return [
            lost if lost.acknowledged is None else replace(lost, behind_s=self._history.age_s(lost.acknowledged, now))
            for key, lost in self._lost.items()
            if since.get(key, -1) < lost.lost_ms and now_ms - lost.lost_ms < LOST_FOR_S * 1000
        ]

    @property
    def sent_bytes(self) -> int:
        """Of the log, to all slaves since the start."""
        return self._sent_to_others + sum(link.sent_bytes for link in self._links)

    def _note_end(self) -> float:
        now = self.clock.monotonic()
        self._history.note(self.source.end, now)
        return now

    def _remember_lost(
        self, key: int | str, peer: str, member: int | None, reason: str | None, acked: int | None
    ) -> None:
        self._lost.pop(key, None)
        if len(self._lost) >= LOST_MAX:
            del self._lost[next(iter(self._lost))]
        self._lost[key] = LostSlave(peer, member, self.clock.now_ms(), reason, acked, None)

    async def _give_all(self) -> None:
        """At a clean stop: what connected slaves do not have yet, so that each of them can take the master's place."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.slave_timeout_s):
                while any(status.behind_bytes for status in self._statuses()):
                    self._progress.clear()
                    await self._progress.wait()
        for status in self._statuses():
            if status.behind_bytes:
                fields = {"slave": status.address, "behind_bytes": status.behind_bytes}
                log.warning("this master stops before a slave has everything", extra=fields)

    # --- connections ------------------------------------------------------------------------------------------------

    def _accept(self, start: partial[Coroutine[Any, Any, None]], accepted: socket, host: str) -> None:
        is_trusted = self.is_trusted(host)
        if not is_trusted and self.secret is None:
            reason = "its address is not in replication.allowed_peers"
            self._warnings.warning(f"a connection to the replication port was refused: {reason}", host, {"peer": host})
            self._remember_lost(host, host, None, reason, None)
            accepted.close()
        elif not self._has_room():
            self._warnings.warning("a connection to the replication port was refused: too many", "", {"peer": host})
            accepted.close()
        else:
            link = SlaveLink(self, host, is_trusted=is_trusted)
            self._links[link] = None
            task = self._starting[link] = self._tasks.spawn(start(link, accepted))
            task.add_done_callback(partial(self._started, link, accepted))

    def is_trusted(self, host: str) -> bool:
        """Whether a peer of this IP address needs no authentication."""
        address = ip_address(host.partition("%")[0])
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return address.is_loopback or any(address in network for network in self._networks)

    def _has_room(self) -> bool:
        if len(self._links) < LINKS_MAX:
            return True
        silent = next((link for link in self._links if not link.is_streaming), None)
        if silent is None:
            return False
        self._forget(silent)
        reason = "a new connection takes its place: it has not reported"
        starting = self._starting.get(silent)
        if starting is None:
            silent.close(reason)
        else:
            starting.cancel()
            self._warn(silent, reason)
        return True

    async def _start(
        self,
        link: SlaveLink,
        accepted: socket,
        context: ssl.SSLContext | None,
        tls: TlsSettings,
        transport: TransportSettings,
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            set_options(accepted, transport.keepalive_idle_s)
            async with asyncio.timeout(self.settings.housekeeping_interval_s):
                chosen = await chosen_tls(accepted, context, tls.mode)
                await loop.connect_accepted_socket(lambda: link, accepted, ssl=chosen)
        except (OSError, TimeoutError, asyncio.CancelledError) as error:
            accepted.close()
            self._forget(link)
            if isinstance(error, asyncio.CancelledError):
                raise
            reason = str(error) or "it was silent"
            self._remember_lost(_key(link), link.peer, None, reason, None)
            self._warn(link, reason)

    def _started(self, link: SlaveLink, accepted: socket, task: "asyncio.Task[None]") -> None:
        """Also of one that was cancelled before its first step."""
        del self._starting[link]
        if task.cancelled():
            accepted.close()

    def reported(self, link: SlaveLink, report: Report) -> None:
        if link not in self._links:  # another has its place
            return
        self._progress.set()
        if link.is_native:
            self._dispatched[link] = report.dispatched
        if self._acks.report(link, report.end):
            for future in self._waiters.acknowledged(self._acks.best):
                if not future.done():
                    future.set_result(Replicated.YES)

    def welcomed(self, link: SlaveLink) -> None:
        """An older connection of the same slave is dead, even if nobody has noticed."""
        for other in tuple(self._links):
            if other is not link and other.member is not None and other.member == link.member:
                self._forget(other)
                other.close(
                    f"brokerId {link.member} has connected again, from {link.peer}: if these are two slaves, give one "
                    "another brokerId"
                )

    def closed(self, link: SlaveLink, reason: str | None) -> None:
        acked = self._acks.of(link)
        self._forget(link)
        if reason is not None or acked is not None:
            self._remember_lost(_key(link), link.peer, link.member, reason, acked)
        if reason is not None:
            self._warn(link, reason)
        elif acked is not None:
            log.info("slave disconnected", extra={"slave": link.peer, "id": link.member})

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.spawn(work)

    def _forget(self, link: SlaveLink) -> None:
        if link in self._links:
            del self._links[link]
            self._sent_to_others += link.sent_bytes
        self._progress.set()
        self._dispatched.pop(link, None)
        self._acks.drop(link)

    def _warn(self, link: SlaveLink, reason: str) -> None:
        fields = {"peer": link.peer, "reason": reason}
        self._warnings.warning("replication connection closed", (link.host, reason[:40]), fields)

    # --- time -------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._note_end()
        for link in tuple(self._links):
            if link.is_open:
                link.tick()

    def _set_timer(self) -> None:
        deadline = self._waiters.next_deadline
        if self._timer is None and deadline is not None:
            self._timer = asyncio.get_running_loop().call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._finish(self._waiters.expired(asyncio.get_running_loop().time()))
        self._set_timer()

    def _finish(self, futures: list["asyncio.Future[Replicated]"]) -> None:
        for future in futures:
            if not future.done():
                future.set_result(Replicated.TIMEOUT)

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._later is not None:
            self._later.cancel()
        self._finish(self._waiters.all())
        for link in tuple(self._links):
            link.close()
        self._tasks.cancel()


def _key(link: SlaveLink) -> int | str:
    """What a slave is known by: its brokerId, or its host if it does not say that."""
    return link.host if link.member is None else link.member
