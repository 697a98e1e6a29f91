"""Request handlers of the nameserver.

    BrokerHandlers   registration, heartbeats and unregistration of brokers, write permissions
    ConfigHandlers   key-value pairs, and reading the settings; no request changes a setting or names a file
                     (CVE-2023-37582)
    RouteHandlers    topic routes for clients, lists of topics and brokers for administrators

Routes are by far the most frequent request. `RouteResponses` caches their JSON: a route is encoded again when it has
changed, not when it is requested.
"""

import logging
from dataclasses import dataclass, field
from functools import partial

from ariane.acl.accounts import permission_denied
from ariane.acl.rules import host_of
from ariane.clock import Clock
from ariane.errors import RequestFailed
from ariane.model.address import Address
from ariane.model.topic import DataVersion, TopicSysFlag
from ariane.nameserver.access import NameserverAccess
from ariane.nameserver.key_values import ORDER_TOPIC_CONFIG, KeyValues
from ariane.nameserver.route_table import LiveBroker, RegisterResult, Registration, RouteTable
from ariane.nameserver.settings import NameserverSettings
from ariane.rpc.handlers import Call, Encoded, handles
from ariane.settings import to_properties
from ariane.transport.connection import Connection
from ariane.wire.codes import ResponseCode, Version
from ariane.wire.fields import Response
from ariane.wire.registration import decode_registration, encode_route
from ariane.wire.requests.brokers import (
    AddedResponse,
    AddWritePermission,
    BrokerHeartbeat,
    DataVersionResponse,
    DeleteKeyValue,
    GetKeyValue,
    GetNameserverSettings,
    KeyValueResponse,
    KeyValueTable,
    KeyValueTableResponse,
    ListKeyValues,
    PutKeyValue,
    QueryDataVersion,
    RegisterBroker,
    RegisterResponse,
    SettingsResponse,
    UnregisterBroker,
    WipedResponse,
    WipeWritePermission,
)
from ariane.wire.requests.topics import (
    ClusterResponse,
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
    TopicListResponse,
)

log = logging.getLogger(__name__)

NAME_LENGTH_MAX = 255


