"""What is not in the log: a slave asks its master for topics, groups and offsets, every ten seconds, as Apache's does.

Progress - offsets of groups, of delay levels, of the timer - says that something is done, and what was done is in the
log: a delayed message in its own topic, a failed one in a retry topic. A slave whose log does not have that yet would,
as a master, never do it. So it also asks where the master's log ended then, and takes the progress over only when its
own log has come so far.

A message of a topic that the slave does not know is there and cannot be read. So topics are also asked for as soon as
the log brings a new one: if the master is lost a moment later, what it acknowledged is served.

It also asks who the master is before it follows it: a master of another cluster, name or file size is not followed, and
only one that is known to be of Ariane gets the native protocol (frames.py says why).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from ariane.clock import Clock
from ariane.errors import ArianeError, RequestFailed, TransportError
from ariane.lifecycle import background, every
from ariane.logs import RepeatedWarnings
from ariane.replication.group.link.held import Held
from ariane.replication.hello import VERSION, Identity
from ariane.replication.settings import ReplicationSettings
from ariane.replication.slave import MasterTarget
from ariane.rpc.caller import Caller
from ariane.settings.properties_file import read_properties
from ariane.wire.fields import Request, Response
from ariane.wire.requests.brokers import GetBrokerSettings, GetRuntimeInfo
from ariane.wire.requests.groups import GetGroupTable, GroupTable
from ariane.wire.requests.offsets import (
    TIMER_PROGRESS,
    GetAllConsumerOffsets,
    GetAllDelayOffsets,
    GetTimerProgress,
    TimerProgressResponse,
)
from ariane.wire.requests.topics import GetTopicTable, TopicTable

log = logging.getLogger(__name__)

A = TypeVar("A", bound=Response)

FIRST_SYNC_S = 3.0
SYNC_INTERVAL_S = 10.0
_TIMEOUT_S = 3.0
_RETRY_S = 1.0

_LOG_END_KEY = "commitLogMaxOffset"
_OFFSET_DIGITS_MAX = 19

VERSION_KEY = "arianeReplicationVersion"
"""Among the settings that a broker of Ariane shows; Apache's has none of this name."""


class Progress(NamedTuple):
    """Of a master; None for what could not be asked."""

    is_of_ours: bool
    """Whether the master is known to be a broker of Ariane: then offsets that consumers committed here never go back.
    In Apache, they are overwritten."""
    offsets: Mapping[str, Mapping[int, int]] | None = None
    """Of groups, by "topic@group" and queue."""
    delays: Mapping[int, int] | None = None
    timer: TimerProgressResponse | None = None


class FollowedLog(Protocol):
    @property
    def dispatched_to(self) -> int: ...

    @property
    def topic_count(self) -> int: ...


class Tables(NamedTuple):
    """What takes over the master's tables at a slave: functions of the broker."""

    copy_topics: Callable[[TopicTable], Awaitable[None]]
    copy_groups: Callable[[GroupTable], Awaitable[None]]
    copy_progress: Callable[["Progress"], Awaitable[None]]


