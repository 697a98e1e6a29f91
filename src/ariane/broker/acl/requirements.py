"""What a request needs: which topics and groups an account must be allowed to use, or that it is an administrator's.

A group's retry topic `%RETRY%group` is the group: who may consume in a group may also read and write its retries. A
request that is not listed here is an administrator's: a new one is closed until somebody decides what it needs.

Apache checks fewer requests; `docs/decisions/access.md` has the difference and the reasons.
"""

from collections.abc import Callable, Iterator
from enum import IntFlag
from typing import Any, NamedTuple, TypeAlias

from ariane.model.ids import RETRY_PREFIX
from ariane.model.system_topics import TRACE
from ariane.wire.fields import Request
from ariane.wire.requests import acl, brokers, clients, groups, messages, offsets, pull, send, topics


class Permission(IntFlag):
    """Apache's words. ANY is only ever needed: it means one of the two."""

    DENY = 1
    ANY = 2
    PUB = 4
    SUB = 8


class Need(NamedTuple):
    name: str
    is_group: bool
    permission: Permission

    def __str__(self) -> str:
        return f"{'group' if self.is_group else 'topic'}:{self.name}"


Needs: TypeAlias = Iterator[Need]

PUB, SUB, ANY = Permission.PUB, Permission.SUB, Permission.ANY


def needs_of(ask: Request[Any]) -> Needs:
    """Nothing for a request that any account may make."""
    needs = _NEEDS.get(type(ask))
    return iter(()) if needs is None else needs(ask)


def needs_admin(request: type[Request[Any]]) -> bool:
    return request not in _NEEDS and request not in _ANY_ACCOUNT


def manages_accounts(request: type[Request[Any]]) -> bool:
    """Requests that a white list does not open: who may change it could let anybody in."""
    return request in _ACCOUNTS


def _topic(topic: str | None, permission: Permission) -> Needs:
    if topic and topic.startswith(RETRY_PREFIX):
        return _group(topic.removeprefix(RETRY_PREFIX))
    return iter((Need(topic, False, permission),) if topic else ())


def _group(group: str | None) -> Needs:
    return iter((Need(group, True, SUB),) if group else ())


def _send(ask: Any) -> Needs:
    """Traces are for all: whoever may send or consume at all reports it there, in the name of the client library."""
    return iter(()) if ask.topic == TRACE else _topic(ask.topic, PUB)


def _consume(ask: Any) -> Needs:
    yield from _topic(ask.topic, SUB)
    yield from _group(ask.consumer_group)


def _consume_as_administrator(ask: Any) -> Needs:
    yield from _topic(ask.topic, SUB)
    yield from _group(ask.group)


def _heartbeat(ask: clients.Heartbeat) -> Needs:
    for consumer in ask.body.consumer_data_set if ask.body else ():
        yield from _group(consumer.group_name)
        for subscription in consumer.subscription_data_set:
            yield from _topic(subscription.topic, SUB)


def _client_check(ask: clients.CheckClientConfig) -> Needs:
    if ask.body:
        yield from _group(ask.body.group)
        yield from _topic(ask.body.subscription_data.topic, SUB)


def _locks(ask: Any) -> Needs:
    if ask.body:
        yield from _group(ask.body.consumer_group)
        for queue in ask.body.mq_set:
            yield from _topic(queue.topic, SUB)


def _clone(ask: offsets.CloneGroupOffset) -> Needs:
    yield from _group(ask.src_group)
    yield from _group(ask.dest_group)
    yield from _topic(ask.topic, SUB)


def _topic_read(ask: Any) -> Needs:
    return _topic(ask.topic, SUB)


def _topic_known(ask: Any) -> Needs:
    return _topic(ask.topic, ANY)


def _consumer_group(ask: Any) -> Needs:
    return _group(ask.consumer_group)


def _send_back(ask: send.SendBack) -> Needs:
    return _group(ask.group)


_NEEDS: dict[type[Request[Any]], Callable[[Any], Needs]] = {
    send.SendMessage: _send,
    send.SendMessageV2: _send,
    send.SendBatch: _send,
    send.SendBack: _send_back,
    pull.PullMessage: _consume,
    pull.LitePull: _consume,
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

# Names and numbers, no messages. Transactions end by a place in the log, replies go back to who asked: neither names a
# topic of the account's.
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
