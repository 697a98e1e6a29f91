"""Shared request helper of the admin API: resolves target servers and fans requests out concurrently.

`PerServer` holds the responses of several servers to one request, and the errors of those that failed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from ariane.client.core.instance import Instance
from ariane.errors import ArianeError, ClientError, ConnectFailed, ConnectionLost, RequestFailed
from ariane.model.route import MASTER_ID, BrokerData, ClusterMap, MessageQueue, TopicRoute
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Request, Response
from ariane.wire.requests.topics import GetCluster, GetRoute

S = TypeVar("S", bound="Broker | str")
T = TypeVar("T")
U = TypeVar("U")


class Broker(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One broker process."""

    cluster: str
    name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID

    def __str__(self) -> str:
        return f"{self.name} ({self.address})"


def brokers_of(data: BrokerData, *, slaves: bool = False) -> list[Broker]:
    """The processes of one broker name: its master, and its slaves if `slaves` is set."""
    return [
        Broker(cluster=data.cluster, name=data.broker_name, broker_id=broker_id, address=address)
        for broker_id, address in sorted(data.broker_addrs.items())
        if slaves or broker_id == MASTER_ID
    ]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A server that failed to execute the request, and its error."""

    server: str
    error: ArianeError

    def __str__(self) -> str:
        return f"{self.server}: {self.error}"


@dataclass(frozen=True, slots=True)
class PerServer(Generic[S, T]):
    """The response of each server. Servers that failed are in `failures`, so that an incomplete result is visible."""

    responses: Mapping[S, T]
    failures: tuple[Failure, ...] = ()

    @property
    def is_complete(self) -> bool:
        return not self.failures

    def mapped(self, convert: Callable[[T], U]) -> "PerServer[S, U]":
        """With `convert` applied to each response."""
        return PerServer({server: convert(response) for server, response in self.responses.items()}, self.failures)

    def some(self, what: str) -> "PerServer[S, T]":
        """Returns itself. Raises if no server at all responded: that is an error and not an empty result."""
        if self.failures and not self.responses:
            raise self._error(what)
        return self

    def all(self, what: str) -> list[S]:
        """The servers. Raises if one of them failed: a change that was made only at some must not go unnoticed."""
        if self.failures:
            raise self._error(what)
        return list(self.responses)

    def _error(self, what: str) -> ArianeError:
        if len(self.failures) == 1 and not self.responses:
            return self.failures[0].error
        failed = "; ".join(map(str, self.failures))
        done = f" (done at {', '.join(map(str, self.responses))})" if self.responses else ""
        error = ClientError(f"{what} failed at {failed}{done}: fix that, then try again")
        error.__cause__ = ExceptionGroup(what, [failure.error for failure in self.failures])
        return error


PerBroker = PerServer[Broker, T]
PerNameserver = PerServer[str, T]


A = TypeVar("A", bound=Response)

_CONCURRENCY_MAX = 64


class AdminRequests:
    """`instance` is evaluated for each call, so that a closed Admin raises ClientClosed."""

    def __init__(self, instance: Callable[[], Instance], timeout_s: float) -> None:
        self._instance = instance
        self.timeout_s = timeout_s
        self._limit = asyncio.Semaphore(_CONCURRENCY_MAX)

    @property
    def instance(self) -> Instance:
        return self._instance()

    # --- calls ------------------------------------------------------------------------------------------------------

    async def call(self, address: str, request: Request[A], timeout_s: float | None = None) -> A:
        async with self._limit:  # a topic may have thousands of queues
            return await self.instance.call(address, request, self.timeout_s if timeout_s is None else timeout_s)

    async def call_nameserver(self, request: Request[A]) -> A:
        """The response of the first nameserver that responds: all have the same data, with a short delay."""
        return await self.instance.nameservers.call(request)

    async def each(self, brokers: Iterable[Broker], request: Request[A]) -> PerBroker[A]:
        """Sends the same request to all, concurrently."""
        return await self.fan_out(brokers, lambda broker: self.call(broker.address, request))

    async def each_nameserver(self, request: Request[A]) -> PerNameserver[A]:
        """For changes, which nameservers do not replicate."""
        return await self.fan_out(
            self.instance.settings.nameserver_list, lambda address: self.call(address, request, self.timeout_s)
        )

    async def fan_out(self, servers: Iterable[S], work: Callable[[S], Awaitable[T]]) -> PerServer[S, T]:
        """Runs `work` for each server concurrently; returns the results, and the errors of servers where it failed."""
        targets = list(servers)
        responses: dict[S, T] = {}
        failures: list[Failure] = []
        outcomes = await asyncio.gather(*(_caught(work(server)) for server in targets))
        for server, outcome in zip(targets, outcomes, strict=True):
            if isinstance(outcome, ArianeError):
                failures.append(Failure(server=str(server), error=outcome))
            else:
                responses[server] = outcome
        return PerServer(responses, tuple(failures))

    async def run_all(self, works: Iterable[Awaitable[T]]) -> list[T]:
        """The results of all, or the first error."""
        return list(await asyncio.gather(*works))

    # --- targets ----------------------------------------------------------------------------------------------------

    async def cluster_map(self) -> ClusterMap:
        return (await self.call_nameserver(GetCluster())).body

    async def brokers(
        self, *, cluster: str | None = None, broker: str | None = None, slaves: bool = False
    ) -> list[Broker]:
        """The masters of all clusters, of one, or the one broker with this name or address."""
        table = (await self.cluster_map()).broker_addr_table.values()
        registered = [item for data in table for item in brokers_of(data, slaves=slaves or broker is not None)]
        if broker is not None:
            return [_named(broker, registered)]
        selected = sorted(item for item in registered if cluster is None or item.cluster == cluster)
        if not selected:
            raise ClientError(_no_broker_message(cluster, registered))
        return selected

    async def readers(self, *, cluster: str | None = None, broker: str | None = None) -> list[Broker]:
        """Where to read: of each broker name the master, or its first slave while no master is registered."""
        if broker is not None:
            return await self.brokers(cluster=cluster, broker=broker)
        return self._readers_among(await self.brokers(cluster=cluster, slaves=True))

    async def find_route(self, topic: str) -> TopicRoute | None:
        """As the nameserver has it now, not from the route cache: an administrator must see that a route is gone."""
        try:
            return (await self.call_nameserver(GetRoute(topic, accept_standard_json_only=True))).body
        except RequestFailed as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return None

    async def route(self, topic: str) -> TopicRoute:
        """NoRoute, with cause and hint, if there is none."""
        route = await self.find_route(topic)
        if route is None:
            raise await self.instance.routes.no_route(topic)
        return route

    async def brokers_of_topic(self, topic: str) -> list[Broker]:
        """The masters that have `topic`."""
        route = await self.route(topic)
        return sorted(broker for data in route.broker_datas for broker in brokers_of(data))

    async def readers_of_topic(self, topic: str) -> list[Broker]:
        """As `readers`, of the brokers that have `topic`."""
        route = await self.route(topic)
        return self._readers_among(broker for data in route.broker_datas for broker in brokers_of(data, slaves=True))

    def _readers_among(self, brokers: Iterable[Broker]) -> list[Broker]:
        """One of each name: the master, or a slave if there is none, or if it does not respond."""
        silent, first = self.instance.routes.silent, dict[tuple[str, str], Broker]()
        for broker in sorted(brokers, key=lambda one: (one.cluster, one.name, one.address in silent, one.broker_id)):
            first.setdefault((broker.cluster, broker.name), broker)
        return list(first.values())

    async def read(self, broker: Broker, topic: str, request: Request[A]) -> A:
        """The response of `broker`, or of another one of the same name if it turns out to be dead."""
        try:
            return await self.call(broker.address, request)
        except (ConnectFailed, ConnectionLost):
            others = [other for other in await self.readers_of_topic(topic) if other.name == broker.name]
            if others in ([], [broker]):
                raise
            return await self.call(others[0].address, request)

    async def broker_of_queue(self, queue: MessageQueue) -> Broker:
        return _of_queue(queue, await self.brokers_of_topic(queue.topic), "master")

    async def reader_of_queue(self, queue: MessageQueue) -> Broker:
        return _of_queue(queue, await self.readers_of_topic(queue.topic), "broker")


def _of_queue(queue: MessageQueue, brokers: Iterable[Broker], what: str) -> Broker:
    for broker in brokers:
        if broker.name == queue.broker_name:
            return broker
    raise ClientError(f"broker {queue.broker_name} has no {what} with topic {queue.topic} now: see the topic's route")


async def _caught(work: Awaitable[T]) -> T | ArianeError:
    try:
        return await work
    except ArianeError as error:
        return error


def _named(name: str, registered: list[Broker]) -> Broker:
    for broker in sorted(registered):  # for a broker name, the master comes first
        if name in (broker.name, broker.address):
            return broker
    if ":" in name:  # a broker that is not registered can be called nevertheless
        return Broker(cluster="", name=name, broker_id=0, address=name)
    names = ", ".join(sorted({broker.name for broker in registered})) or "none"
    raise ClientError(f"there is no broker {name}: the nameserver knows {names}")


def _no_broker_message(cluster: str | None, registered: list[Broker]) -> str:
    if cluster is None:
        return "no broker is registered at the nameserver: start one, for example with `ariane broker`"
    names = ", ".join(sorted({broker.cluster for broker in registered})) or "none"
    return f"cluster {cluster} has no master: the nameserver knows the clusters {names}"


async def absent_is_none(work: Awaitable[T], *codes: ResponseCode) -> T | None:
    """None if the server refuses with one of `codes`, which means that the requested object does not exist."""
    try:
        return await work
    except RequestFailed as error:
        if error.code not in codes:
            raise
        return None
