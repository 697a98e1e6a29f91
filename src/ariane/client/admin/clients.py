"""Connected producers and consumers, and what a consumer says when it is asked."""

from ariane.client.admin.desk import Desk, absent_is_none
from ariane.client.admin.members import members_of
from ariane.client.admin.running import running_info, running_infos
from ariane.client.admin.servers import Broker, PerBroker, PerServer
from ariane.errors import ClientError
from ariane.model.route import MessageQueue
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.connections import (
    ClientConnection,
    ConsumerRunningInfo,
    GetAllProducers,
    GetProducerConnections,
    ProducerInfo,
)
from ariane.wire.requests.resets import GetConsumerStatus

_TIMEOUT_S = 12.0  # the broker gives the members some seconds of their own


class ClientAdmin:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def producers(self, group: str, *, topic: str | None = None) -> PerBroker[list[ClientConnection]]:
        """Who is connected as a producer of `group`: to the brokers of `topic`, or to any."""
        brokers = await (self._desk.brokers() if topic is None else self._desk.of_topic(topic))
        answers = await self._desk.gather(brokers, lambda one: self._producers(one, group))
        return answers.some(f"producers of {group}")

    async def all_producers(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> PerBroker[dict[str, list[ProducerInfo]]]:
        """Every producer by group, as each broker knows them."""
        brokers = await self._desk.brokers(cluster=cluster, broker=broker)
        answers = (await self._desk.each(brokers, GetAllProducers())).some("reading producers")
        return answers.mapped(lambda answer: answer.body.data)

    async def running_info(self, group: str, client_id: str, *, stacks: bool = False) -> ConsumerRunningInfo:
        """What one member says of itself: its subscriptions, its queues, what it holds. `stacks`: its threads, too."""
        for member in (await members_of(self._desk, group)).members:
            if member.client_id == client_id:
                return await running_info(self._desk, group, member, stacks=stacks)
        raise ClientError(f"group {group} has no member {client_id} online: see groups.members()")

    async def running_infos(self, group: str, *, stacks: bool = False) -> PerServer[str, ConsumerRunningInfo]:
        """The same of every member, by client id."""
        members = await members_of(self._desk, group)
        return await running_infos(self._desk, group, members, stacks=stacks)

    async def positions(
        self, group: str, topic: str, *, client_id: str | None = None
    ) -> dict[str, dict[MessageQueue, int]]:
        """Where each member is in its queues, by client id: ahead of what the brokers have stored."""
        ask = GetConsumerStatus(topic, group, client_id)
        answers = await self._desk.gather(
            await self._desk.of_topic(topic), lambda one: self._desk.ask(one.address, ask, _TIMEOUT_S)
        )
        found: dict[str, dict[MessageQueue, int]] = {}
        for answer in answers.some(f"positions of {group}").answers.values():
            for member, table in answer.body.consumer_table.items():
                found.setdefault(member, {}).update(table)
        return found

    async def _producers(self, broker: Broker, group: str) -> list[ClientConnection]:
        """Brokers say SYSTEM_ERROR when they know none."""
        asked = self._desk.ask(broker.address, GetProducerConnections(group))
        answer = await absent_is_none(asked, ResponseCode.SYSTEM_ERROR)
        return [] if answer is None else answer.body.connection_set
