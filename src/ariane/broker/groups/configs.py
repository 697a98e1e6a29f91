"""Consumer groups: what this broker allows each, kept in `subscriptionGroup.json` as Apache's broker has it.

A group that an administrator changes is saved before the answer. One that appears by being used is saved a few seconds
later: after a crash it appears again in the same way.
"""

import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

from ariane.broker.json_table import Autosave, JsonTable
from ariane.broker.settings import BrokerSettings
from ariane.clock import Clock
from ariane.errors import RequestFailed, StoreCorrupt, WireError
from ariane.model.group import ExpressionType, GroupConfig, Subscription
from ariane.model.ids import RETRY_PREFIX, TOPIC_LENGTH_MAX, group_name_problem
from ariane.model.topic import DataVersion
from ariane.wire.codes import ResponseCode
from ariane.wire.json.coerce import coerce
from ariane.wire.requests.groups import GroupTable

log = logging.getLogger(__name__)

SYSTEM_PREFIX = "CID_RMQ_SYS_"
_GROUPS_MAX = 100_000  # anybody may name a new group: each takes a line in the file, and its retry topic
# What every broker has from the start: Apache's own tools consume as these.
_PREDEFINED = (
    "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",
)  # fmt: skip


class Groups:
    """Changes on the event loop only."""

    def __init__(self, settings: BrokerSettings, file: JsonTable | None, clock: Clock) -> None:
        self._settings = settings
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

    def find(self, group: str) -> GroupConfig:
        """The group's settings; made from the defaults when it is new and groups may be made by using them."""
        config = self._groups.get(group)
        if config is not None:
            return config
        if not self._settings.auto_create_groups and not group.startswith(SYSTEM_PREFIX):
            raise RequestFailed(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"group {group} does not exist: create it, or turn on autoCreateSubscriptionGroup",
            )
        self._check_new(group)
        config = GroupConfig(group_name=group)
        self._set(config)
        log.info("group created by its first use", extra={"group": group})
        return config

    def put(self, config: GroupConfig) -> None:
        """Creates or changes a group. StoreError when it could not be saved: it counts, but only until a crash."""
        if config.group_name not in self._groups:
            self._check_new(config.group_name)
        self._set(config)
        self._autosave.save()

    def delete(self, group: str) -> bool:
        """Whether it was there."""
        if self._groups.pop(group, None) is None:
            return False
        self._step()
        self._autosave.save()
        return True

    @asynccontextmanager
    async def autosave(self, clock: Clock, interval_s: float) -> AsyncIterator[None]:
        """Saves what appeared by itself while the body runs, and when it ends."""
        async with self._autosave.run(clock, interval_s):
            yield

    def _set(self, config: GroupConfig) -> None:
        self._groups[config.group_name] = config
        self._step()

    def _step(self) -> None:
        self.version = DataVersion(timestamp=self._clock.now_ms(), counter=self.version.counter + 1)
        self._autosave.mark_changed()

    def _check_new(self, group: str) -> None:
        problem = consumer_group_problem(group)
        if problem is None and len(self._groups) >= _GROUPS_MAX:
            problem = f"this broker has {len(self._groups)} groups, more are not taken: delete those of no use"
        if problem is not None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, problem)


def consumer_group_problem(group: str) -> str | None:
    """Why no consumer group may have this name, or None: its retry topic must be one that a record can name."""
    length_max = TOPIC_LENGTH_MAX - len(RETRY_PREFIX)
    if len(group) > length_max:
        return f"the group name has {len(group)} characters, at most {length_max} fit a topic behind {RETRY_PREFIX}"
    return group_name_problem(group)


def _load(file: JsonTable | None) -> GroupTable:
    content = None if file is None else file.load()
    if file is None or content is None:
        return GroupTable()
    try:
        return coerce(GroupTable, content)
    except WireError as error:
        raise StoreCorrupt(f"{file.path} is no table of groups: {error}; restore it from its .bak") from None


# --- subscription_check ---
#
# Whether the members of a group want the same messages.
#
# RocketMQ keeps one subscription for a whole group, and the newest heartbeat wins. Members that differ take turns in
# replacing each other's: messages that one of them wants are filtered away or given to one that does not want them. So
# nothing here is refused, but it is said aloud.

SubscriptionSet: TypeAlias = frozenset[tuple[str, str, frozenset[str]]]
"""Of each topic: its name, the kind of its expression, and the tags, or the expression as the only member."""

_ALL_TAGS = frozenset({"*"})


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two members of one group that do not subscribe alike."""

    group: str
    client_id: str
    """Whose heartbeat showed it: the group's subscription follows this one now."""
    other_client_id: str
    topics: tuple[str, ...]


def subscription_set_of(subscriptions: Iterable[Subscription]) -> SubscriptionSet:
    """What a member wants, in a form that is equal for equal wishes however they are written."""
    # A retry topic comes with clustering and not with broadcasting; the user did not choose it.
    return frozenset(_normalize(one) for one in subscriptions if not one.topic.startswith(RETRY_PREFIX))


def differing_topics(mine: SubscriptionSet, theirs: SubscriptionSet) -> tuple[str, ...]:
    return tuple(sorted({topic for topic, _, _ in mine ^ theirs}))


def _normalize(subscription: Subscription) -> tuple[str, str, frozenset[str]]:
    kind = (subscription.expression_type or ExpressionType.TAG).upper()
    if kind != ExpressionType.TAG:
        return subscription.topic, kind, frozenset({subscription.sub_string})
    tags = frozenset(filter(None, map(str.strip, subscription.sub_string.split("||"))))
    return subscription.topic, kind, _ALL_TAGS if not tags or "*" in tags else tags
