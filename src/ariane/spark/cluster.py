"""Blocking access to a cluster for drivers and tasks: routes, end offsets of queues and group offsets, with retries."""

import difflib
import os
import re
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from time import monotonic, sleep, time
from typing import Any, NamedTuple, TypeVar

from ariane.client.core.identity import signer_of
from ariane.client.core.queue_bounds import readable_queues
from ariane.client.core.routes import SilentBrokers
from ariane.client.settings import ClientSettings, ClientTlsSettings
from ariane.errors import ArianeError, ConnectFailed, ConnectionLost, NoRoute, RequestFailed, TransportError
from ariane.lifecycle import Backoff
from ariane.model.ids import DEAD_LETTER_PREFIX, RETRY_PREFIX, QueueOffset
from ariane.model.route import MASTER_ID, MessageQueue, TopicRoute
from ariane.model.topic import AUTO_CREATE_TEMPLATE
from ariane.rpc.signing import Signer
from ariane.transport.blocking import BlockingConnection
from ariane.transport.tls import client_context
from ariane.wire.codes import ResponseCode
from ariane.wire.exchange import read_response, request_command
from ariane.wire.fields import Request, Response
from ariane.wire.frame import Command
from ariane.wire.requests.offsets import (
    GetAllConsumerOffsets,
    GetConsumerOffset,
    GetMaxOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from ariane.wire.requests.topics import GetCluster, GetRoute, GetTopicStats, ListTopics

A = TypeVar("A", bound=Response)


class Calls:
    """Typed calls over blocking sockets, signed if there are credentials, with one connection to each address.

    Not thread-safe. After a fork the child opens new connections.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._signer = signer_of(settings, lambda: round(time() * 1000))
        self._tls = _tls(settings.tls)
        self._connections: dict[str, BlockingConnection] = {}
        self.silent = SilentBrokers(monotonic)
        self._pid = os.getpid()

    def call(self, address: str, request: Request[A], timeout_s: float | None = None) -> A:
        connection = self.connection(address)
        command = self.command(request, connection)
        response = connection.call(command, timeout_s)
        if self._signer is not None and self._signer.learn(connection, command, response):
            response = connection.call(self.command(request, connection), timeout_s)
        return read_response(request, response)

    def call_all(self, address: str, requests: Sequence[Request[A]], timeout_s: float | None = None) -> list[Command]:
        """The raw responses: each may be an error, and the caller reads them one by one with `read_response`."""
        connection = self.connection(address)
        return connection.call_all([self.command(request, connection) for request in requests], timeout_s)

    def call_everywhere(
        self, requests: Mapping[str, Sequence[Request[Any]]], timeout_s: float | None = None
    ) -> dict[str, list[Command] | TransportError]:
        """For each address the raw responses, or the error. All servers work at the same time."""
        posted: dict[str, tuple[BlockingConnection, list[int]]] = {}
        responses: dict[str, list[Command] | TransportError] = {}
        for address, of_address in requests.items():
            try:
                connection = self.connection(address)
                commands = [self.command(request, connection) for request in of_address]
                posted[address] = connection, connection.send_all(commands)
            except TransportError as error:
                responses[address] = error
        for address, (connection, opaques) in posted.items():
            try:
                responses[address] = connection.receive(opaques, timeout_s)
            except TransportError as error:
                responses[address] = error
        return responses

    def connection(self, address: str) -> BlockingConnection:
        if os.getpid() != self._pid:  # a child shares the sockets of its parent: each would read the other's responses
            self._connections, self._pid = {}, os.getpid()
        connection = self._connections.get(address)
        if connection is not None and connection.is_stale:
            connection.close()
        if connection is None or not connection.is_open:
            try:
                connection = BlockingConnection.open(address, self.settings.transport, self._tls)
            except TransportError:
                self.silent.add(address)
                raise
            self.silent.remove(address)
            self._connections[address] = connection
            if self._signer is not None:
                self._learn_how_to_sign(self._signer, address, connection)
        return connection

    def _learn_how_to_sign(self, signer: Signer, address: str, connection: BlockingConnection) -> None:
        """Requests are pipelined, so the server is asked what it needs before the first of them."""
        is_nameserver = address in self.settings.nameserver_list
        probe: Request[Any] = GetRoute(AUTO_CREATE_TEMPLATE) if is_nameserver else GetMaxOffset(AUTO_CREATE_TEMPLATE, 0)
        command = self.command(probe, connection)
        signer.learn(connection, command, connection.call(command))

    def signs(self, connection: BlockingConnection) -> bool:
        """Whether each request on this connection has its own signature."""
        return self._signer is not None and self._signer.signs(connection)

    def command(self, request: Request[Any], connection: BlockingConnection) -> Command:
        """The request as the server of `connection` needs it signed."""
        command = request_command(request, opaque=0)
        if self._signer is not None:
            self._signer.sign(command, connection)
        return command

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


def _tls(settings: ClientTlsSettings) -> ssl.SSLContext | None:
    if not settings.enable:
        return None
    context = client_context(settings.trust, settings.certificate, settings.key)
    if not settings.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


T = TypeVar("T")


class Ends(NamedTuple):
    """The first offset that still exists, and the one that the next message will get."""

    first: int
    next: int


@lru_cache(maxsize=16)
def cluster_for(settings: ClientSettings) -> "Cluster":
    """Cached: Spark reuses its workers for many tasks, so they can reuse their connections."""
    return Cluster(settings)


class Cluster:
    def __init__(self, settings: ClientSettings) -> None:
        self.calls = Calls(settings)
        self._nameservers = list(settings.nameserver_list)
        self._timeout_s = settings.nameserver_timeout_s
        self._routes: dict[str, TopicRoute] = {}
        self._brokers: dict[str, dict[int, str]] = {}

    # --- nameservers ------------------------------------------------------------------------------------------------

    def call_nameserver(self, request: Request[A]) -> A:
        errors = []
        for address in list(self._nameservers):
            try:
                return self.calls.call(address, request, self._timeout_s)
            except TransportError as error:
                errors.append(str(error))
                self._nameservers.append(self._nameservers.pop(0))
        raise NoRoute(
            f"no nameserver answers ({'; '.join(errors)}): start one, for example with `ariane up`, or correct "
            "the option nameServer"
        )

    def route(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        """Keeps a known route if the nameserver does not have it: it may have just started."""
        if fresh or topic not in self._routes:
            try:
                route = self.call_nameserver(GetRoute(topic, accept_standard_json_only=True)).body
            except RequestFailed as error:
                if error.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
                if topic not in self._routes:
                    raise self._no_route(topic) from None
            else:
                self._routes[topic] = route
                self._brokers.update({data.broker_name: data.broker_addrs for data in route.broker_datas})
        return self._routes[topic]

    def _no_route(self, topic: str) -> NoRoute:
        try:
            similar = difflib.get_close_matches(topic, self.call_nameserver(ListTopics()).body.topic_list, n=3)
        except ArianeError:  # the error is reported without the hint
            similar = []
        hint = f"; similar topics: {', '.join(similar)}" if similar else ""
        return NoRoute(
            f"no route for topic {topic} at {self.calls.settings.nameservers}: create it, or correct the option "
            f"topic{hint}"
        )

    def topics_matching(self, pattern: re.Pattern[str]) -> list[str]:
        """Includes retry and dead letter topics only if the pattern names them: `.*` does not mean them."""
        names = self.call_nameserver(ListTopics()).body.topic_list
        special = () if "%" in pattern.pattern else (RETRY_PREFIX, DEAD_LETTER_PREFIX)
        return sorted(name for name in names if pattern.fullmatch(name) and not name.startswith(special))

    def queues(self, topics: Iterable[str], *, fresh: bool = False) -> list[MessageQueue]:
        return [queue for topic in topics for queue in readable_queues(topic, self.route(topic, fresh=fresh))]

    def address(self, topic: str, broker_name: str, *, master_only: bool = False) -> str:
        if broker_name not in self._brokers:
            self.route(topic, fresh=True)
        if broker_name not in self._brokers:  # it may belong to another topic, when a record of a ledger names it
            self._learn_brokers()
        addresses = self._brokers.get(broker_name, {})
        address = addresses.get(MASTER_ID)
        if not master_only and (address is None or address in self.calls.silent):
            responding = [other for other in addresses.values() if other not in self.calls.silent]
            address = next(iter([*responding, *addresses.values()]), None)
        if address is None:
            raise NoRoute(f"no address is known for broker {broker_name} of topic {topic}: start it, or wait for it")
        return address

    def _learn_brokers(self) -> None:
        for name, data in self.call_nameserver(GetCluster()).body.broker_addr_table.items():
            self._brokers.setdefault(name, data.broker_addrs)

    # --- brokers ----------------------------------------------------------------------------------------------------

    def ends(self, topic: str, broker_name: str) -> dict[MessageQueue, Ends]:
        """The end offsets of all queues of `topic` on one broker, in one call."""
        response = self._read(topic, broker_name, GetTopicStats(topic))
        return {
            MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue.queue_id): Ends(
                max(0, offsets.min_offset), max(0, offsets.max_offset)
            )
            for queue, offsets in response.body.offset_table.items()
        }

    def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first message stored at this time or later (Apache's 4.x: the nearest)."""
        request = SearchOffset(queue.topic, queue.queue_id, timestamp_ms)
        return self._read(queue.topic, queue.broker_name, request).offset

    def _read(self, topic: str, broker_name: str, request: Request[A]) -> A:
        """From the master, or from a slave if the master turns out to be dead."""
        address = self.address(topic, broker_name)
        try:
            return self.calls.call(address, request)
        except (ConnectFailed, ConnectionLost):
            self.calls.silent.add(address)
            other = self.address(topic, broker_name)
            if other == address:
                raise
            return self.calls.call(other, request)

    def group_offset(self, group: str, queue: MessageQueue) -> int | None:
        """None when the group has none. Apache's 4.x then returns 0 for a young queue, so 0 is verified."""
        request = GetConsumerOffset(group, queue.topic, queue.queue_id, set_zero_if_not_found=False)
        try:
            offset = self._read(queue.topic, queue.broker_name, request).offset
        except RequestFailed as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return None
        return None if offset < 0 or (offset == 0 and not self._has_offset(group, queue)) else offset

    def _has_offset(self, group: str, queue: MessageQueue) -> bool:
        """True if the broker does not permit the look-up: starting at 0 may repeat messages, but loses none."""
        try:
            table = self._read(queue.topic, queue.broker_name, GetAllConsumerOffsets()).body.offset_table
        except RequestFailed:
            return True
        return queue.queue_id in table.get(f"{queue.topic}@{group}", {})

    def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        request = UpdateConsumerOffset(group, queue.topic, queue.queue_id, QueueOffset(offset))
        self.calls.call(self.address(queue.topic, queue.broker_name, master_only=True), request)

    # --- retries ----------------------------------------------------------------------------------------------------

    def patiently(self, action: Callable[[], T], patience_s: float, topic: str) -> T:
        """Retries with growing pauses and fresh routes, as long as the error is retriable and time is left."""
        deadline = monotonic() + patience_s
        backoff = Backoff(first_s=0.05, longest_s=2.0)
        while True:
            try:
                return action()
            except ArianeError as error:
                pause_s = backoff.next_s()
                if not error.retriable or monotonic() + pause_s > deadline:
                    raise
            sleep(pause_s)
            try:
                self.route(topic, fresh=True)
            except ArianeError:  # the next attempt reports the error, or the old route is still right
                continue
