"""Who is in a group: what each broker knows, put together."""

import msgspec

from ariane.client.admin.requests import AdminRequests, Broker, Failure, PerBroker, PerServer, absent_is_none
from ariane.errors import ClientError
from ariane.model.group import ConsumeFromWhere, ConsumeType, MessageModel, Subscription
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.clients import (
    ConsumerConnections,
    ConsumerConnectionsResponse,
    ConsumerRunningInfo,
    GetConsumerConnections,
    GetRunningInfo,
)
from ariane.wire.requests.offsets import GetAllConsumerOffsets


class Member(msgspec.Struct, frozen=True, kw_only=True):
    client_id: str
    address: str
    """As one of the brokers sees it."""
    language: str | None
    version: int
    brokers: tuple[str, ...]
    """The names of the brokers that it is connected to."""


class GroupMembers(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    members: tuple[Member, ...] = ()
    subscriptions: tuple[Subscription, ...] = ()
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    failures: tuple[Failure, ...] = ()
    """Brokers that may know more members."""

    @property
    def is_complete(self) -> bool:
        return not self.failures

    @property
    def is_online(self) -> bool:
        return bool(self.members)

    def subscribes_to(self, topic: str) -> bool:
        return any(one.topic == topic for one in self.subscriptions)


async def members_of(desk: AdminRequests, group: str) -> GroupMembers:
    """A member connects only to the brokers of its topics, so all are asked."""
    asked = await desk.gather(await desk.brokers(), lambda broker: _connections(desk, broker, group))
    return _joined(group, asked.some(f"members of {group}"))


async def _connections(desk: AdminRequests, broker: Broker, group: str) -> ConsumerConnectionsResponse | None:
    asked = desk.ask(broker.address, GetConsumerConnections(group))
    return await absent_is_none(asked, ResponseCode.CONSUMER_NOT_ONLINE)


def _joined(group: str, asked: PerBroker[ConsumerConnectionsResponse | None]) -> GroupMembers:
    told = {broker: response.body for broker, response in asked.responses.items() if response is not None}
    if not told:
        return GroupMembers(group=group, failures=asked.failures)
    any_one = next(iter(told.values()))
    subscriptions = {topic: one for body in told.values() for topic, one in body.subscription_table.items()}
    return GroupMembers(
        group=group,
        members=_members(told),
        subscriptions=tuple(subscriptions[topic] for topic in sorted(subscriptions)),
        consume_type=any_one.consume_type,
        message_model=any_one.message_model,
        consume_from_where=any_one.consume_from_where,
        failures=asked.failures,
    )


def _members(told: dict[Broker, ConsumerConnections]) -> tuple[Member, ...]:
    found: dict[str, Member] = {}
    for broker, body in told.items():
        for one in body.connection_set:
            known = found.get(one.client_id)
            brokers = (*(known.brokers if known is not None else ()), broker.name)
            found[one.client_id] = Member(
                client_id=one.client_id,
                address=one.client_addr,
                language=one.language,
                version=one.version,
                brokers=tuple(dict.fromkeys(brokers)),
            )
    return tuple(found[client_id] for client_id in sorted(found))


# --- running ---
#
# What the members of a group are doing right now: asked of each, through a broker that it is connected to.

_TIMEOUT_S = 12.0  # the broker gives the member 10


async def running_infos(
    desk: AdminRequests, group: str, members: GroupMembers, *, stacks: bool = False
) -> PerServer[str, ConsumerRunningInfo]:
    """By client id; members that do not answer are among the failures."""
    by_id = {one.client_id: one for one in members.members}
    return await desk.gather(by_id, lambda client_id: running_info(desk, group, by_id[client_id], stacks=stacks))


async def running_info(desk: AdminRequests, group: str, member: Member, *, stacks: bool = False) -> ConsumerRunningInfo:
    for broker in await desk.brokers():
        if broker.name in member.brokers:
            request = GetRunningInfo(group, member.client_id, stacks)
            return (await desk.ask(broker.address, request, _TIMEOUT_S)).body
    raise ClientError(f"no broker that consumer {member.client_id} is connected to is known any more: ask again")


# --- stored_offsets ---
#
# A group's offsets exactly as a broker stores them.
#
# Asked for a single offset, brokers answer 0 where there is none but the queue is young, so that new consumers lose
# nothing. Here the difference matters, so the broker's whole table is asked for: the one that slaves copy.


async def stored_offsets_at(desk: AdminRequests, broker: Broker, group: str) -> dict[str, dict[int, int]]:
    """By topic and queue id."""
    table = (await desk.ask(broker.address, GetAllConsumerOffsets())).body.offset_table
    split = ((key.rpartition("@"), offsets) for key, offsets in table.items())
    return {topic: offsets for (topic, _, owner), offsets in split if owner == group}
