"""The cluster as drivers and tasks see it: routes from the nameservers, queue ends and group offsets from brokers."""

import difflib
import os
import re
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from time import monotonic, sleep
from typing import Any, NamedTuple, TypeVar

from ariane.client.core.identity import Signer
from ariane.client.core.queue_bounds import readable_queues
from ariane.client.settings import ClientSettings, ClientTlsSettings
from ariane.errors import ArianeError, NoRoute, RequestFailed, TransportError
from ariane.lifecycle import Backoff
from ariane.model.ids import DEAD_LETTER_PREFIX, RETRY_PREFIX, QueueOffset
from ariane.model.route import MASTER_ID, MessageQueue, TopicRoute
from ariane.transport.blocking import BlockingConnection
from ariane.transport.tls import client_context
from ariane.wire.codes import ResponseCode
from ariane.wire.exchange import read_response, request_command
from ariane.wire.fields import Request, Response
from ariane.wire.frame import Command
from ariane.wire.requests.offsets import GetAllConsumerOffsets, GetConsumerOffset, SearchOffset, UpdateConsumerOffset
from ariane.wire.requests.topics import GetCluster, GetRoute, GetTopicStats, ListTopics

# --- calls ---
#
# Typed calls over blocking sockets, signed, with one connection to each address.

A = TypeVar("A", bound=Response)


