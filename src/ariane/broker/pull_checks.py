"""May this group pull from this queue, and what does it want of it? Checks and codes in Apache's order."""

from ariane.broker.clients import Clients
from ariane.broker.filters import MessageFilter, filter_of, subscription_of
from ariane.broker.groups import Groups
from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.errors import ExpressionError, RequestFailed
from ariane.model.group import GroupConfig, MessageModel, Subscription
from ariane.model.topic import Permission
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

    def admit(self, ask: Pull) -> tuple[GroupConfig, MessageFilter]:
        """The group's settings and the filter to read with; RequestFailed says why not."""
        settings = self.settings
        if not settings.permission & _READ:
            raise _forbidden(f"broker {settings.name} may not be read (brokerPermission = {settings.permission})")
        group = self.groups.find(ask.consumer_group)
        if not group.consume_enable:
            raise _forbidden(f"group {group.group_name} may not consume (consumeEnable = false)")
        self._check_queue(ask)
        return group, self._filter(ask, group)

    def _check_queue(self, ask: Pull) -> None:
        config = self.topics.get(ask.topic)
        if config is None:
            raise RequestFailed(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic {ask.topic[:255]} does not exist on broker {self.settings.name}: create it first",
            )
        if not config.perm & _READ:
            raise _forbidden(f"topic {ask.topic} may not be read (perm = {config.perm}): give it perm 6")
        if not 0 <= ask.queue_id < config.read_queue_nums:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"queueId {ask.queue_id} of topic {ask.topic} is illegal: it has {config.read_queue_nums} read queues, "
                "counted from 0",
            )

    def _filter(self, ask: Pull, group: GroupConfig) -> MessageFilter:
        try:
            wanted = self._said_in(ask) if ask.sys_flag & _SUBSCRIPTION else self._heard_of(ask, group)
            return filter_of(wanted, property_filter=self.settings.property_filter)
        except ExpressionError as error:
            raise RequestFailed(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"the subscription of group {ask.consumer_group} to {ask.topic} cannot be read: {error}",
            ) from error

    def _said_in(self, ask: Pull) -> Subscription:
        """What a pull consumer says with each pull. C++ sends no type, Go an empty one: both mean TAG."""
        return subscription_of(ask.topic, ask.subscription, ask.expression_type or None, ask.sub_version)

    def _heard_of(self, ask: Pull, group: GroupConfig) -> Subscription:
        """What the group's heartbeats say. The request's own words do not count here: Go leaves them empty."""
        known = self.clients.group(ask.consumer_group)
        if known is None:
            raise _unsubscribed(f"group {ask.consumer_group} has no member here: it has sent no heartbeat yet")
        if known.message_model is MessageModel.BROADCASTING and not group.consume_broadcast_enable:
            raise _forbidden(f"group {ask.consumer_group} may not broadcast (consumeBroadcastEnable = false)")
        subscription = known.subscriptions.get(ask.topic)
        if subscription is None:
            raise _unsubscribed(f"group {ask.consumer_group} does not subscribe to {ask.topic}: its members must agree")
        if subscription.sub_version < ask.sub_version:
            raise RequestFailed(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"group {ask.consumer_group} subscribes to {ask.topic} anew: version {ask.sub_version} is pulled with, "
                f"{subscription.sub_version} was heard of; the next heartbeat brings it",
            )
        return subscription


def _forbidden(remark: str) -> RequestFailed:
    return RequestFailed(ResponseCode.NO_PERMISSION, remark)


def _unsubscribed(remark: str) -> RequestFailed:
    return RequestFailed(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
