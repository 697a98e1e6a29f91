"""Brokers come, show that they live, and go."""

import logging
from dataclasses import dataclass, field
from functools import partial

from ariane.clock import Clock
from ariane.errors import RequestFailed
from ariane.model.address import Address
from ariane.model.topic import DataVersion, TopicSysFlag
from ariane.nameserver.key_values import ORDER_TOPIC_CONFIG, KeyValues
from ariane.nameserver.route_table import RegisterResult, Registration, RouteTable
from ariane.nameserver.settings import NameserverSettings
from ariane.rpc.handlers import Call, Encoded, handles
from ariane.settings import to_properties
from ariane.transport.connection import Connection
from ariane.wire.codes import ResponseCode, Version
from ariane.wire.fields import Answer
from ariane.wire.registration import decode_registration, encode_route
from ariane.wire.requests.brokers import (
    AddedAnswer,
    AddWritePermission,
    BrokerHeartbeat,
    DataVersionAnswer,
    DeleteKeyValue,
    GetKeyValue,
    GetNameserverSettings,
    KeyValueAnswer,
    KeyValueTable,
    KeyValueTableAnswer,
    ListKeyValues,
    PutKeyValue,
    QueryDataVersion,
    RegisterAnswer,
    RegisterBroker,
    SettingsAnswer,
    UnregisterBroker,
    WipedAnswer,
    WipeWritePermission,
)
from ariane.wire.requests.topics import (
    ClusterAnswer,
    DeleteTopicInNameserver,
    GetCluster,
    GetRoute,
    ListSystemTopics,
    ListTopics,
    ListTopicsByCluster,
    ListUnitSubscribedPlainTopics,
    ListUnitSubscribedTopics,
    ListUnitTopics,
    TopicList,
    TopicListAnswer,
)

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


# --- configs ---
#
# Key-value pairs, and settings for those who ask. No request changes a setting or names a file (CVE-2023-37582).


