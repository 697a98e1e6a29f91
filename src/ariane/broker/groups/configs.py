"""Consumer group configurations, stored in `subscriptionGroup.json` in Apache's format, and subscription comparison.

A change by an administrator is saved before the response. A group that is created by its first use is saved a few
seconds later: after a crash its next use creates it again.

RocketMQ has one subscription per group, and the newest heartbeat replaces it. Members with different subscriptions
therefore overwrite each other's: messages that one of them subscribes to are filtered out or delivered to a member that
does not want them. This module only detects such a disagreement, which is logged and counted but not rejected.
"""

import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

from ariane.broker.json_table import Autosave, JsonTable
from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import CreationLimit
from ariane.clock import Clock
from ariane.errors import RequestFailed, StoreCorrupt, WireError
from ariane.model.group import ExpressionType, GroupConfig, Subscription
from ariane.model.ids import RETRY_PREFIX, TOPIC_LENGTH_MAX, group_name_problem
from ariane.model.topic import DataVersion
from ariane.transport.connection import Connection
from ariane.wire.codes import ResponseCode
from ariane.wire.json.coerce import coerce
from ariane.wire.requests.groups import GroupTable

log = logging.getLogger(__name__)

SYSTEM_PREFIX = "CID_RMQ_SYS_"
_GROUPS_MAX = 100_000  # any client may name a new group: each takes an entry in the file and a retry topic
# Groups that every broker has: Apache's tools consume with them.
_PREDEFINED = (
    "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",
)  # fmt: skip


class Groups:
    """Changes on the event loop only."""

    def __init__(
        self, settings: BrokerSettings, file: JsonTable | None, clock: Clock, creations: CreationLimit | None = None
    ) -> None:
        self._settings = settings
        self._creations = creations or CreationLimit(settings, clock)
        self._clock = clock
        self._autosave = Autosave(file, self.table)
        loaded = _load(file)
        self.version = loaded.data_version
        self._groups = dict(loaded.subscription_group_table)
        for name in _PREDEFINED:
            self._groups.setdefault(name, GroupConfig(group_name=name))

    def get(self, group: str) -> GroupConfig | None:
        return self._groups.get(group)

    def all(self) -> Mapping[str, GroupConfig]:
        return self._groups

    def table(self) -> GroupTable:
        return GroupTable(data_version=self.version, subscription_group_table=dict(self._groups))

    def find(self, group: str, creator: Connection | None = None) -> GroupConfig:
        """The group's configuration; a new group is created with defaults if auto-creation is enabled.

        `creator` is the connection that uses it.
        """
        config = self._groups.get(group)
        if config is not None:
            return config
        if not self._settings.auto_create_groups and not group.startswith(SYSTEM_PREFIX):
            raise RequestFailed(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"group {group} does not exist: create it, or set autoCreateSubscriptionGroup=true",
            )
        self._check_new(group)
        self._creations.admit(creator, f"group {group}")
        config = GroupConfig(group_name=group)
        self._set(config)
        log.info("group created on first use", extra={"group": group})
        return config

    def put(self, config: GroupConfig) -> None:
        """Creates or changes a group; `saved` waits until that is durable."""
        if config.group_name not in self._groups:
            self._check_new(config.group_name)
        self._set(config)

    async def copy(self, table: GroupTable) -> None:
        """Takes over the master's table, at a slave, with its version, and saves it. Invalid names are left out."""
        if table.data_version == self.version:
            return
        self._groups = {
            name: config
            for name, config in table.subscription_group_table.items()
            if consumer_group_problem(name) is None
        }
        self.version = table.data_version
        self._autosave.mark_changed()
        await self.saved()

    def delete(self, group: str) -> bool:
        """Whether it existed."""
        if self._groups.pop(group, None) is None:
            return False
        self._bump_version()
        return True

    async def saved(self) -> None:
        """Waits until all changes so far are durable. StoreError if they cannot be saved: a crash loses them."""
        await self._autosave.saved()

    @asynccontextmanager
    async def autosave(self, clock: Clock, interval_s: float) -> AsyncIterator[None]:
        """Saves auto-created groups periodically while the body runs, and when it ends."""
        async with self._autosave.run(clock, interval_s):
            yield

    def _set(self, config: GroupConfig) -> None:
        self._groups[config.group_name] = config
        self._bump_version()

    def _bump_version(self) -> None:
        self.version = DataVersion(timestamp=self._clock.now_ms(), counter=self.version.counter + 1)
        self._autosave.mark_changed()

    def _check_new(self, group: str) -> None:
        problem = consumer_group_problem(group)
        if problem is None and len(self._groups) >= _GROUPS_MAX:
            problem = f"this broker has {len(self._groups)} groups, which is the limit: delete unused groups"
        if problem is not None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, problem)


def consumer_group_problem(group: str) -> str | None:
    """Why the name is invalid for a consumer group, or None. The name of its retry topic must fit into a record."""
    length_max = TOPIC_LENGTH_MAX - len(RETRY_PREFIX)
    if len(group) > length_max:
        return f"the group name has {len(group)} characters, at most {length_max} fit after {RETRY_PREFIX} in a topic"
    return group_name_problem(group)


def _load(file: JsonTable | None) -> GroupTable:
    content = None if file is None else file.load()
    if file is None or content is None:
        return GroupTable()
    try:
        return coerce(GroupTable, content)
    except WireError as error:
        raise StoreCorrupt(f"{file.path} is not a valid group table: {error}; restore it from a copy") from None


# --- comparison of subscriptions ---

SubscriptionSet: TypeAlias = frozenset[tuple[str, str, frozenset[str]]]
"""Per topic: its name, the expression type, and the tags, or the SQL expression as the only element."""

_ALL_TAGS = frozenset({"*"})


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two members of one group with different subscriptions."""

    group: str
    client_id: str
    """Its heartbeat revealed the difference; the group now has its subscription."""
    other_client_id: str
    topics: tuple[str, ...]


def subscription_set_of(subscriptions: Iterable[Subscription]) -> SubscriptionSet:
    """A member's subscriptions in normal form: equal for equivalent subscriptions."""
    # Clients add the retry topic themselves in clustering mode, not in broadcasting mode.
    return frozenset(
        _normalize(subscription) for subscription in subscriptions if not subscription.topic.startswith(RETRY_PREFIX)
    )


def differing_topics(mine: SubscriptionSet, theirs: SubscriptionSet) -> tuple[str, ...]:
    return tuple(sorted({topic for topic, _, _ in mine ^ theirs}))


def _normalize(subscription: Subscription) -> tuple[str, str, frozenset[str]]:
    kind = (subscription.expression_type or ExpressionType.TAG).upper()
    if kind != ExpressionType.TAG:
        return subscription.topic, kind, frozenset({subscription.sub_string})
    tags = frozenset(filter(None, map(str.strip, subscription.sub_string.split("||"))))
    return subscription.topic, kind, _ALL_TAGS if not tags or "*" in tags else tags
