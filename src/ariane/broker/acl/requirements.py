"""The permissions that each request requires: on topics and groups, or the administrator role.

A permission on a group covers its retry topic `%RETRY%group`: an account that may consume in a group may also read and
write its retries. A request that is not listed here requires an administrator, so a new request type is closed until
its requirements are declared.

Apache checks fewer requests; `docs/decisions/access.md` has the differences and the reasons.
"""

from collections.abc import Callable, Iterator
from enum import IntFlag
from typing import Any, NamedTuple, TypeAlias

from ariane.model.ids import RETRY_PREFIX
from ariane.model.system_topics import TRACE
from ariane.wire import fast_frames
from ariane.wire.fields import Request
from ariane.wire.requests import acl, brokers, clients, groups, messages, offsets, pull, send, topics


class Permission(IntFlag):
    """Apache's names. ANY occurs only in requirements: either PUB or SUB is enough."""

    DENY = 1
    ANY = 2
    PUB = 4
    SUB = 8


class Requirement(NamedTuple):
    name: str
    is_group: bool
    permission: Permission

    def __str__(self) -> str:
        return f"{'group' if self.is_group else 'topic'}:{self.name}"


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


def _topic(topic: str | None, permission: Permission) -> Requirements:
    if topic and topic.startswith(RETRY_PREFIX):
        return _group(topic.removeprefix(RETRY_PREFIX))
    return iter((Requirement(topic, False, permission),) if topic else ())


def _group(group: str | None) -> Requirements:
    return iter((Requirement(group, True, SUB),) if group else ())


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
        for queue in request.body.mq_set:
            yield from _topic(queue.topic, SUB)


def _clone(request: offsets.CloneGroupOffset) -> Requirements:
    yield from _group(request.src_group)
    yield from _group(request.dest_group)
    yield from _topic(request.topic, SUB)


def _topic_read(request: Any) -> Requirements:
    return _topic(request.topic, SUB)


def _topic_known(request: Any) -> Requirements:
    return _topic(request.topic, ANY)


def _consumer_group(request: Any) -> Requirements:
    return _group(request.consumer_group)


def _send_back(request: send.SendBack) -> Requirements:
    return _group(request.group)


_REQUIREMENTS: dict[type[Request[Any]], Callable[[Any], Requirements]] = {
    send.SendMessage: _send,
    send.SendMessageV2: _send,
    send.SendBatch: _send,
    fast_frames.SendFields: _send,
    send.SendBack: _send_back,
    pull.PullMessage: _consume,
    pull.LitePull: _consume,
    fast_frames.PullFields: _consume,
    messages.QueryMessages: _topic_read,
    messages.QueryConsumeQueue: _topic_read,
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
}

# Names and numbers, no messages. EndTransaction names a commit log offset and a reply returns to the requester: neither
# names a topic that a permission could be checked on.
_ANY_ACCOUNT: frozenset[type[Request[Any]]] = frozenset(
    {
        send.SendReply,
        send.SendReplyV2,
        send.EndTransaction,
        brokers.GetBrokerSettings,
        clients.GetAllProducers,
        clients.GetConsumerConnections,
        clients.GetProducerConnections,
        groups.GetBrokerConsumeStats,
        groups.GetConsumeStats,
        groups.GetConsumeTimeSpans,
        groups.GetGroupConfig,
        groups.GetGroupTable,
        groups.ListGroupsOfTopic,
        offsets.GetAllConsumerOffsets,
        offsets.GetAllDelayOffsets,
        offsets.GetCorrectionOffsets,
        brokers.GetBrokerStats,
        brokers.GetRuntimeInfo,
        topics.GetTopicConfig,
        topics.GetTopicStats,
        topics.GetTopicTable,
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