@dataclass(frozen=True)
class ConfigHandlers:
    settings: NameserverSettings
    pairs: KeyValues

    @handles(PutKeyValue)
    def put(self, ask: PutKeyValue, call: Call) -> Answer:
        self.pairs.put(ask.namespace, ask.key, ask.value)
        log.info("pair put", extra={"namespace": ask.namespace, "key": ask.key, "peer": call.connection.peer})
        return Answer()

    @handles(GetKeyValue)
    def get(self, ask: GetKeyValue, call: Call) -> KeyValueAnswer:
        value = self.pairs.get(ask.namespace, ask.key)
        if value is None:
            raise RequestFailed(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {ask.namespace} Key: {ask.key}"
            )
        return KeyValueAnswer(value=value)

    @handles(DeleteKeyValue)
    def delete(self, ask: DeleteKeyValue, call: Call) -> Answer:
        self.pairs.delete(ask.namespace, ask.key)
        log.info("pair deleted", extra={"namespace": ask.namespace, "key": ask.key, "peer": call.connection.peer})
        return Answer()

    @handles(ListKeyValues)
    def list_namespace(self, ask: ListKeyValues, call: Call) -> KeyValueTableAnswer:
        pairs = self.pairs.namespace(ask.namespace)
        if pairs is None:
            raise RequestFailed(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {ask.namespace}")
        return KeyValueTableAnswer(body=KeyValueTable(table=dict(pairs)))

    @handles(GetNameserverSettings)
    def show_settings(self, ask: GetNameserverSettings, call: Call) -> SettingsAnswer:
        lines = (f"{key}={value}\n" for key, value in sorted(to_properties(self.settings).items()))
        return SettingsAnswer(body="".join(lines))


# --- route_answers ---
#
# Route answers as bytes, encoded when a route changes and not when it is asked for.


@dataclass(frozen=True, slots=True)
class _Text:
    version: int
    order_conf: str | None
    data: bytes


class RouteAnswers:
    """One text per topic and JSON form that was asked for. At the limit all are dropped, those of lost topics too."""

    def __init__(self, routes: RouteTable, key_values: KeyValues, *, with_order_conf: bool, texts_max: int) -> None:
        self._routes = routes
        self._key_values = key_values
        self._with_order_conf = with_order_conf
        self._texts_max = texts_max
        self._texts: dict[tuple[str, bool], _Text] = {}

    def text(self, topic: str, *, standard: bool) -> bytes | None:
        """The JSON text of the topic's route, or None when there is none."""
        order_conf = self._key_values.get(ORDER_TOPIC_CONFIG, topic) if self._with_order_conf else None
        version = self._routes.route_version(topic)
        known = self._texts.get((topic, standard))
        if known is not None and known.version == version and known.order_conf == order_conf:
            return known.data
        return self._encode(topic, standard, version, order_conf)

    def _encode(self, topic: str, standard: bool, version: int, order_conf: str | None) -> bytes | None:
        route = self._routes.route(topic, order_conf)
        if route is None:
            self._texts.pop((topic, standard), None)
            return None
        if len(self._texts) >= self._texts_max:
            self._texts.clear()
        data = encode_route(route, standard=standard)
        self._texts[topic, standard] = _Text(version, order_conf, data)
        return data


# --- routes ---
#
# Where topics are: routes for clients, lists for administrators.

_FOUND = Answer()


@dataclass(frozen=True)
class RouteHandlers:
    routes: RouteTable
    answers: RouteAnswers

    @handles(GetRoute)
    def route(self, ask: GetRoute, call: Call) -> Encoded:
        standard = call.command.version >= Version.V4_9_4 or bool(ask.accept_standard_json_only)
        text = self.answers.text(ask.topic, standard=standard)
        if text is None:
            raise RequestFailed(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {ask.topic[:255]}. No live broker has registered "
                "it here: create the topic, or wait for its broker's next registration (30 s at most)",
            )
        return Encoded(_FOUND, text)

    @handles(GetCluster)
    def cluster(self, ask: GetCluster, call: Call) -> ClusterAnswer:
        return ClusterAnswer(body=self.routes.cluster_map())

    @handles(ListTopics)
    def topics(self, ask: ListTopics, call: Call) -> TopicListAnswer:
        return _names(self.routes.topics())

    @handles(ListTopicsByCluster)
    def topics_of_cluster(self, ask: ListTopicsByCluster, call: Call) -> TopicListAnswer:
        return _names(self.routes.topics_of_cluster(ask.cluster))

    @handles(ListSystemTopics)
    def system_topics(self, ask: ListSystemTopics, call: Call) -> TopicListAnswer:
        topics, broker = self.routes.system_topics()
        return TopicListAnswer(body=TopicList(topic_list=topics, broker_addr=broker))

    @handles(ListUnitTopics)
    def unit_topics(self, ask: ListUnitTopics, call: Call) -> TopicListAnswer:
        return _names(self.routes.flagged_topics(TopicSysFlag.UNIT))

    @handles(ListUnitSubscribedTopics)
    def unit_subscribed_topics(self, ask: ListUnitSubscribedTopics, call: Call) -> TopicListAnswer:
        return _names(self.routes.flagged_topics(TopicSysFlag.UNIT_SUBSCRIPTION))

    @handles(ListUnitSubscribedPlainTopics)
    def unit_subscribed_plain_topics(self, ask: ListUnitSubscribedPlainTopics, call: Call) -> TopicListAnswer:
        return _names(self.routes.flagged_topics(TopicSysFlag.UNIT_SUBSCRIPTION, lacks=TopicSysFlag.UNIT))

    @handles(DeleteTopicInNameserver)
    def delete_topic(self, ask: DeleteTopicInNameserver, call: Call) -> Answer:
        self.routes.delete_topic(ask.topic, ask.cluster_name)
        return Answer()


def _names(topics: list[str]) -> TopicListAnswer:
    return TopicListAnswer(body=TopicList(topic_list=topics))