class MasterDirectory:
    """Where the master is, as the nameserver or the settings say, and whether it is ours."""

    def __init__(self, caller: Caller, settings: ReplicationSettings, identity: Identity) -> None:
        self._caller = caller
        self._settings = settings
        self._identity = identity
        self._replication_address = settings.master_address
        self.master_address: str | None = None
        """The master's main port; None when no nameserver knows a master."""
        self.is_ours = False
        """Whether the master is known to be a broker of Ariane."""
        self._identified: str | None = None
        self._ask_again: Callable[[], None] = lambda: None
        self._is_registered = asyncio.Event()

    def ask_by(self, ask_again: Callable[[], None]) -> None:
        """The nameservers were asked for the first time. `ask_again` registers with them now, to learn of a new master
        soon: it is called before each connection."""
        self._ask_again = ask_again
        self._is_registered.set()

    def learn(self, master_address: str | None, replication_address: str | None) -> None:
        """What a nameserver responded to our registration. `haMasterAddress` counts more, as in Apache."""
        if master_address and master_address != self.master_address:
            log.info("the nameserver names a master", extra={"master": master_address})
        self.master_address = master_address or None
        if self._settings.master_address is None:
            self._replication_address = replication_address or None

    async def find(self) -> MasterTarget:
        """For each new connection: asks the master who it is. An ArianeError says why it cannot be followed."""
        await self._is_registered.wait()
        self._ask_again()
        address, has_secret = self._replication_address, self._settings.secret_file is not None
        if address is None:
            raise TransportError("no nameserver knows a master of this brokerName, and haMasterAddress is not set")
        if self.master_address is None:
            return MasterTarget(address, is_native=has_secret)
        facts = await self._facts_of(self.master_address)
        if facts is None:  # access control: only the introduction can tell then
            return MasterTarget(address, is_native=has_secret)
        problem = _problem(facts, self._identity)
        if problem is None and has_secret and not self.is_ours:
            problem = "it is not of Ariane, or of another version, and replication.secret_file demands one"
        if problem is not None:
            raise TransportError(f"the master at {self.master_address} is not followed: {problem}")
        return MasterTarget(address, is_native=self.is_ours)

    async def identify(self, address: str) -> None:
        """Finds out whether the master at `address` is ours, if nobody has asked it: we may have followed it before its
        main port was known. ArianeError when it does not answer."""
        if self._identified != address:
            await self._facts_of(address)

    async def _facts_of(self, address: str) -> dict[str, str] | None:
        """None when it does not show its settings."""
        try:
            shown = await self._caller.call(address, GetBrokerSettings(), _TIMEOUT_S)
        except RequestFailed as error:
            log.debug("the master does not show its settings", extra={"reason": str(error)})
            facts = None
        else:
            facts = {entry.key: entry.value for entry in read_properties(shown.body)}
        self.is_ours = facts is not None and facts.get(VERSION_KEY) == str(VERSION)
        self._identified = address
        return facts


def _problem(facts: dict[str, str], ours: Identity) -> str | None:
    """Why a broker with these settings is not our master; what it does not show is not compared."""
    for key, own in (("brokerClusterName", ours.cluster), ("brokerName", ours.group)):
        if facts.get(key, own) != own:
            return f"its {key} is {facts[key]}, ours {own}"
    size = facts.get("mappedFileSizeCommitLog", str(ours.file_size))
    if size != str(ours.file_size):
        return f"its log files have {size} bytes, ours {ours.file_size}: set mappedFileSizeCommitLog alike"
    return None


