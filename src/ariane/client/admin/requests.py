"""The desk that every area of administration works at: whom to ask, and how to ask many at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from ariane.client.core.instance import Instance
from ariane.errors import ArianeError, ClientError, RequestFailed
from ariane.model.route import MASTER_ID, BrokerData, ClusterMap, MessageQueue, TopicRoute
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Request, Response
from ariane.wire.requests.topics import GetCluster, GetRoute

# --- servers ---
#
# Brokers as an administrator names them, and what several servers answered to one question.

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
    """The processes behind one broker name: its master, and its slaves if they are wanted."""
    return [
        Broker(cluster=data.cluster, name=data.broker_name, broker_id=broker_id, address=address)
        for broker_id, address in sorted(data.broker_addrs.items())
        if slaves or broker_id == MASTER_ID
    ]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A server that did not do what it was asked, and why."""

    server: str
    error: ArianeError

    def __str__(self) -> str:
        return f"{self.server}: {self.error}"


@dataclass(frozen=True, slots=True)
class PerServer(Generic[S, T]):
    """What each server answered. Those that did not are in `failures`: nobody may take a part for the whole."""

    responses: Mapping[S, T]
    failures: tuple[Failure, ...] = ()

    @property
    def is_complete(self) -> bool:
        return not self.failures

    def mapped(self, look: Callable[[T], U]) -> "PerServer[S, U]":
        """What `look` sees in each answer."""
        return PerServer({server: look(response) for server, response in self.responses.items()}, self.failures)

    def some(self, what: str) -> "PerServer[S, T]":
        """Itself, unless no server at all answered: that is an error and not an empty result."""
        if self.failures and not self.responses:
            raise self._error(what)
        return self

    def all(self, what: str) -> list[S]:
        """The servers, if each of them did what it was asked: a change made at some only must not go unnoticed."""
        if self.failures:
            raise self._error(what)
        return list(self.responses)

    def _error(self, what: str) -> ArianeError:
        if len(self.failures) == 1 and not self.responses:
            return self.failures[0].error
        failed = "; ".join(map(str, self.failures))
        done = f" (done at {', '.join(map(str, self.responses))})" if self.responses else ""
        error = ClientError(f"{what} failed at {failed}{done}: mend that, then ask again")
        error.__cause__ = ExceptionGroup(what, [failure.error for failure in self.failures])
        return error


PerBroker = PerServer[Broker, T]
PerNameserver = PerServer[str, T]


# ---

A = TypeVar("A", bound=Response)

_TOGETHER_MAX = 64


class AdminRequests:
    """`instance` is asked for with each call, so that a closed Admin says so."""

    def __init__(self, instance: Callable[[], Instance], timeout_s: float) -> None:
        self._instance = instance
        self.timeout_s = timeout_s
        self._turn = asyncio.Semaphore(_TOGETHER_MAX)

    @property
    def instance(self) -> Instance:
        return self._instance()

    # --- asking -----------------------------------------------------------------------------------------------------

    async def ask(self, address: str, request: Request[A], timeout_s: float | None = None) -> A:
        async with self._turn:  # a topic may have thousands of queues
            return await self.instance.call(address, request, self.timeout_s if timeout_s is None else timeout_s)

    async def ask_nameserver(self, request: Request[A]) -> A:
        """The answer of the first nameserver that gives one: they all know the same, soon enough."""
        return await self.instance.nameservers.ask(request)

    async def each(self, brokers: Iterable[Broker], request: Request[A]) -> PerBroker[A]:
        """The same question to all, at the same time."""
        return await self.gather(brokers, lambda broker: self.ask(broker.address, request))

    async def each_nameserver(self, request: Request[A]) -> PerNameserver[A]:
        """For what nameservers do not tell each other: changes."""
        return await self.gather(
            self.instance.settings.nameserver_list, lambda address: self.ask(address, request, self.timeout_s)
        )

    async def gather(self, servers: Iterable[S], work: Callable[[S], Awaitable[T]]) -> PerServer[S, T]:
        """What `work` made of each server, and the errors of those where it failed."""
        asked = list(servers)
        responses: dict[S, T] = {}
        failures: list[Failure] = []
        for server, outcome in zip(asked, await asyncio.gather(*(_caught(work(one)) for one in asked)), strict=True):
            if isinstance(outcome, ArianeError):
                failures.append(Failure(server=str(server), error=outcome))
            else:
                responses[server] = outcome
        return PerServer(responses, tuple(failures))

    async def together(self, works: Iterable[Awaitable[T]]) -> list[T]:
        """All of them or the first error."""
        return list(await asyncio.gather(*works))

    # --- whom -------------------------------------------------------------------------------------------------------

    async def cluster_map(self) -> ClusterMap:
        return (await self.ask_nameserver(GetCluster())).body

    async def brokers(
        self, *, cluster: str | None = None, broker: str | None = None, slaves: bool = False
    ) -> list[Broker]:
        """The masters of all clusters, of one, or the one broker with this name or address."""
        table = (await self.cluster_map()).broker_addr_table.values()
        known = [one for data in table for one in brokers_of(data, slaves=slaves or broker is not None)]
        if broker is not None:
            return [_named(broker, known)]
        found = sorted(one for one in known if cluster is None or one.cluster == cluster)
        if not found:
            raise ClientError(_nobody(cluster, known))
        return found

    async def find_route(self, topic: str) -> TopicRoute | None:
        """As the nameserver has it now. A client keeps old routes; an administrator wants to see that one is gone."""
        try:
            return (await self.ask_nameserver(GetRoute(topic, accept_standard_json_only=True))).body
        except RequestFailed as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return None

    async def route(self, topic: str) -> TopicRoute:
        """NoRoute, with cause and cure, when there is none."""
        route = await self.find_route(topic)
        if route is None:
            raise await self.instance.routes.no_route(topic)
        return route

    async def of_topic(self, topic: str) -> list[Broker]:
        """The masters that have `topic`."""
        route = await self.route(topic)
        return sorted(one for data in route.broker_datas for one in brokers_of(data))

    async def of_queue(self, queue: MessageQueue) -> Broker:
        for broker in await self.of_topic(queue.topic):
            if broker.name == queue.broker_name:
                return broker
        raise ClientError(
            f"broker {queue.broker_name} has no master with topic {queue.topic} now: see the topic's route"
        )


async def _caught(work: Awaitable[T]) -> T | ArianeError:
    try:
        return await work
    except ArianeError as error:
        return error


def _named(broker: str, known: list[Broker]) -> Broker:
    for one in sorted(known):  # by name the master comes first
        if broker in (one.name, one.address):
            return one
    if ":" in broker:  # a broker that no nameserver knows can be asked all the same
        return Broker(cluster="", name=broker, broker_id=0, address=broker)
    names = ", ".join(sorted({one.name for one in known})) or "none"
    raise ClientError(f"there is no broker {broker}: the nameserver knows {names}")


def _nobody(cluster: str | None, known: list[Broker]) -> str:
    if cluster is None:
        return "no broker is registered at the nameserver: start one, for example with `ariane broker`"
    names = ", ".join(sorted({one.cluster for one in known})) or "none"
    return f"cluster {cluster} has no master: the nameserver knows the clusters {names}"


async def absent_is_none(work: Awaitable[T], *codes: ResponseCode) -> T | None:
    """None where a server refuses with one of `codes`: what was asked for is not there, which is an answer."""
    try:
        return await work
    except RequestFailed as error:
        if error.code not in codes:
            raise
        return None
