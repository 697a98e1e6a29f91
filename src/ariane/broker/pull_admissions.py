"""Checks of a pull that were passed before, and need not be made again while what they looked at is the same.

A consumer sends the same pull over and over, but for two numbers. Each outcome is remembered together with the values
that it rests on: the topic's configuration, the group's, and the subscription that heartbeats brought. These are never
changed in place, so one look tells whether they still are what they were. Nobody has to tell that anything changed.
"""

from typing import NamedTuple

from ariane.broker.filters import MATCH_ALL
from ariane.broker.pull_checks import PullChecks
from ariane.errors import RequestFailed
from ariane.model.group import GroupConfig, MessageModel, Subscription
from ariane.model.topic import Permission, TopicConfig
from ariane.wire.requests.pull import Pull, PullSysFlag

ADMISSIONS_MAX = 10_000
"""At so many all are forgotten. One takes up to 2 KiB: its key is a part of a header, which has up to 1.5."""

_READ = int(Permission.READ)
_SUBSCRIPTION = int(PullSysFlag.SUBSCRIPTION)

Heard = tuple[MessageModel | None, Subscription | None]
_NOTHING_HEARD: Heard = (None, None)

_Key = tuple[str, str, int, str | None, str | None, int]


class Admission(NamedTuple):
    topic: TopicConfig
    group: GroupConfig
    heard: Heard
    wants_all: bool


class Admissions:
    def __init__(self, checks: PullChecks) -> None:
        self._checks = checks
        self._settings, self._topics = checks.settings, checks.topics
        self._groups, self._clients = checks.groups, checks.clients
        self._known: dict[_Key, Admission] = {}

    def find(self, ask: Pull) -> GroupConfig | None:
        """The group's settings, if it may pull from this queue and wants all there is; None: the general way knows."""
        said = ask.sys_flag & _SUBSCRIPTION
        key = (ask.consumer_group, ask.topic, said, ask.subscription, ask.expression_type, ask.sub_version)
        known = self._known.get(key)
        if known is None or not self._holds(ask, known, said):
            known = self._admit(key, ask)
            if known is None:
                return None
        is_open = self._settings.permission & _READ and 0 <= ask.queue_id < known.topic.read_queue_nums
        return known.group if is_open and known.wants_all else None

    def _holds(self, ask: Pull, known: Admission, said: int) -> bool:
        if self._topics.get(ask.topic) is not known.topic or self._groups.get(ask.consumer_group) is not known.group:
            return False
        if said:
            return True
        model, subscription = self._heard(ask)
        return model is known.heard[0] and subscription is known.heard[1]

    def _heard(self, ask: Pull) -> Heard:
        consumers = self._clients.group(ask.consumer_group)
        if consumers is None:
            return _NOTHING_HEARD
        return consumers.message_model, consumers.subscriptions.get(ask.topic)

    def _admit(self, key: _Key, ask: Pull) -> Admission | None:
        self._known.pop(key, None)
        try:
            group, wanted = self._checks.admit(ask)
        except RequestFailed:  # made again by the general way, which tells why
            return None
        topic = self._topics.get(ask.topic)
        if topic is None:
            return None
        if len(self._known) >= ADMISSIONS_MAX:
            self._known.clear()
        heard = _NOTHING_HEARD if ask.sys_flag & _SUBSCRIPTION else self._heard(ask)
        known = self._known[key] = Admission(topic, group, heard, wanted is MATCH_ALL)
        return known