class MetadataSync:
    """Open it with `async with MetadataSync.open(...)`."""

    def __init__(
        self,
        directory: MasterDirectory,
        caller: Caller,
        tables: Tables,
        following: FollowedLog,
        clock: Clock | None = None,
    ) -> None:
        self._directory = directory
        self._caller = caller
        self._tables = tables
        self._following = following
        self._clock = clock or Clock()
        self._topics_known = 0
        """With this many topics in the log, the table of topics was asked for."""
        self._has_new_topic = asyncio.Event()
        self._held = Held[Progress](lambda _, newer: newer)
        self._reached = asyncio.Event()
        self._settling = asyncio.Lock()
        self._warnings = RepeatedWarnings(log)
        self.synced = 0
        """How many times the master has answered everything."""
        self.synced_ms: int | None = None
        """When that was last."""
        self.failure: str | None = None
        """What failed in the last attempt, and why."""

    @classmethod
    @asynccontextmanager
    async def open(
        cls, directory: MasterDirectory, caller: Caller, tables: Tables, following: FollowedLog, clock: Clock
    ) -> AsyncIterator["MetadataSync"]:
        sync = cls(directory, caller, tables, following, clock)
        jobs = partial(every, clock, SYNC_INTERVAL_S, sync.run, FIRST_SYNC_S), sync._settle_forever, sync._follow_topics
        try:
            async with background(*jobs):
                yield sync
        finally:
            await sync.settle()

    async def run(self) -> None:
        """Asks for everything once. What fails is asked for again the next time, and does not stop the rest."""
        address = self._directory.master_address
        if address is None:
            self.failure = "no nameserver knows a master of this brokerName"
            return
        failed = _Asking(self._caller, address, self._warnings)
        await failed.attempt("identity", self._directory.identify(address))
        is_ours = self._directory.is_ours
        await self._copy_topics(failed)
        offsets = await failed.ask("consumer offsets", GetAllConsumerOffsets())
        delays = await failed.ask("delay offsets", GetAllDelayOffsets())
        timer = await failed.ask("progress of the timer", GetTimerProgress()) if is_ours else None
        log_end = await self._log_end(failed)  # after them: the log has what they rest on
        groups = await failed.ask("groups", GetGroupTable())
        if groups is not None:
            await failed.attempt("groups", self._tables.copy_groups(groups.body))
        if log_end is not None:
            progress = Progress(
                is_ours,
                None if offsets is None else offsets.body.offset_table,
                None if delays is None else delays.body.offset_table,
                timer if timer is not None and len(timer.body) >= TIMER_PROGRESS.size else None,
            )
            self._held.put(log_end, progress)
        await self.settle()
        self.failure = "; ".join(failed.reasons) or None
        if not failed.reasons:
            self.synced += 1
            self.synced_ms = self._clock.now_ms()

    async def _copy_topics(self, failed: "_Asking") -> None:
        topics = await failed.ask("topics", GetTopicTable(with_deletions=True if self._directory.is_ours else None))
        if topics is not None:
            await failed.attempt("topics", self._tables.copy_topics(topics.body))

    async def _log_end(self, failed: "_Asking") -> int | None:
        info = await failed.ask("end of the log", GetRuntimeInfo())
        text = "" if info is None else info.body.table.get(_LOG_END_KEY, "")
        if info is not None and not (text.isascii() and text.isdigit() and len(text) <= _OFFSET_DIGITS_MAX):
            failed.warn("end of the log", f"{_LOG_END_KEY} is {text[:40]!r}")
            return None
        return int(text) if text else None

    # --- what the log brings ---------------------------------------------------------------------------------------

    def dispatched(self) -> None:
        """Our log has more records. Called often."""
        if self._following.topic_count != self._topics_known:
            self._has_new_topic.set()
        if self._held.is_reached(self._following.dispatched_to):
            self._reached.set()

    async def _follow_topics(self) -> None:
        while True:
            await self._has_new_topic.wait()
            self._has_new_topic.clear()
            self._topics_known = self._following.topic_count
            address = self._directory.master_address
            if address is None:
                continue
            asking = _Asking(self._caller, address, self._warnings)
            await self._copy_topics(asking)
            if asking.reasons:
                await self._clock.sleep(_RETRY_S)
                self._has_new_topic.set()

    async def settle(self) -> None:
        """Takes over what our log has reached."""
        async with self._settling:
            progress = self._held.take(self._following.dispatched_to)
            if progress is not None:
                asking = _Asking(self._caller, self._directory.master_address or "", self._warnings)
                await asking.attempt("progress", self._tables.copy_progress(progress))

    async def _settle_forever(self) -> None:
        while True:
            await self._reached.wait()
            self._reached.clear()
            await self.settle()


class _Asking:
    """Asks the master, and notes and logs what fails."""

    def __init__(self, caller: Caller, address: str, warnings: RepeatedWarnings) -> None:
        self._caller = caller
        self._address = address
        self._warnings = warnings
        self.reasons: list[str] = []

    async def ask(self, what: str, request: Request[A]) -> A | None:
        try:
            return await self._caller.call(self._address, request, _TIMEOUT_S)
        except ArianeError as error:
            self.warn(what, str(error))
            return None

    async def attempt(self, what: str, copying: Awaitable[None]) -> None:
        try:
            await copying
        except ArianeError as error:
            self.warn(what, str(error))

    def warn(self, what: str, reason: str) -> None:
        self.reasons.append(f"{what}: {reason}")
        fields = {"what": what, "master": self._address, "reason": reason}
        self._warnings.warning("not copied from the master", what, fields)
