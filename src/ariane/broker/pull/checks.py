"""May this group pull from this queue, and what does it want of it? Checks and codes in Apache's order."""

from typing import NamedTuple

from ariane.broker.groups.configs import Groups
from ariane.broker.groups.members import Clients
from ariane.broker.pull.filters import MATCH_ALL, MessageFilter, filter_of, subscription_of
from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.errors import ExpressionError, RequestFailed
from ariane.model.group import GroupConfig, MessageModel, Subscription
from ariane.model.topic import Permission, TopicConfig
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.pull import Pull, PullSysFlag

_READ = int(Permission.READ)
_SUBSCRIPTION = int(PullSysFlag.SUBSCRIPTION)


class PullChecks:
    def __init__(self, settings: BrokerSettings, topics: Topics, groups: Groups, clients: Clients) -> None:
        self.settings = settings
        self.topics = topics
        self.groups = groups
        self.clients = clients

    def admit(self, request: Pull) -> tuple[GroupConfig, MessageFilter]:
        """The group's settings and the filter to read with; RequestFailed says why not."""
        settings = self.settings
        if not settings.permission & _READ:
            raise _forbidden(f"broker {settings.name} may not be read (brokerPermission = {settings.permission})")
        group = self.groups.find(request.consumer_group)
        if not group.consume_enable:
            raise _forbidden(f"group {group.group_name} may not consume (consumeEnable = false)")
        self._check_queue(request)
        return group, self._filter(request, group)

    def _check_queue(self, request: Pull) -> None:
        config = self.topics.get(request.topic)
        if config is None:
            raise RequestFailed(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic {request.topic[:255]} does not exist on broker {self.settings.name}: create it first",
            )
        if not config.perm & _READ:
            raise _forbidden(f"topic {request.topic} may not be read (perm = {config.perm}): give it perm 6")
        if not 0 <= request.queue_id < config.read_queue_nums:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"queueId {request.queue_id} of topic {request.topic} is illegal: it has "
                f"{config.read_queue_nums} read queues, counted from 0",
            )

    def _filter(self, request: Pull, group: GroupConfig) -> MessageFilter:
        try:
            wanted = self._said_in(request) if request.sys_flag & _SUBSCRIPTION else self._heard_of(request, group)
            return filter_of(wanted, property_filter=self.settings.property_filter)
        except ExpressionError as error:
            raise RequestFailed(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"the subscription of group {request.consumer_group} to {request.topic} cannot be read: {error}",
            ) from error

    def _said_in(self, request: Pull) -> Subscription:
        """What a pull consumer says with each pull. C++ sends no type, Go an empty one: both mean TAG."""
        return subscription_of(
            request.topic, request.subscription, request.expression_type or None, request.sub_version
        )

    def _heard_of(self, request: Pull, group: GroupConfig) -> Subscription:
        """What the group's heartbeats say. The request's own words do not count here: Go leaves them empty."""
        known = self.clients.group(request.consumer_group)
        if known is None:
            raise _unsubscribed(f"group {request.consumer_group} has no member here: it has sent no heartbeat yet")
        if known.message_model is MessageModel.BROADCASTING and not group.consume_broadcast_enable:
            raise _forbidden(f"group {request.consumer_group} may not broadcast (consumeBroadcastEnable = false)")
        subscription = known.subscriptions.get(request.topic)
        if subscription is None:
            raise _unsubscribed(
                f"group {request.consumer_group} does not subscribe to {request.topic}: its members must agree"
            )
        if subscription.sub_version < request.sub_version:
            raise RequestFailed(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"group {request.consumer_group} subscribes to {request.topic} anew: version {request.sub_version} "
                f"is pulled with, {subscription.sub_version} was heard of; the next heartbeat brings it",
            )
        return subscription


def _forbidden(remark: str) -> RequestFailed:
    return RequestFailed(ResponseCode.NO_PERMISSION, remark)


def _unsubscribed(remark: str) -> RequestFailed:
    return RequestFailed(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)


# --- pull_admissions ---
#
# Checks of a pull that were passed before, and need not be made again while what they looked at is the same.
#
# A consumer sends the same pull over and over, but for two numbers. Each outcome is remembered together with the values
# that it rests on: the topic's configuration, the group's, and the subscription that heartbeats brought. These are
# never changed in place, so one look tells whether they still are what they were. Nobody has to tell that anything
# changed.

ADMISSIONS_MAX = 10_000
"""At so many all are forgotten. One takes up to 2 KiB: its key is a part of a header, which has up to 1.5."""

Heard = tuple[MessageModel | None, Subscription | None]
_NOTHING_HEARD: Heard = (None, None)

_Key = tuple[str, str, int, str | None, str | None, int]


class PullCheck(NamedTuple):
    topic: TopicConfig
    group: GroupConfig
    heard: Heard
    wants_all: bool


class PullCheckCache:
    def __init__(self, checks: PullChecks) -> None:
        self._checks = checks
        self._settings, self._topics = checks.settings, checks.topics
        self._groups, self._clients = checks.groups, checks.clients
        self._known: dict[_Key, PullCheck] = {}

    def find(self, request: Pull) -> GroupConfig | None:
        """The group's settings, if it may pull from this queue and wants all there is; None: the general way knows."""
        said = request.sys_flag & _SUBSCRIPTION
        key = (
            request.consumer_group,
            request.topic,
            said,
            request.subscription,
            request.expression_type,
            request.sub_version,
        )
        known = self._known.get(key)
        if known is None or not self._holds(request, known, said):
            known = self._admit(key, request)
            if known is None:
                return None
        is_open = self._settings.permission & _READ and 0 <= request.queue_id < known.topic.read_queue_nums
        return known.group if is_open and known.wants_all else None

    def _holds(self, request: Pull, known: PullCheck, said: int) -> bool:
        if (
            self._topics.get(request.topic) is not known.topic
            or self._groups.get(request.consumer_group) is not known.group
        ):
            return False
        if said:
            return True
        model, subscription = self._heard(request)
        return model is known.heard[0] and subscription is known.heard[1]

    def _heard(self, request: Pull) -> Heard:
        consumers = self._clients.group(request.consumer_group)
        if consumers is None:
            return _NOTHING_HEARD
        return consumers.message_model, consumers.subscriptions.get(request.topic)

    def _admit(self, key: _Key, request: Pull) -> PullCheck | None:
        self._known.pop(key, None)
        try:
            group, wanted = self._checks.admit(request)
        except RequestFailed:  # made again by the general way, which tells why
            return None
        topic = self._topics.get(request.topic)
        if topic is None:
            return None
        if len(self._known) >= ADMISSIONS_MAX:
            self._known.clear()
        heard = _NOTHING_HEARD if request.sys_flag & _SUBSCRIPTION else self._heard(request)
        known = self._known[key] = PullCheck(topic, group, heard, wanted is MATCH_ALL)
        return known
