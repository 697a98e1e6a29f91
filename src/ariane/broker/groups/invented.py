"""Groups that exist only because someone committed an offset for them: how many, and for how long.

A consumer sends heartbeats or pulls before it commits. A client that may write offsets can invent any number of
groups, and their offsets would be kept for ever. So one connection may invent only so many, and such a group is deleted
with its offsets when it was neither joined, nor pulled for, nor committed for a week. Tools and Spark jobs commit for
groups without members: a week without a commit is long for them. What was invented before a restart is not known any
more, and stays.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Set
from contextlib import asynccontextmanager
from functools import partial

from ariane.broker.groups.configs import Groups
from ariane.broker.groups.members import Clients
from ariane.broker.groups.offsets import ConsumerOffsets
from ariane.broker.settings import BrokerSettings
from ariane.broker.stats.counters import Counters
from ariane.clock import Clock
from ariane.errors import RequestFailed
from ariane.lifecycle import background, every
from ariane.transport.connection import Connection
from ariane.wire.codes import ResponseCode

log = logging.getLogger(__name__)

PER_CONNECTION_MAX = 1_000
"""As many as a connection may be a member of."""

_SWEEP_INTERVAL_S = 60.0


class InventedGroups:
    """Use on the event loop only."""

    def __init__(
        self,
        settings: BrokerSettings,
        groups: Groups,
        offsets: ConsumerOffsets,
        clients: Clients,
        counters: Counters,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._counters = counters
        self._clock = clock
        self._committed_at: dict[str, float] = {}  # by group
        self._by_connection: Counter[Connection] = Counter()

    def __len__(self) -> int:
        return len(self._committed_at)

    def find(self, group: str, connection: Connection) -> None:
        """Creates the group of a commit, if it is new. RequestFailed if the connection has invented too many."""
        if self._groups.get(group) is None:
            count = self._by_connection[connection]
            if count >= PER_CONNECTION_MAX:
                raise RequestFailed(
                    ResponseCode.SYSTEM_ERROR,
                    f"group {group} does not exist, and this connection has committed offsets of {count} new groups "
                    "already: create groups first (mqadmin updateSubGroup)",
                )
            self._groups.find(group, connection)
            if not count:
                connection.on_close(partial(self._forget, connection))
            self._by_connection[connection] = count + 1
            if self._clients.group(group) is None:
                self._committed_at[group] = self._clock.monotonic()
        elif group in self._committed_at:
            self._committed_at[group] = self._clock.monotonic()

    def _forget(self, connection: Connection) -> None:
        del self._by_connection[connection]

    def sweep(self) -> None:
        """Keeps those that turned out to be groups of consumers; deletes those that nobody used for long."""
        if not self._committed_at:
            return
        consuming: Set[str] = {group for _, group in self._counters.gets} | self._clients.groups().keys()
        since = self._clock.monotonic() - self._settings.invented_groups_kept_s
        for group, at in tuple(self._committed_at.items()):
            if group in consuming:
                del self._committed_at[group]
            elif at < since:
                del self._committed_at[group]
                self._groups.delete(group)
                self._offsets.delete_group(group)
                log.info("group deleted: it had only offsets, and nobody used it", extra={"group": group})

    @asynccontextmanager
    async def expiry_scan(self) -> AsyncIterator[None]:
        """Sweeps periodically while the body runs."""
        async with background(partial(every, self._clock, _SWEEP_INTERVAL_S, self.sweep, _SWEEP_INTERVAL_S)):
            yield
