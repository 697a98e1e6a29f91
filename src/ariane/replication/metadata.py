"""What is not in the log: a slave asks its master for topics, groups and offsets, every ten seconds, as Apache's does.

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
from typing import NamedTuple, Protocol

from ariane.clock import Clock
from ariane.errors import ArianeError, RequestFailed, TransportError
from ariane.lifecycle import background, every
from ariane.logs import RepeatedWarnings
from ariane.replication.hello import VERSION, Identity
from ariane.replication.settings import ReplicationSettings
from ariane.replication.slave import MasterTarget
from ariane.rpc.caller import Caller
from ariane.settings.properties_file import read_properties
from ariane.wire.requests.brokers import GetBrokerSettings
from ariane.wire.requests.groups import GetGroupTable, GroupTable
from ariane.wire.requests.offsets import GetAllConsumerOffsets, GetAllDelayOffsets
from ariane.wire.requests.topics import GetTopicTable, TopicTable

log = logging.getLogger(__name__)

FIRST_SYNC_S = 3.0
SYNC_INTERVAL_S = 10.0
_TIMEOUT_S = 3.0

VERSION_KEY = "arianeReplicationVersion"
"""Among the settings that a broker of Ariane shows; Apache's has none of this name."""


class FollowedLog(Protocol):
    @property
    def topic_count(self) -> int: ...


class Tables(NamedTuple):
    """What takes over the master's tables at a slave: functions of the broker."""

    copy_topics: Callable[[TopicTable], Awaitable[None]]
    copy_groups: Callable[[GroupTable], Awaitable[None]]
    copy_offsets: Callable[[Mapping[str, Mapping[int, int]], bool], None]
    """With whether offsets only move forward."""
    copy_delay_offsets: Callable[[Mapping[int, int]], Awaitable[None]]


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
        self.ask_again: Callable[[], None] = lambda: None
        """Called before each connection: registers with the nameservers now, to learn of a new master soon."""

    def learn(self, master_address: str | None, replication_address: str | None) -> None:
        """What a nameserver responded to our registration. `haMasterAddress` counts more, as in Apache."""
        if master_address and master_address != self.master_address:
            log.info("the nameserver names a master", extra={"master": master_address})
        self.master_address = master_address or None
        if self._settings.master_address is None:
            self._replication_address = replication_address or None

    async def find(self) -> MasterTarget:
        """For each new connection: asks the master who it is. An ArianeError says why it cannot be followed."""
        self.ask_again()
        address, has_secret = self._replication_address, self._settings.secret_file is not None
        if address is None:
            raise TransportError("no nameserver knows a master of this brokerName, and haMasterAddress is not set")
        if self.master_address is None:
            return MasterTarget(address, is_native=has_secret)
        try:
            shown = await self._caller.call(self.master_address, GetBrokerSettings(), _TIMEOUT_S)
        except RequestFailed as error:  # access control: only the introduction can tell then
            log.debug("the master does not show its settings", extra={"reason": str(error)})
            return MasterTarget(address, is_native=has_secret)
        facts = {entry.key: entry.value for entry in read_properties(shown.body)}
        self.is_ours = facts.get(VERSION_KEY) == str(VERSION)
        problem = _problem(facts, self._identity)
        if problem is None and has_secret and not self.is_ours:
            problem = "it is not of Ariane, or of another version, and replication.secret_file demands one"
        if problem is not None:
            raise TransportError(f"the master at {self.master_address} is not followed: {problem}")
        return MasterTarget(address, is_native=self.is_ours)


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
        self._topics_known = 0
        """With this many topics in the log, the table of topics was asked for."""
        self._has_new_topic = asyncio.Event()
        self._warnings = RepeatedWarnings(log)
        self._clock = clock or Clock()
        self.synced = 0
        """How many times everything was copied."""
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
        jobs = partial(every, clock, SYNC_INTERVAL_S, sync.run, FIRST_SYNC_S), sync._follow_topics
        async with background(*jobs):
            yield sync

    def dispatched(self) -> None:
        """Our log has more records. Called often."""
        if self._following.topic_count != self._topics_known:
            self._has_new_topic.set()

    async def _follow_topics(self) -> None:
        while True:
            await self._has_new_topic.wait()
            self._has_new_topic.clear()
            self._topics_known = self._following.topic_count
            await self._copy({"topics": self._copy_topics})

    async def run(self) -> None:
        """Copies everything once. What fails is tried again the next time, and does not stop the rest."""
        steps = {
            "topics": self._copy_topics,
            "consumer offsets": self._copy_offsets,
            "delay offsets": self._copy_delay_offsets,
            "groups": self._copy_groups,
        }
        if await self._copy(steps):
            self.synced += 1
            self.synced_ms = self._clock.now_ms()

    async def _copy(self, steps: Mapping[str, Callable[[str], Awaitable[None]]]) -> bool:
        """Whether all was copied."""
        address = self._directory.master_address
        if address is None:
            self.failure = "no nameserver knows a master of this brokerName"
            return False
        failed: list[str] = []
        for what, step in steps.items():
            try:
                await step(address)
            except ArianeError as error:
                failed.append(f"{what}: {error}")
                fields = {"what": what, "master": address, "reason": str(error)}
                self._warnings.warning("not copied from the master", what, fields)
        self.failure = "; ".join(failed) or None
        return not failed

    async def _copy_topics(self, address: str) -> None:
        await self._tables.copy_topics((await self._caller.call(address, GetTopicTable(), _TIMEOUT_S)).body)

    async def _copy_groups(self, address: str) -> None:
        await self._tables.copy_groups((await self._caller.call(address, GetGroupTable(), _TIMEOUT_S)).body)

    async def _copy_offsets(self, address: str) -> None:
        """Between two of ours an offset never goes back: consumers of the slave may be further than the master knows.
        In Apache, what they committed here is overwritten."""
        response = await self._caller.call(address, GetAllConsumerOffsets(), _TIMEOUT_S)
        self._tables.copy_offsets(response.body.offset_table, self._directory.is_ours)

    async def _copy_delay_offsets(self, address: str) -> None:
        response = await self._caller.call(address, GetAllDelayOffsets(), _TIMEOUT_S)
        await self._tables.copy_delay_offsets(response.body.offset_table)
