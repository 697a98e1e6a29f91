"""Route cache: which brokers hold a topic. Fetched from a nameserver once, cached, and refreshed every 30 s.

A cached route is kept while the nameservers are down, or while one that has just started does not know its brokers yet:
an old route that still works is better than none.
"""

import asyncio
import difflib
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from ariane.clock import Clock
from ariane.errors import ArianeError, NoRoute, RequestFailed, TransportError
from ariane.model.route import MASTER_ID, TopicRoute
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Request, Response
from ariane.wire.requests.topics import GetRoute, ListTopics

log = logging.getLogger(__name__)

A = TypeVar("A", bound=Response)


class Calls(Protocol):
    async def call(self, address: str, request: Request[A], timeout_s: float | None = None) -> A: ...


class Nameservers:
    """The list of nameservers, used as one: a nameserver that responds is used until it fails."""

    def __init__(self, addresses: Sequence[str], calls: Calls, timeout_s: float) -> None:
        # In a random order, so that many clients with one list do not all use its first entry.
        self._addresses = random.sample(addresses, len(addresses))
        self._calls = calls
        self._timeout_s = timeout_s
        self.names = ";".join(addresses)

    async def call(self, request: Request[A]) -> A:
        """The first response; RequestFailed is one, too. NoRoute if no nameserver answers."""
        failures: list[str] = []
        for address in list(self._addresses):
            try:
                return await self._calls.call(address, request, self._timeout_s)
            except TransportError as error:
                failures.append(f"{address}: {error}")
                self._move_to_end(address)
            except RequestFailed as error:
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                raise NoRoute(
                    f"{address} is not a nameserver (the port of a broker?): it rejects {type(request).__name__}; "
                    f"correct the list of nameservers ({self.names})"
                ) from error
        log.warning("no nameserver answers", extra={"nameservers": self.names, "reason": "; ".join(failures)})
        raise NoRoute(
            f"no nameserver answers ({'; '.join(failures)}): start one, for example with `ariane up`, "
            f"or correct the list of nameservers ({self.names})"
        )

    def _move_to_end(self, address: str) -> None:
        if address == self._addresses[0]:
            self._addresses.append(self._addresses.pop(0))


# --- routes ---

Listener = Callable[[str, TopicRoute], None]

_TOPIC_NAMES_TTL_S = 5.0
_AVOID_S, _AVOID_LONGEST_S = 10.0, 60.0


class SilentBrokers:
    """Addresses that did not respond lately. Readers use another broker of the same name meanwhile, if there is one: a
    nameserver may have a dead master in its routes for two minutes. One that responds again, perhaps to a heartbeat, is
    used again at once."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._until: dict[str, tuple[float, float]] = {}  # by address: until when to avoid it, and for how long

    def __contains__(self, address: str) -> bool:
        found = self._until.get(address)
        return found is not None and self._monotonic() < found[0]

    def add(self, address: str) -> None:
        """A failure while it is avoided anyway, as of a heartbeat, does not make that longer."""
        if address not in self:
            avoid_s = min(2 * self._until.get(address, (0.0, _AVOID_S / 2))[1], _AVOID_LONGEST_S)
            self._until[address] = self._monotonic() + avoid_s, avoid_s

    def remove(self, address: str) -> None:
        self._until.pop(address, None)

    def keep(self, addresses: set[str]) -> None:
        """Forgets all others."""
        self._until = {address: found for address, found in self._until.items() if address in addresses}


@dataclass(slots=True)
class _TopicEntry:
    """The cached route of one topic. `fetched` is the value of the fetch counter after its last fetch, `learned` after
    the last one in which the nameserver knew the topic."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    route: TopicRoute | None = None
    fetched: int = 0
    learned: int = 0