@dataclass(frozen=True)
class BrokerHandlers:
    settings: NameserverSettings
    routes: RouteTable
    pairs: KeyValues
    clock: Clock
    access: NameserverAccess | None = None
    watched: set[Connection] = field(default_factory=set)
    """Connections over which brokers have registered: when one closes, its brokers are dropped."""

    @handles(RegisterBroker)
    def register(self, request: RegisterBroker, call: Call) -> RegisterResponse:
        _check_names(request)
        registration, now = self._registration(request, call), self.clock.monotonic()
        for holder in self.routes.holders(registration, now):
            self._check_place(holder, request.broker_name, request.broker_addr, call)
        self._watch(call.connection)
        result = self.routes.register(registration, now)
        _log_registration(request, result)
        return RegisterResponse(
            master_addr=result.master_address, ha_server_addr=result.ha_address, body=self._order_confs()
        )

    def _check_place(self, holder: LiveBroker, broker_name: str, address: str, call: Call) -> None:
        """With access control: RequestFailed unless the request may end the registration of this live broker.

        A broker that connects again from the same host, with the same account, is itself: the old connection is not
        known to be dead yet.
        """
        if self.access is None or self.access.owns(call, holder.broker_name):
            return
        assert isinstance(holder.connection, Connection)
        identity = broker_name, address, self.access.key_of(call)
        is_same = (holder.broker_name, holder.address, holder.account) == identity
        if is_same and host_of(holder.connection.peer) == host_of(call.connection.peer):
            return
        log.warning(
            "live broker not replaced",
            extra={"broker": holder.broker_name, "address": holder.address, "peer": call.connection.peer},
        )
        raise permission_denied(
            f"broker {holder.broker_name} (id {holder.broker_id}) is registered and alive at {holder.address}: stop it "
            f"first; if it is dead, wait {holder.expiry_seconds:.0f} s, or use an account that has the name "
            f"{holder.broker_name} itself in its brokers"
        )

    def _registration(self, request: RegisterBroker, call: Call) -> Registration:
        body = decode_registration(request, call.command.version)
        timeout_ms = request.heartbeat_timeout_millis
        return Registration(
            cluster=request.cluster_name,
            broker_name=request.broker_name,
            broker_id=request.broker_id,
            address=request.broker_addr,
            ha_address=request.ha_server_addr,
            connection=call.connection,
            data_version=body.data_version if body else DataVersion(),
            topics=body.topics if body else None,
            filter_servers=body.filter_servers if body else None,
            expiry_seconds=timeout_ms / 1000 if timeout_ms and timeout_ms > 0 else self.settings.broker_expiry_s,
            account=None if self.access is None else self.access.key_of(call),
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
    def unregister(self, request: UnregisterBroker, call: Call) -> Response:
        self._check_live(request.broker_name, request.broker_addr, call)
        gone = self.routes.unregister(request.cluster_name, request.broker_name, request.broker_id, request.broker_addr)
        log.info(
            "broker unregistered" if gone else "unknown broker unregistered", extra={"address": request.broker_addr}
        )
        return Response()

    def _check_live(self, broker_name: str, address: str, call: Call) -> None:
        """What a request says about the broker at `address` is said by that broker, if access control is on."""
        live = self.routes.live(address)
        if live is not None and live.connection is not call.connection:
            self._check_place(live, broker_name, address, call)

    @handles(QueryDataVersion)
    def data_version(self, request: QueryDataVersion, call: Call) -> DataVersionResponse:
        self._check_live(request.broker_name, request.broker_addr, call)
        changed = self.routes.is_changed(request.broker_addr, request.body or DataVersion())
        if not changed:
            self.routes.touch(request.broker_addr, self.clock.monotonic())
        return DataVersionResponse(changed=changed, body=self.routes.data_version(request.broker_addr))

    @handles(BrokerHeartbeat)
    def heartbeat(self, request: BrokerHeartbeat, call: Call) -> Response:
        self._check_live(request.broker_name, request.broker_addr, call)
        self.routes.touch(request.broker_addr, self.clock.monotonic())
        return Response()

    @handles(WipeWritePermission)
    def wipe_write_permission(self, request: WipeWritePermission, call: Call) -> WipedResponse:
        count = self.routes.wipe_write_permission(request.broker_name)
        log.warning("write permission wiped", extra={"broker": request.broker_name, "topics": count})
        return WipedResponse(wipe_topic_count=count)

    @handles(AddWritePermission)
    def add_write_permission(self, request: AddWritePermission, call: Call) -> AddedResponse:
        count = self.routes.add_write_permission(request.broker_name)
        log.warning("write permission added", extra={"broker": request.broker_name, "topics": count})
        return AddedResponse(add_topic_count=count)


def _check_names(request: RegisterBroker) -> None:
    """Validates the names, which clients print, and the address, which they connect to, before they enter a route."""
    for field_name, name in (("brokerName", request.broker_name), ("clusterName", request.cluster_name)):
        if not 0 < len(name) <= NAME_LENGTH_MAX or not name.isprintable():
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"{field_name} must be 1 to {NAME_LENGTH_MAX} printable characters, got {name[:80]!r}",
            )
    if request.broker_id < 0:
        raise RequestFailed(ResponseCode.SYSTEM_ERROR, f"brokerId must be 0 (master) or more, got {request.broker_id}")
    try:
        Address.parse(request.broker_addr)
    except ValueError as error:
        raise RequestFailed(ResponseCode.SYSTEM_ERROR, f"brokerAddr: {error}") from error


def _log_registration(request: RegisterBroker, result: RegisterResult) -> None:
    context = {
        "broker": request.broker_name,
        "id": request.broker_id,
        "address": request.broker_addr,
        "cluster": request.cluster_name,
    }
    if result.is_first:
        log.info("broker registered", extra=context)
    for topic, reason in result.refused_topics.items():
        log.warning("topic refused", extra=context | {"topic": topic, "reason": reason})
    for other in result.displaced:
        log.warning("broker displaced another", extra=context | {"displaced": other.address})


