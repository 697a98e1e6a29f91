"""Members of a group: connections merged from all brokers, their running info, and the stored offsets of the group."""

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
        return any(subscription.topic == topic for subscription in self.subscriptions)


async def members_of(requests: AdminRequests, group: str) -> GroupMembers:
    """Asks all brokers, because a member connects only to the brokers of its topics."""
    responses = await requests.fan_out(await requests.readers(), lambda broker: _connections(requests, broker, group))
    return _merged(group, responses.some(f"members of {group}"))


async def _connections(requests: AdminRequests, broker: Broker, group: str) -> ConsumerConnectionsResponse | None:
    call = requests.call(broker.address, GetConsumerConnections(group))
    return await absent_is_none(call, ResponseCode.CONSUMER_NOT_ONLINE)


def _merged(group: str, responses: PerBroker[ConsumerConnectionsResponse | None]) -> GroupMembers:
    bodies = {broker: response.body for broker, response in responses.responses.items() if response is not None}
    if not bodies:
        return GroupMembers(group=group, failures=responses.failures)
    first = next(iter(bodies.values()))
    subscriptions = {topic: value for body in bodies.values() for topic, value in body.subscription_table.items()}
    return GroupMembers(
        group=group,
        members=_members(bodies),
        subscriptions=tuple(subscriptions[topic] for topic in sorted(subscriptions)),
        consume_type=first.consume_type,
        message_model=first.message_model,
        consume_from_where=first.consume_from_where,
        failures=responses.failures,
    )


def _members(bodies: dict[Broker, ConsumerConnections]) -> tuple[Member, ...]:
    members: dict[str, Member] = {}
    for broker, body in bodies.items():
        for connection in body.connection_set:
            member = members.get(connection.client_id)
            brokers = (*(member.brokers if member is not None else ()), broker.name)
            members[connection.client_id] = Member(
                client_id=connection.client_id,
                address=connection.client_addr,
                language=connection.language,
                version=connection.version,
                brokers=tuple(dict.fromkeys(brokers)),
            )
    return tuple(members[client_id] for client_id in sorted(members))


# --- running info, requested from each member through a broker that it is connected to ---

_TIMEOUT_S = 12.0  # the broker waits 10 s for the member


async def running_infos(
    requests: AdminRequests, group: str, members: GroupMembers, *, stacks: bool = False
) -> PerServer[str, ConsumerRunningInfo]:
    """By client id; members that do not respond are among the failures."""
    by_id = {member.client_id: member for member in members.members}
    return await requests.fan_out(
        by_id, lambda client_id: running_info(requests, group, by_id[client_id], stacks=stacks)
    )


async def running_info(
    requests: AdminRequests, group: str, member: Member, *, stacks: bool = False
) -> ConsumerRunningInfo:
    for broker in await requests.readers():
        if broker.name in member.brokers:
            request = GetRunningInfo(group, member.client_id, stacks)
            return (await requests.call(broker.address, request, _TIMEOUT_S)).body
    raise ClientError(f"no broker that consumer {member.client_id} is connected to is known any more: try again")


async def stored_offsets_at(requests: AdminRequests, broker: Broker, group: str) -> dict[str, dict[int, int]]:
    """A group's offsets exactly as a broker stores them, by topic and queue id.

    For a single offset, brokers return 0 if there is none but the queue still begins at 0, so that new consumers lose
    nothing. Here the difference matters, so the broker's whole table is requested: the one that slaves replicate.
    """
    table = (await requests.call(broker.address, GetAllConsumerOffsets())).body.offset_table
    split = ((key.rpartition("@"), offsets) for key, offsets in table.items())
    return {topic: offsets for (topic, _, owner), offsets in split if owner == group}
