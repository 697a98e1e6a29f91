"""Handlers of client requests: heartbeat, unregister, list group members, and validate a subscription."""

from dataclasses import dataclass

from ariane.broker.groups.configs import Groups
from ariane.broker.groups.members import Clients
from ariane.broker.pull.filters import filter_of
from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.clock import Clock
from ariane.errors import ExpressionError, RequestFailed
from ariane.model.ids import RETRY_PREFIX
from ariane.model.topic import TopicSysFlag
from ariane.rpc.handlers import Call, handles
from ariane.transport.connection import Connection
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Response
from ariane.wire.requests.clients import (
    CheckClientConfig,
    ConsumerData,
    ConsumerIds,
    ConsumerIdsResponse,
    GetConsumerIds,
    Heartbeat,
    UnregisterClient,
    UnregisterClientResponse,
)

_HEARTBEAT_BYTES_MAX = 1024 * 1024  # its contents stay in memory while the client is connected


@dataclass(frozen=True)
class ClientHandlers:
    settings: BrokerSettings
    clients: Clients
    groups: Groups
    topics: Topics
    clock: Clock

    @handles(Heartbeat)
    def heartbeat(self, request: Heartbeat, call: Call) -> Response:
        if request.body is None:
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, "the heartbeat has no body with a client")
        if len(call.command.body) > _HEARTBEAT_BYTES_MAX:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"a heartbeat of {len(call.command.body)} bytes is too large, the limit is {_HEARTBEAT_BYTES_MAX}",
            )
        command = call.command
        self.clients.heartbeat(
            call.connection, request.body, command.language_code, command.version, self.clock.monotonic()
        )
        for consumer in request.body.consumer_data_set:
            self._prepare(consumer, call.connection)
        return Response()

    def _prepare(self, consumer: ConsumerData, connection: Connection) -> None:
        """Creates the group and its retry topic, before the first message fails."""
        try:
            config = self.groups.find(consumer.group_name, connection)
        except RequestFailed as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            return  # the pull request reports this error; clients do not show errors of heartbeats to users
        if config.retry_queue_nums > 0:
            flag = TopicSysFlag.UNIT if consumer.unit_mode else TopicSysFlag(0)
            topic = RETRY_PREFIX + consumer.group_name
            self.topics.ensure(topic, config.retry_queue_nums, sys_flag=int(flag))

    @handles(UnregisterClient)
    def unregister(self, request: UnregisterClient, call: Call) -> UnregisterClientResponse:
        self.clients.unregister(call.connection, request.producer_group, request.consumer_group)
        return UnregisterClientResponse()

    @handles(GetConsumerIds)
    def consumer_ids(self, request: GetConsumerIds, call: Call) -> ConsumerIdsResponse:
        group = self.clients.group(request.consumer_group)
        if group is None:  # clients expect this code and retry
            raise RequestFailed(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {request.consumer_group}")
        return ConsumerIdsResponse(body=ConsumerIds(consumer_id_list=group.client_ids()))

    @handles(CheckClientConfig)
    def check(self, request: CheckClientConfig, call: Call) -> Response:
        if request.body is not None:
            try:
                filter_of(request.body.subscription_data, property_filter=self.settings.property_filter)
            except ExpressionError as error:
                raise RequestFailed(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
        return Response()