@dataclass(frozen=True)
class ConfigHandlers:
    settings: NameserverSettings
    pairs: KeyValues

    @handles(PutKeyValue)
    def put(self, request: PutKeyValue, call: Call) -> Response:
        self.pairs.put(request.namespace, request.key, request.value)
        log.info(
            "key-value pair set",
            extra={"namespace": request.namespace, "key": request.key, "peer": call.connection.peer},
        )
        return Response()

    @handles(GetKeyValue)
    def get(self, request: GetKeyValue, call: Call) -> KeyValueResponse:
        value = self.pairs.get(request.namespace, request.key)
        if value is None:
            raise RequestFailed(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {request.namespace} Key: {request.key}"
            )
        return KeyValueResponse(value=value)

    @handles(DeleteKeyValue)
    def delete(self, request: DeleteKeyValue, call: Call) -> Response:
        self.pairs.delete(request.namespace, request.key)
        log.info(
            "key-value pair deleted",
            extra={"namespace": request.namespace, "key": request.key, "peer": call.connection.peer},
        )
        return Response()

    @handles(ListKeyValues)
    def list_namespace(self, request: ListKeyValues, call: Call) -> KeyValueTableResponse:
        pairs = self.pairs.namespace(request.namespace)
        if pairs is None:
            raise RequestFailed(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {request.namespace}")
        return KeyValueTableResponse(body=KeyValueTable(table=dict(pairs)))

    @handles(GetNameserverSettings)
    def show_settings(self, request: GetNameserverSettings, call: Call) -> SettingsResponse:
        lines = (f"{key}={value}\n" for key, value in sorted(to_properties(self.settings).items()))
        return SettingsResponse(body="".join(lines))


@dataclass(frozen=True, slots=True)
class _CachedRoute:
    version: int
    order_conf: str | None
    data: bytes


class RouteResponses:
    """Cache of encoded routes, by topic and JSON form. At the limit it is cleared, which also drops lost topics."""

    def __init__(self, routes: RouteTable, key_values: KeyValues, *, with_order_conf: bool, entries_max: int) -> None:
        self._routes = routes
        self._key_values = key_values
        self._with_order_conf = with_order_conf
        self._entries_max = entries_max
        self._cache: dict[tuple[str, bool], _CachedRoute] = {}

    def encoded_route(self, topic: str, *, standard: bool) -> bytes | None:
        """The JSON of the topic's route, or None if the topic has no route."""
        order_conf = self._key_values.get(ORDER_TOPIC_CONFIG, topic) if self._with_order_conf else None
        version = self._routes.route_version(topic)
        cached = self._cache.get((topic, standard))
        if cached is not None and cached.version == version and cached.order_conf == order_conf:
            return cached.data
        return self._encode(topic, standard, version, order_conf)

    def _encode(self, topic: str, standard: bool, version: int, order_conf: str | None) -> bytes | None:
        route = self._routes.route(topic, order_conf)
        if route is None:
            self._cache.pop((topic, standard), None)
            return None
        if len(self._cache) >= self._entries_max:
            self._cache.clear()
        data = encode_route(route, standard=standard)
        self._cache[topic, standard] = _CachedRoute(version, order_conf, data)
        return data


_SUCCESS = Response()


@dataclass(frozen=True)
class RouteHandlers:
    routes: RouteTable
    responses: RouteResponses

    @handles(GetRoute)
    def route(self, request: GetRoute, call: Call) -> Encoded:
        standard = call.command.version >= Version.V4_9_4 or bool(request.accept_standard_json_only)
        body = self.responses.encoded_route(request.topic, standard=standard)
        if body is None:
            raise RequestFailed(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {request.topic[:255]}. No live broker has "
                "registered it here: create the topic, or wait for its broker's next registration (30 s at most)",
            )
        return Encoded(_SUCCESS, body)

    @handles(GetCluster)
    def cluster(self, request: GetCluster, call: Call) -> ClusterResponse:
        return ClusterResponse(body=self.routes.cluster_map())

    @handles(ListTopics)
    def topics(self, request: ListTopics, call: Call) -> TopicListResponse:
        return _names(self.routes.topics())

    @handles(ListTopicsByCluster)
    def topics_of_cluster(self, request: ListTopicsByCluster, call: Call) -> TopicListResponse:
        return _names(self.routes.topics_of_cluster(request.cluster))

    @handles(ListSystemTopics)
    def system_topics(self, request: ListSystemTopics, call: Call) -> TopicListResponse:
        topics, broker = self.routes.system_topics()
        return TopicListResponse(body=TopicList(topic_list=topics, broker_addr=broker))

    @handles(ListUnitTopics)
    def unit_topics(self, request: ListUnitTopics, call: Call) -> TopicListResponse:
        return _names(self.routes.flagged_topics(TopicSysFlag.UNIT))

    @handles(ListUnitSubscribedTopics)
    def unit_subscribed_topics(self, request: ListUnitSubscribedTopics, call: Call) -> TopicListResponse:
        return _names(self.routes.flagged_topics(TopicSysFlag.UNIT_SUBSCRIPTION))

    @handles(ListUnitSubscribedPlainTopics)
    def unit_subscribed_plain_topics(self, request: ListUnitSubscribedPlainTopics, call: Call) -> TopicListResponse:
        return _names(self.routes.flagged_topics(TopicSysFlag.UNIT_SUBSCRIPTION, lacks=TopicSysFlag.UNIT))

    @handles(DeleteTopicInNameserver)
    def delete_topic(self, request: DeleteTopicInNameserver, call: Call) -> Response:
        self.routes.delete_topic(request.topic, request.cluster_name)
        return Response()


def _names(topics: list[str]) -> TopicListResponse:
    return TopicListResponse(body=TopicList(topic_list=topics))
