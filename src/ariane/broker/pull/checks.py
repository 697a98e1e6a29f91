"""Validation of pulls: may this group read this queue, and with which filter? Checks and codes in Apache's order.

A consumer sends the same pull over and over, but for two numbers. `PullCheckCache` keeps each result together with the
values that it depends on: the topic's configuration, the group's, and the subscription of the last heartbeat. These are
immutable, so an identity check detects changes; no explicit invalidation is needed.
"""

from typing import NamedTuple

from ariane.broker.groups.configs import Groups
from ariane.broker.groups.members import Clients
from ariane.broker.pull.filters import MATCH_ALL, MessageFilter, filter_of, subscription_of
from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.errors import ExpressionError, RequestFailed
from ariane.model.group import GroupConfig, MessageModel, Subscription
from ariane.model.topic import Permission, TopicConfig
from ariane.transport.connection import Connection
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

    def admit(self, request: Pull, connection: Connection) -> tuple[GroupConfig, MessageFilter]:
        """The group's settings and the filter to read with; RequestFailed says why not."""
        settings = self.settings
        if not settings.permission & _READ:
            raise _forbidden(f"broker {settings.name} may not be read (brokerPermission = {settings.permission})")
        group = self.groups.find(request.consumer_group, connection)
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
            subscribed = request.sys_flag & _SUBSCRIPTION
            subscription = self._own_subscription(request) if subscribed else self._group_subscription(request, group)
            return filter_of(subscription, property_filter=self.settings.property_filter)
        except ExpressionError as error:
            raise RequestFailed(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"the subscription of group {request.consumer_group} to {request.topic} cannot be read: {error}",
            ) from error

    def _own_subscription(self, request: Pull) -> Subscription:
        """The one that a pull consumer sends with each pull. C++ sends no type, Go an empty one: both mean TAG."""
        return subscription_of(
            request.topic, request.subscription, request.expression_type or None, request.sub_version
        )

    def _group_subscription(self, request: Pull, group: GroupConfig) -> Subscription:
        """The one of the group's heartbeats. That of the request does not count here: Go leaves it empty."""
        members = self.clients.group(request.consumer_group)
        if members is None:
            raise _unsubscribed(f"group {request.consumer_group} has no member here: it has sent no heartbeat yet")
        if members.message_model is MessageModel.BROADCASTING and not group.consume_broadcast_enable:
            raise _forbidden(f"group {request.consumer_group} may not broadcast (consumeBroadcastEnable = false)")
        subscription = members.subscriptions.get(request.topic)
        if subscription is None:
            raise _unsubscribed(
                f"group {request.consumer_group} does not subscribe to {request.topic}: its members must agree"
            )
        if subscription.sub_version < request.sub_version:
            raise RequestFailed(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"group {request.consumer_group} subscribes to {request.topic} anew: version {request.sub_version} "
                f"is requested, {subscription.sub_version} came with the last heartbeat; the next one brings it",
            )
        return subscription


def _forbidden(remark: str) -> RequestFailed:
    return RequestFailed(ResponseCode.NO_PERMISSION, remark)


def _unsubscribed(remark: str) -> RequestFailed:
    return RequestFailed(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)


# --- cached checks ----------------------------------------------------------------------------------------------------

CACHED_CHECKS_MAX = 10_000
"""At so many all are dropped. One takes up to 2 KiB: its key is a part of a header, which has up to 1.5."""

Heartbeat = tuple[MessageModel | None, Subscription | None]
"""What a group's last heartbeat said of the topic."""
_NO_HEARTBEAT: Heartbeat = (None, None)

_Key = tuple[str, str, int, str | None, str | None, int]


class PullCheck(NamedTuple):
    topic: TopicConfig
    group: GroupConfig
    heartbeat: Heartbeat
    matches_all: bool


class PullCheckCache:
    def __init__(self, checks: PullChecks) -> None:
        self._checks = checks
        self._settings, self._topics = checks.settings, checks.topics
        self._groups, self._clients = checks.groups, checks.clients
        self._cached: dict[_Key, PullCheck] = {}

    def find(self, request: Pull, connection: Connection) -> GroupConfig | None:
        """The group's settings, if it may pull from this queue without a filter; None: the general path decides."""
        is_own = request.sys_flag & _SUBSCRIPTION
        key = (
            request.consumer_group,
            request.topic,
            is_own,
            request.subscription,
            request.expression_type,
            request.sub_version,
        )
        check = self._cached.get(key)
        if check is None or not self._holds(request, check, is_own):
            check = self._admit(key, request, connection)
            if check is None:
                return None
        is_open = self._settings.permission & _READ and 0 <= request.queue_id < check.topic.read_queue_nums
        return check.group if is_open and check.matches_all else None

    def _holds(self, request: Pull, check: PullCheck, is_own: int) -> bool:
        if (
            self._topics.get(request.topic) is not check.topic
            or self._groups.get(request.consumer_group) is not check.group
        ):
            return False
        if is_own:
            return True
        model, subscription = self._heartbeat(request)
        return model is check.heartbeat[0] and subscription is check.heartbeat[1]

    def _heartbeat(self, request: Pull) -> Heartbeat:
        consumers = self._clients.group(request.consumer_group)
        if consumers is None:
            return _NO_HEARTBEAT
        return consumers.message_model, consumers.subscriptions.get(request.topic)

    def _admit(self, key: _Key, request: Pull, connection: Connection) -> PullCheck | None:
        self._cached.pop(key, None)
        try:
            group, message_filter = self._checks.admit(request, connection)
        except RequestFailed:  # repeated by the general path, which reports why
            return None
        topic = self._topics.get(request.topic)
        if topic is None:
            return None
        if len(self._cached) >= CACHED_CHECKS_MAX:
            self._cached.clear()
        heartbeat = _NO_HEARTBEAT if request.sys_flag & _SUBSCRIPTION else self._heartbeat(request)
        check = self._cached[key] = PullCheck(topic, group, heartbeat, message_filter is MATCH_ALL)
        return check