class Routes:
    def __init__(self, nameservers: Nameservers, clock: Clock) -> None:
        self._nameservers = nameservers
        self._clock = clock
        self._topics: dict[str, _TopicEntry] = {}
        self._fetches = 0
        self._brokers: dict[str, dict[int, str]] = {}
        self._listeners: list[Listener] = []
        self.silent = SilentBrokers(clock.monotonic)
        self._watched: set[str] = set()
        self._topic_names: tuple[float, list[str]] | None = None
        self.missing = asyncio.Event()
        """Set when a topic is watched that has no route yet."""

    async def route(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        """The route of `topic`; NoRoute with cause and hint. `fresh` fetches it even if it is cached."""
        route = await self.find(topic, fresh=fresh)
        if route is None:
            raise await self.no_route(topic)
        return route

    async def find(self, topic: str, *, fresh: bool = False) -> TopicRoute | None:
        """The same, but None when the nameserver does not know the topic."""
        entry = self._topics.setdefault(topic, _TopicEntry())
        if entry.route is not None and not fresh:
            return entry.route
        fetches = self._fetches
        async with entry.lock:
            # A caller that waited for the lock uses the route that another one has just fetched.
            if entry.fetched <= fetches:
                await self._fetch(topic, entry)
        if entry.route is None:  # nothing to cache, and a program may ask for any number of names
            self._topics.pop(topic, None)
        return entry.route

    def cached(self, topic: str) -> TopicRoute | None:
        entry = self._topics.get(topic)
        return None if entry is None else entry.route

    def watch(self, topic: str) -> None:
        """Refreshes `topic` from now on, even without a route. A topic with a cached route is refreshed anyway."""
        self._watched.add(topic)
        if self.cached(topic) is None:
            self.missing.set()

    def on_change(self, listener: Listener) -> None:
        self._listeners.append(listener)

    # --- brokers ----------------------------------------------------------------------------------------------------

    def master_of(self, broker_name: str) -> str | None:
        return self._brokers.get(broker_name, {}).get(MASTER_ID)

    def address_of(self, broker_name: str, broker_id: int) -> tuple[str, int] | None:
        """Where to read: the address and id of this broker, or of another of the same name if it is not there, or did
        not respond lately."""
        addresses = self._brokers.get(broker_name, {})
        address = addresses.get(broker_id)
        if address is not None and address not in self.silent:
            return address, broker_id
        for other_id, other in addresses.items():
            if other not in self.silent:
                return other, other_id
        if address is not None:
            return address, broker_id
        return next(((other, other_id) for other_id, other in addresses.items()), None)

    def addresses(self, *, slaves: bool = True) -> set[str]:
        return {
            address
            for addresses in self._brokers.values()
            for broker_id, address in addresses.items()
            if slaves or broker_id == MASTER_ID
        }

    # --- fetching ---------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Fetches the routes of all topics in use, then drops brokers that no route names any more."""
        in_use = {topic for topic, entry in self._topics.items() if entry.route is not None}
        for topic in sorted(in_use | self._watched):
            if not await self._refresh_topic(topic):
                return
        entries = sorted(self._topics.values(), key=lambda entry: entry.learned)  # a kept route may name a dead master
        routes = [entry.route for entry in entries if entry.route is not None]
        self._brokers = {data.broker_name: data.broker_addrs for route in routes for data in route.broker_datas}
        self.silent.keep(self.addresses())

    async def fetch_missing(self) -> None:
        """Fetches the watched topics that have no route yet."""
        self.missing.clear()
        for topic in [topic for topic in self._watched if self.cached(topic) is None]:
            if not await self._refresh_topic(topic):
                return

    async def _refresh_topic(self, topic: str) -> bool:
        """False if no nameserver answers: then other topics need not be tried."""
        try:
            await self.find(topic, fresh=True)
        except NoRoute:  # no nameserver answers, which `Nameservers` has logged: keep the cached route
            return False
        except ArianeError as error:
            log.warning("route not refreshed", extra={"topic": topic, "reason": str(error)})
        return True

    async def _fetch(self, topic: str, entry: _TopicEntry) -> None:
        try:
            response = await self._nameservers.call(GetRoute(topic, accept_standard_json_only=True))
        except RequestFailed as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            if entry.route is not None:
                log.debug("route kept: the nameserver does not know the topic", extra={"topic": topic})
        else:
            self._store(topic, entry, response.body)
            entry.learned = self._fetches + 1
        self._fetches += 1
        entry.fetched = self._fetches

    def _store(self, topic: str, entry: _TopicEntry, route: TopicRoute) -> None:
        changed = route != entry.route
        entry.route = route
        self._brokers.update({data.broker_name: data.broker_addrs for data in route.broker_datas})
        if changed:
            log.info(
                "route learned", extra={"topic": topic, "brokers": [data.broker_name for data in route.broker_datas]}
            )
            for listener in self._listeners:
                listener(topic, route)

    # --- no route ---------------------------------------------------------------------------------------------------

    async def no_route(self, topic: str) -> NoRoute:
        """The error for a topic that no nameserver knows, with a hint and similar topic names."""
        names = self._nameservers.names
        similar = difflib.get_close_matches(topic, await self._known_topics(), n=3)
        hint = f"; similar topics: {', '.join(similar)}" if similar else ""
        return NoRoute(
            f"no route for topic {topic} at {names}: create it with `ariane topic create {topic} -n {names}`, "
            f"or turn on autoCreateTopicEnable at the brokers{hint}"
        )

    async def _known_topics(self) -> list[str]:
        """Cached for some seconds: a failing program may ask in a loop, and the list may be long."""
        now = self._clock.monotonic()
        if self._topic_names is None or now - self._topic_names[0] > _TOPIC_NAMES_TTL_S:
            try:
                self._topic_names = now, (await self._nameservers.call(ListTopics())).body.topic_list
            except ArianeError:  # only a hint is lost
                self._topic_names = now, []
        return self._topic_names[1]
