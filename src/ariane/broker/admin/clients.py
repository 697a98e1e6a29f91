"""Admin requests about connected clients, and requests that the broker forwards to one consumer."""

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ariane.broker.groups.members import Clients, ConsumerGroup, Member
from ariane.broker.settings import BrokerSettings
from ariane.clock import Clock
from ariane.errors import CallTimeout, RecordError, RequestFailed, TransportError
from ariane.lifecycle import Slices
from ariane.rpc.handlers import Call, Encoded, encoded_by_thread, handles
from ariane.store.blocking_io import run_in_executor
from ariane.store.message_store import MessageStore
from ariane.wire.codes import ResponseCode
from ariane.wire.exchange import request_command
from ariane.wire.fields import Request, Response
from ariane.wire.message_id import decode_offset_message_id
from ariane.wire.requests.clients import (
    ClientConnection,
    ConsumeDirectly,
    ConsumerConnections,
    ConsumerConnectionsResponse,
    GetAllProducers,
    GetConsumerConnections,
    GetProducerConnections,
    GetRunningInfo,
    ProducerConnections,
    ProducerConnectionsResponse,
    ProducerInfo,
    ProducersResponse,
    ProducerTable,
)

_TIMEOUT_S = 10.0
_CLIENT_VERSION_MIN = 62  # 3.1.8-SNAPSHOT: older clients support neither of the two requests


@dataclass(frozen=True)
class ConnectionHandlers:
    settings: BrokerSettings
    clients: Clients
    store: MessageStore
    clock: Clock

    # --- connected clients ------------------------------------------------------------------------------------------

    @handles(GetConsumerConnections)
    async def consumers(self, request: GetConsumerConnections, call: Call) -> Encoded:
        group = self._online_group(request.consumer_group)
        body = ConsumerConnections(
            connection_set=[_connection(member) for member in group.members.values()],
            subscription_table=group.subscriptions,
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        return await encoded_by_thread(ConsumerConnectionsResponse(), lambda: body)

    @handles(GetProducerConnections)
    async def producers(self, request: GetProducerConnections, call: Call) -> Encoded:
        members = self.clients.producers(request.producer_group)
        if not members:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, f"no producer of group {request.producer_group} is online")
        body = ProducerConnections(connection_set=list(map(_connection, members)))
        return await encoded_by_thread(ProducerConnectionsResponse(), lambda: body)

    @handles(GetAllProducers)
    async def all_producers(self, request: GetAllProducers, call: Call) -> Encoded:
        data: dict[str, list[ProducerInfo]] = {}
        async with Slices() as slices:
            for group in self.clients.producer_groups():
                data[group] = []
                for member in self.clients.producers(group):
                    data[group].append(self._info(member))
                    await slices.pause()
        return await encoded_by_thread(ProducersResponse(), lambda: ProducerTable(data=data))

    def _info(self, member: Member) -> ProducerInfo:
        idle_ms = round((self.clock.monotonic() - member.last_seen) * 1000)
        return ProducerInfo(
            client_id=member.client_id,
            remote_ip=member.connection.peer,
            language=member.language.name,
            version=member.version,
            last_update_timestamp=self.clock.now_ms() - idle_ms,
        )

    # --- requests to one consumer -----------------------------------------------------------------------------------

    @handles(GetRunningInfo)
    async def running_info(self, request: GetRunningInfo, call: Call) -> Encoded:
        return await self._forward(request, self._member(request.consumer_group, request.client_id))

    @handles(ConsumeDirectly)
    async def consume_directly(self, request: ConsumeDirectly, call: Call) -> Encoded:
        """The consumer gets the message as if it had pulled it, even if it has consumed it before."""
        member = self._member(request.consumer_group, request.client_id)
        body = await self._message(request.msg_id or "")
        return await self._forward(replace(request, broker_name=self.settings.name, body=body), member)

    async def _message(self, message_id: str) -> bytes:
        try:
            offset = decode_offset_message_id(message_id).physical_offset
        except RecordError as error:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, f"{error}; use the offset id of the message") from error
        record = await run_in_executor(self.store.lookup.record_at_steps(offset))
        if record is None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, f"message {message_id} is not on this broker")
        return bytes(record)

    def _member(self, group_name: str, client_id: str | None) -> Member:
        group = self._online_group(group_name, ResponseCode.SYSTEM_ERROR)
        member = group.find(client_id) if client_id else next(iter(group.members.values()))
        if member is None:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR, f"consumer {client_id} of group {group_name} is not online at this broker"
            )
        if member.version < _CLIENT_VERSION_MIN:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"consumer {member.client_id} does not support this request (version {member.version}, at least "
                f"{_CLIENT_VERSION_MIN} needed): upgrade it",
            )
        return member

    async def _forward(self, request: Request[Any], member: Member) -> Encoded:
        """The client's response, byte for byte: a newer client may send fields that this version does not know."""
        try:
            response = await member.connection.call(request_command(request, opaque=0), _TIMEOUT_S)
        except CallTimeout as error:
            raise RequestFailed(
                ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer {member.client_id} does not answer: {error}"
            ) from error
        except TransportError as error:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR, f"consumer {member.client_id} cannot be reached: {error}"
            ) from error
        return Encoded(Response(code=response.code, remark=response.remark), response.body)

    def _online_group(self, name: str, code: ResponseCode = ResponseCode.CONSUMER_NOT_ONLINE) -> ConsumerGroup:
        group = self.clients.group(name)
        if group is None:
            raise RequestFailed(code, f"the consumer group {name} is not online: no member is connected to this broker")
        return group


def _connection(member: Member) -> ClientConnection:
    return ClientConnection(
        client_id=member.client_id,
        client_addr=member.connection.peer,
        language=member.language.name,
        version=member.version,
    )