class Calls:
    """Not for two threads at a time. After a fork the child opens connections of its own."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._signer = Signer.of(settings)
        self._tls = _tls(settings.tls)
        self._connections: dict[str, BlockingConnection] = {}
        self._pid = os.getpid()

    def call(self, address: str, request: Request[A], timeout_s: float | None = None) -> A:
        return read_response(request, self.connection(address).call(self.command(request), timeout_s))

    def call_all(self, address: str, requests: Sequence[Request[A]], timeout_s: float | None = None) -> list[Command]:
        """The raw answers: each may be a refusal, and the caller reads them one by one with `read_response`."""
        return self.connection(address).call_all([self.command(request) for request in requests], timeout_s)

    def call_everywhere(
        self, asks: Mapping[str, Sequence[Request[Any]]], timeout_s: float | None = None
    ) -> dict[str, list[Command] | TransportError]:
        """For each address the raw answers, or what is wrong there. All of them work at the same time."""
        posted: dict[str, tuple[BlockingConnection, list[int]]] = {}
        outcomes: dict[str, list[Command] | TransportError] = {}
        for address, requests in asks.items():
            try:
                connection = self.connection(address)
                posted[address] = connection, connection.send_all([self.command(one) for one in requests])
            except TransportError as error:
                outcomes[address] = error
        for address, (connection, opaques) in posted.items():
            try:
                outcomes[address] = connection.receive(opaques, timeout_s)
            except TransportError as error:
                outcomes[address] = error
        return outcomes

    def connection(self, address: str) -> BlockingConnection:
        if os.getpid() != self._pid:  # a child shares its parent's sockets: the two would read each other's answers
            self._connections, self._pid = {}, os.getpid()
        known = self._connections.get(address)
        if known is not None and known.is_stale:
            known.close()
        if known is None or not known.is_open:
            known = self._connections[address] = BlockingConnection.open(address, self.settings.transport, self._tls)
        return known

    @property
    def signs(self) -> bool:
        """Whether each request has a signature of its own."""
        return self._signer is not None

    def command(self, request: Request[Any]) -> Command:
        command = request_command(request, opaque=0)
        if self._signer is not None:
            self._signer.sign(command)
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


# ---

T = TypeVar("T")


class Ends(NamedTuple):
    """The first offset that is still there, and the one that the next message will get."""

    first: int
    next: int


@lru_cache(maxsize=16)
def cluster_for(settings: ClientSettings) -> "Cluster":
    """Workers of Spark live on from task to task, and so do their connections."""
    return Cluster(settings)


class Cluster:
    def __init__(self, settings: ClientSettings) -> None:
        self.calls = Calls(settings)
        self._nameservers = list(settings.nameserver_list)
        self._timeout_s = settings.nameserver_timeout_s
        self._routes: dict[str, TopicRoute] = {}
        self._brokers: dict[str, dict[int, str]] = {}

    # --- nameservers ------------------------------------------------------------------------------------------------

    def ask_nameserver(self, request: Request[A]) -> A:
        silent = []
        for address in list(self._nameservers):
            try:
                return self.calls.call(address, request, self._timeout_s)
            except TransportError as error:
                silent.append(str(error))
                self._nameservers.append(self._nameservers.pop(0))
        raise NoRoute(
            f"no nameserver answers ({'; '.join(silent)}): start one, for example with `ariane up`, or correct "
            "the option nameServer"
        )

    def route(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        """What was known stays known when the nameserver has forgotten it: it may have just started."""
        if fresh or topic not in self._routes:
            try:
                route = self.ask_nameserver(GetRoute(topic, accept_standard_json_only=True)).body
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
            similar = difflib.get_close_matches(topic, self.ask_nameserver(ListTopics()).body.topic_list, n=3)
        except ArianeError:  # only a hint is lost
            similar = []
        hint = f"; similar topics: {', '.join(similar)}" if similar else ""
        return NoRoute(
            f"no route for topic {topic} at {self.calls.settings.nameservers}: create it, or correct the option "
            f"topic{hint}"
        )

    def topics_matching(self, pattern: re.Pattern[str]) -> list[str]:
        """Retry and dead letter topics only when the pattern names them: nobody means them by `.*`."""
        names = self.ask_nameserver(ListTopics()).body.topic_list
        special = () if "%" in pattern.pattern else (RETRY_PREFIX, DEAD_LETTER_PREFIX)
        return sorted(name for name in names if pattern.fullmatch(name) and not name.startswith(special))

    def queues(self, topics: Iterable[str], *, fresh: bool = False) -> list[MessageQueue]:
        return [queue for topic in topics for queue in readable_queues(topic, self.route(topic, fresh=fresh))]

    def address(self, topic: str, broker_name: str, *, master_only: bool = False) -> str:
        if broker_name not in self._brokers:
            self.route(topic, fresh=True)
        if broker_name not in self._brokers:  # of another topic, as a ledger's record may name it
            self._learn_brokers()
        addresses = self._brokers.get(broker_name, {})
        found = addresses.get(MASTER_ID)
        if found is None and addresses and not master_only:
            found = next(iter(addresses.values()))
        if found is None:
            raise NoRoute(f"no address is known for broker {broker_name} of topic {topic}: start it, or wait for it")
        return found

    def _learn_brokers(self) -> None:
        for name, data in self.ask_nameserver(GetCluster()).body.broker_addr_table.items():
            self._brokers.setdefault(name, data.broker_addrs)

    # --- brokers ----------------------------------------------------------------------------------------------------

    def ends(self, topic: str, broker_name: str) -> dict[MessageQueue, Ends]:
        """Of all queues that `topic` has on one broker, in one call."""
        response = self.calls.call(self.address(topic, broker_name), GetTopicStats(topic))
        return {
            MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue.queue_id): Ends(
                max(0, offsets.min_offset), max(0, offsets.max_offset)
            )
            for queue, offsets in response.body.offset_table.items()
        }

    def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first message that was not stored before this time (Apache's 4.x: the nearest)."""
        ask = SearchOffset(queue.topic, queue.queue_id, timestamp_ms)
        return self.calls.call(self.address(queue.topic, queue.broker_name), ask).offset

    def group_offset(self, group: str, queue: MessageQueue) -> int | None:
        """None when the group has none. Apache's 4.x then says 0 for a queue that is young, so 0 is looked into."""
        address = self.address(queue.topic, queue.broker_name)
        ask = GetConsumerOffset(group, queue.topic, queue.queue_id, set_zero_if_not_found=False)
        try:
            offset = self.calls.call(address, ask).offset
        except RequestFailed as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return None
        return None if offset < 0 or (offset == 0 and not self._has_offset(address, group, queue)) else offset

    def _has_offset(self, address: str, group: str, queue: MessageQueue) -> bool:
        """A broker that does not let us look is believed: starting at 0 repeats messages, and loses none."""
        try:
            table = self.calls.call(address, GetAllConsumerOffsets()).body.offset_table
        except RequestFailed:
            return True
        return queue.queue_id in table.get(f"{queue.topic}@{group}", {})

    def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        ask = UpdateConsumerOffset(group, queue.topic, queue.queue_id, QueueOffset(offset))
        self.calls.call(self.address(queue.topic, queue.broker_name, master_only=True), ask)

    # --- patience ---------------------------------------------------------------------------------------------------

    def patiently(self, action: Callable[[], T], patience_s: float, topic: str) -> T:
        """Again, with growing pauses and fresh routes, while the cluster cannot be reached and time is left."""
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
            except ArianeError:  # the next attempt tells what is wrong, or the old route still holds
                continue
