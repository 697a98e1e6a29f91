"""Who is in a group: what each broker knows, put together."""

import msgspec

from ariane.client.admin.desk import Desk, absent_is_none
from ariane.client.admin.servers import Broker, Failure, PerBroker
from ariane.model.group import ConsumeFromWhere, ConsumeType, MessageModel, Subscription
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.connections import ConsumerConnections, ConsumerConnectionsAnswer, GetConsumerConnections


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


async def members_of(desk: Desk, group: str) -> GroupMembers:
    """A member connects only to the brokers of its topics, so all are asked."""
    asked = await desk.gather(await desk.brokers(), lambda broker: _connections(desk, broker, group))
    return _joined(group, asked.some(f"members of {group}"))


async def _connections(desk: Desk, broker: Broker, group: str) -> ConsumerConnectionsAnswer | None:
    asked = desk.ask(broker.address, GetConsumerConnections(group))
    return await absent_is_none(asked, ResponseCode.CONSUMER_NOT_ONLINE)


def _joined(group: str, asked: PerBroker[ConsumerConnectionsAnswer | None]) -> GroupMembers:
    told = {broker: answer.body for broker, answer in asked.answers.items() if answer is not None}
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
