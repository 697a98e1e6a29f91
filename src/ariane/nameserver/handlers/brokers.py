"""Brokers come, show that they live, and go."""

import logging
from dataclasses import dataclass, field
from functools import partial

from ariane.clock import Clock
from ariane.errors import RequestFailed
from ariane.model.address import Address
from ariane.model.topic import DataVersion
from ariane.nameserver.key_values import ORDER_TOPIC_CONFIG, KeyValues
from ariane.nameserver.registration import RegisterResult, Registration
from ariane.nameserver.route_table import RouteTable
from ariane.nameserver.settings import NameserverSettings
from ariane.rpc.handlers import Call, handles
from ariane.transport.connection import Connection
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Answer
from ariane.wire.registration import decode_registration
from ariane.wire.requests.brokers import (
    AddedAnswer,
    AddWritePermission,
    BrokerHeartbeat,
    DataVersionAnswer,
    QueryDataVersion,
    RegisterAnswer,
    RegisterBroker,
    UnregisterBroker,
    WipedAnswer,
    WipeWritePermission,
)
from ariane.wire.requests.configs import KeyValueTable

log = logging.getLogger(__name__)

NAME_LENGTH_MAX = 255


@dataclass(frozen=True)
class BrokerHandlers:
    settings: NameserverSettings
    routes: RouteTable
    pairs: KeyValues
    clock: Clock
    watched: set[Connection] = field(default_factory=set)
    """Connections whose end means the end of the brokers that registered over them."""

    @handles(RegisterBroker)
    def register(self, ask: RegisterBroker, call: Call) -> RegisterAnswer:
        _check_names(ask)
        self._watch(call.connection)
        result = self.routes.register(self._registration(ask, call), self.clock.monotonic())
        _log_registration(ask, result)
        return RegisterAnswer(
            master_addr=result.master_address, ha_server_addr=result.ha_address, body=self._order_confs()
        )

    def _registration(self, ask: RegisterBroker, call: Call) -> Registration:
        body = decode_registration(ask, call.command.version)
        timeout_ms = ask.heartbeat_timeout_millis
        return Registration(
            cluster=ask.cluster_name,
            broker_name=ask.broker_name,
            broker_id=ask.broker_id,
            address=ask.broker_addr,
            ha_address=ask.ha_server_addr,
            connection=call.connection,
            data_version=body.data_version if body else DataVersion(),
            topics=body.topics if body else None,
            filter_servers=body.filter_servers if body else None,
            expiry_seconds=timeout_ms / 1000 if timeout_ms and timeout_ms > 0 else self.settings.broker_expiry_s,
        )

    def _order_confs(self) -> KeyValueTable | None:
        confs = self.pairs.namespace(ORDER_TOPIC_CONFIG) if self.settings.return_order_conf else None
        return KeyValueTable(table=dict(confs)) if confs else None

    def _watch(self, connection: Connection) -> None:
        if connection not in self.watched:
            self.watched.add(connection)
            connection.on_close(partial(self._lost, connection))

    def _lost(self, connection: Connection) -> None:
        self.watched.discard(connection)
        for broker in self.routes.drop_connection(connection):
            log.warning(
                "broker dropped: its connection closed",
                extra={"broker": broker.broker_name, "id": broker.broker_id, "address": broker.address},
            )

    @handles(UnregisterBroker)
    def unregister(self, ask: UnregisterBroker, call: Call) -> Answer:
        gone = self.routes.unregister(ask.cluster_name, ask.broker_name, ask.broker_id, ask.broker_addr)
        log.info("broker unregistered" if gone else "unknown broker unregistered", extra={"address": ask.broker_addr})
        return Answer()

    @handles(QueryDataVersion)
    def data_version(self, ask: QueryDataVersion, call: Call) -> DataVersionAnswer:
        changed = self.routes.is_changed(ask.broker_addr, ask.body or DataVersion())
        if not changed:
            self.routes.touch(ask.broker_addr, self.clock.monotonic())
        return DataVersionAnswer(changed=changed, body=self.routes.data_version(ask.broker_addr))

    @handles(BrokerHeartbeat)
    def heartbeat(self, ask: BrokerHeartbeat, call: Call) -> Answer:
        self.routes.touch(ask.broker_addr, self.clock.monotonic())
        return Answer()

    @handles(WipeWritePermission)
    def wipe_write_permission(self, ask: WipeWritePermission, call: Call) -> WipedAnswer:
        count = self.routes.wipe_write_permission(ask.broker_name)
        log.warning("write permission wiped", extra={"broker": ask.broker_name, "topics": count})
        return WipedAnswer(wipe_topic_count=count)

    @handles(AddWritePermission)
    def add_write_permission(self, ask: AddWritePermission, call: Call) -> AddedAnswer:
        count = self.routes.add_write_permission(ask.broker_name)
        log.warning("write permission added", extra={"broker": ask.broker_name, "topics": count})
        return AddedAnswer(add_topic_count=count)


def _check_names(ask: RegisterBroker) -> None:
    """Names that clients will print and an address that they will dial; a bad one is refused before it spreads."""
    for what, name in (("brokerName", ask.broker_name), ("clusterName", ask.cluster_name)):
        if not 0 < len(name) <= NAME_LENGTH_MAX or not name.isprintable():
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"{what} must be 1 to {NAME_LENGTH_MAX} printable characters, got {name[:80]!r}",
            )
    if ask.broker_id < 0:
        raise RequestFailed(ResponseCode.SYSTEM_ERROR, f"brokerId must be 0 (master) or more, got {ask.broker_id}")
    try:
        Address.parse(ask.broker_addr)
    except ValueError as error:
        raise RequestFailed(ResponseCode.SYSTEM_ERROR, f"brokerAddr: {error}") from error


def _log_registration(ask: RegisterBroker, result: RegisterResult) -> None:
    who = {"broker": ask.broker_name, "id": ask.broker_id, "address": ask.broker_addr, "cluster": ask.cluster_name}
    if result.is_first:
        log.info("broker registered", extra=who)
    for topic, reason in result.refused_topics.items():
        log.warning("topic not taken", extra=who | {"topic": topic, "reason": reason})
    for other in result.displaced:
        log.warning("broker displaced another", extra=who | {"displaced": other.address})
