"""The permissions that each request requires: on topics and groups, or the administrator role.

A permission on a group covers its topics `%RETRY%group` and `%DLQ%group`: an account that may consume in a group may
also read and write its retries and dead letters. The default permissions of an account do not cover system topics and
groups, because the broker keeps messages of all tenants there: an administrator reads them, or an account that lists
them by name. A request that is not listed here requires an administrator, so a new request type is closed until its
requirements are declared.

Where the fields of a request do not name what it touches, or where it lists what there is, any account may send it and
its handler checks or filters (rights.py).

Apache checks fewer requests; `docs/decisions/access.md` has the differences and the reasons.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from ariane.acl.rules import Permission, Requirement
from ariane.model.ids import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ariane.model.system_topics import TRACE
from ariane.wire.fast.fields import PullFields, SendFields
from ariane.wire.fields import Request
from ariane.wire.requests import acl, brokers, clients, groups, messages, offsets, pull, send, topics

Requirements: TypeAlias = Iterator[Requirement]

PUB, SUB, ANY = Permission.PUB, Permission.SUB, Permission.ANY


def requirements_of(request: Request[Any]) -> Requirements:
    """Empty for a request that any account may send."""
    find = _REQUIREMENTS.get(type(request))
    return iter(()) if find is None else find(request)


def requires_admin(request: type[Request[Any]]) -> bool:
    return request not in _REQUIREMENTS and request not in _ANY_ACCOUNT


def manages_accounts(request: type[Request[Any]]) -> bool:
    """Whether the request manages accounts. A white-listed address is not enough: these change the white list."""
    return request in _ACCOUNTS


def on_topic(topic: str, permission: Permission) -> Requirement:
    """The right on a topic, or on the group that the topic belongs to."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if topic.startswith(prefix):
            return on_group(topic.removeprefix(prefix))
    return Requirement(topic, False, permission)


def on_group(group: str) -> Requirement:
    return Requirement(group, True, SUB)


def _topic(topic: str | None, permission: Permission) -> Requirements:
    return iter((on_topic(topic, permission),) if topic else ())


def _group(group: str | None) -> Requirements:
    return iter((on_group(group),) if group else ())


def _send(request: Any) -> Requirements:
    """Every account may send traces: client libraries send them on behalf of any producer or consumer."""
    return iter(()) if request.topic == TRACE else _topic(request.topic, PUB)


def _consume(request: Any) -> Requirements:
    yield from _topic(request.topic, SUB)
    yield from _group(request.consumer_group)


def _consume_as_administrator(request: Any) -> Requirements:
    yield from _topic(request.topic, SUB)
    yield from _group(request.group)


def _heartbeat(request: clients.Heartbeat) -> Requirements:
    for consumer in request.body.consumer_data_set if request.body else ():
        yield from _group(consumer.group_name)
        for subscription in consumer.subscription_data_set:
            yield from _topic(subscription.topic, SUB)


def _client_check(request: clients.CheckClientConfig) -> Requirements:
    if request.body:
        yield from _group(request.body.group)
        yield from _topic(request.body.subscription_data.topic, SUB)


def _locks(request: Any) -> Requirements:
    if request.body:
        yield from _group(request.body.consumer_group)
        for topic in {queue.topic for queue in request.body.mq_set}:
            yield from _topic(topic, SUB)


def _clone(request: offsets.CloneGroupOffset) -> Requirements:
    yield from _group(request.src_group)
    yield from _group(request.dest_group)
    yield from _topic(request.topic, SUB)


def _topic_read(request: Any) -> Requirements:
    return _topic(request.topic, SUB)


def _progress(request: groups.GetConsumeStats) -> Requirements:
    yield from _topic(request.topic, ANY)
    yield from _group(request.consumer_group)


def _time_spans(request: groups.GetConsumeTimeSpans) -> Requirements:
    yield from _topic(request.topic, ANY)
    yield from _group(request.group)


def _correction(request: offsets.GetCorrectionOffsets) -> Requirements:
    yield from _topic(request.topic, SUB)
    yield from _group(request.compare_group)


def _statistic(request: brokers.GetBrokerStats) -> Requirements:
    """Keys are a topic, or topic@group; statistics of the whole broker have its cluster's name."""
    if request.stats_name.startswith("BROKER_"):
        return
    topic, _, group = request.stats_key.partition("@")
    yield from _topic(topic, ANY)
    yield from _group(group)


def _topic_known(request: Any) -> Requirements:
    return _topic(request.topic, ANY)


def _consumer_group(request: Any) -> Requirements:
    return _group(request.consumer_group)


def _named_group(request: Any) -> Requirements:
    return _group(request.group)


_REQUIREMENTS: dict[type[Request[Any]], Callable[[Any], Requirements]] = {
    send.SendMessage: _send,
    send.SendMessageV2: _send,
    send.SendBatch: _send,
    SendFields: _send,
    send.SendBack: _named_group,  # and SUB on the message's own topic: groups/retries.py
    pull.PullMessage: _consume,
    pull.LitePull: _consume,
    PullFields: _consume,
    messages.QueryMessages: _topic_read,
    messages.QueryConsumeQueue: _consume,
    clients.Heartbeat: _heartbeat,
    clients.UnregisterClient: _consumer_group,
    clients.GetConsumerIds: _consumer_group,
    clients.CheckClientConfig: _client_check,
    clients.LockQueues: _locks,
    clients.UnlockQueues: _locks,
    clients.GetRunningInfo: _consumer_group,
    offsets.GetConsumerOffset: _consume,
    offsets.UpdateConsumerOffset: _consume,
    offsets.CloneGroupOffset: _clone,
    offsets.SearchOffset: _topic_known,
    offsets.GetMaxOffset: _topic_known,
    offsets.GetMinOffset: _topic_known,
    offsets.GetEarliestStoreTime: _topic_known,
    offsets.ResetOffsets: _consume_as_administrator,
    offsets.GetConsumerStatus: _consume_as_administrator,
    offsets.GetCorrectionOffsets: _correction,
    clients.GetConsumerConnections: _consumer_group,
    groups.GetConsumeStats: _progress,
    groups.GetConsumeTimeSpans: _time_spans,
    groups.GetGroupConfig: _named_group,
    groups.ListGroupsOfTopic: _topic_known,  # shows the groups that the account may see
    brokers.GetBrokerStats: _statistic,
    topics.GetTopicConfig: _topic_known,
    topics.GetTopicStats: _topic_known,
}

_ANY_ACCOUNT: frozenset[type[Request[Any]]] = frozenset(
    {
        # What they touch is known to the handler alone, which checks it.
        messages.ViewMessage,  # SUB on the message's own topic: admin/messages.py
        send.EndTransaction,  # PUB on the half message's own topic: transactions/outcomes.py
        send.SendReply,  # PUB on the topic, unless it is the broker's own for replies: send/reply.py
        send.SendReplyV2,
        # Lists of what the account may see.
        groups.GetBrokerConsumeStats,
        groups.GetGroupTable,
        offsets.GetAllConsumerOffsets,
        topics.GetTopicTable,
        # The same for everybody: the names of system topics, and figures of the whole broker.
        brokers.GetRuntimeInfo,
        topics.ListSystemTopicsInBroker,
    }
)

_ACCOUNTS: frozenset[type[Request[Any]]] = frozenset(
    {
        acl.UpdateAccount,
        acl.DeleteAccount,
        acl.GetAccessVersion,
        acl.UpdateGlobalWhiteList,
        acl.GetAccessRules,
    }
)
