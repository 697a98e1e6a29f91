"""Routes: which brokers hold a topic, asked once, kept, and asked again every 30 s.

What was known stays known while the nameservers are down, or while one that has just started does not know its brokers
yet: an old route that still works is worth more than none.
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

# --- nameservers ---
#
# The nameservers as one: whichever answers is used until it fails.

log = logging.getLogger(__name__)

A = TypeVar("A", bound=Response)


class Calls(Protocol):
    async def call(self, address: str, request: Request[A], timeout_s: float | None = None) -> A: ...


class Nameservers:
    def __init__(self, addresses: Sequence[str], calls: Calls, timeout_s: float) -> None:
        # In a random order, so that many clients with one list do not all lean on its first entry.
        self._addresses = random.sample(addresses, len(addresses))
        self._calls = calls
        self._timeout_s = timeout_s
        self.names = ";".join(addresses)

    async def ask(self, request: Request[A]) -> A:
        """The answer of the first that gives one; RequestFailed is an answer. NoRoute when all are silent."""
        silent: list[str] = []
        for address in list(self._addresses):
            try:
                return await self._calls.call(address, request, self._timeout_s)
            except TransportError as error:
                silent.append(f"{address}: {error}")
                self._put_last(address)
            except RequestFailed as error:
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                raise NoRoute(
                    f"{address} is no nameserver (the port of a broker?): it does not know {type(request).__name__}; "
                    f"correct the list of nameservers ({self.names})"
                ) from error
        log.warning("no nameserver answers", extra={"nameservers": self.names, "reason": "; ".join(silent)})
        raise NoRoute(
            f"no nameserver answers ({'; '.join(silent)}): start one, for example with `ariane up`, "
            f"or correct the list of nameservers ({self.names})"
        )

    def _put_last(self, address: str) -> None:
        if address == self._addresses[0]:
            self._addresses.append(self._addresses.pop(0))


# ---

Listener = Callable[[str, TopicRoute], None]

_TOPIC_NAMES_KEPT_S = 5.0


@dataclass(slots=True)
class _Slot:
    """What is known about one topic. `turn` says when it was last asked, as a count of all asks."""

    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    route: TopicRoute | None = None
    turn: int = 0


class Routes:
    def __init__(self, nameservers: Nameservers, clock: Clock) -> None:
        self._nameservers = nameservers
        self._clock = clock
        self._slots: dict[str, _Slot] = {}
        self._turn = 0
        self._brokers: dict[str, dict[int, str]] = {}
        self._listeners: list[Listener] = []
        self._watched: set[str] = set()
        self._topic_names: tuple[float, list[str]] | None = None
        self.wanted = asyncio.Event()
        """Set when a topic is watched that has no route yet."""

    async def route(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        """The route of `topic`; NoRoute with cause and cure. `fresh` asks even when it is known."""
        found = await self.find(topic, fresh=fresh)
        if found is None:
            raise await self.no_route(topic)
        return found

    async def find(self, topic: str, *, fresh: bool = False) -> TopicRoute | None:
        """The same, but None when the nameserver does not know the topic."""
        slot = self._slots.setdefault(topic, _Slot())
        if slot.route is not None and not fresh:
            return slot.route
        came_at = self._turn
        async with slot.asking:
            # Whoever waited here shares what the one before has just heard.
            if slot.turn <= came_at:
                await self._ask(topic, slot)
        if slot.route is None:  # nothing to keep, and a program may ask for any number of names
            self._slots.pop(topic, None)
        return slot.route

    def known(self, topic: str) -> TopicRoute | None:
        slot = self._slots.get(topic)
        return None if slot is None else slot.route

    def watch(self, topic: str) -> None:
        """Keeps asking for `topic`, known or not. A topic that was asked for once is watched from then on."""
        self._watched.add(topic)
        if self.known(topic) is None:
            self.wanted.set()

    def on_change(self, listener: Listener) -> None:
        self._listeners.append(listener)

    # --- brokers ----------------------------------------------------------------------------------------------------

    def master_of(self, broker_name: str) -> str | None:
        return self._brokers.get(broker_name, {}).get(MASTER_ID)

    def address_of(self, broker_name: str, broker_id: int, *, only_this: bool = False) -> tuple[str, int] | None:
        """The address and id of this broker, or of any other of the same name unless `only_this` one will do."""
        addresses = self._brokers.get(broker_name, {})
        if broker_id in addresses:
            return addresses[broker_id], broker_id
        if only_this or not addresses:
            return None
        other_id, address = next(iter(addresses.items()))
        return address, other_id

    def addresses(self, *, slaves: bool = True) -> set[str]:
        return {
            address
            for addresses in self._brokers.values()
            for broker_id, address in addresses.items()
            if slaves or broker_id == MASTER_ID
        }

    # --- asking -----------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Asks for every topic in use, then forgets brokers that no route names any more."""
        in_use = {topic for topic, slot in self._slots.items() if slot.route is not None}
        for topic in sorted(in_use | self._watched):
            if not await self._refresh_one(topic):
                return
        routes = [slot.route for slot in self._slots.values() if slot.route is not None]
        self._brokers = {data.broker_name: data.broker_addrs for route in routes for data in route.broker_datas}

    async def fetch_wanted(self) -> None:
        """Asks for the watched topics that have no route yet."""
        self.wanted.clear()
        for topic in [topic for topic in self._watched if self.known(topic) is None]:
            if not await self._refresh_one(topic):
                return

    async def _refresh_one(self, topic: str) -> bool:
        """Whether it is worth asking for more."""
        try:
            await self.find(topic, fresh=True)
        except NoRoute:  # no nameserver answers, which the nameservers have logged: keep what is known
            return False
        except ArianeError as error:
            log.warning("route not refreshed", extra={"topic": topic, "reason": str(error)})
        return True

    async def _ask(self, topic: str, slot: _Slot) -> None:
        try:
            response = await self._nameservers.ask(GetRoute(topic, accept_standard_json_only=True))
        except RequestFailed as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            if slot.route is not None:
                log.debug("route kept: the nameserver does not know the topic", extra={"topic": topic})
        else:
            self._learn(topic, slot, response.body)
        self._turn += 1
        slot.turn = self._turn

    def _learn(self, topic: str, slot: _Slot, route: TopicRoute) -> None:
        changed = route != slot.route
        slot.route = route
        self._brokers.update({data.broker_name: data.broker_addrs for data in route.broker_datas})
        if changed:
            log.info(
                "route learned", extra={"topic": topic, "brokers": [one.broker_name for one in route.broker_datas]}
            )
            for listener in self._listeners:
                listener(topic, route)

    # --- no route ---------------------------------------------------------------------------------------------------

    async def no_route(self, topic: str) -> NoRoute:
        """The error for a topic that no nameserver knows: what to do, and what was perhaps meant."""
        names = self._nameservers.names
        similar = difflib.get_close_matches(topic, await self._known_topics(), n=3)
        hint = f"; similar topics: {', '.join(similar)}" if similar else ""
        return NoRoute(
            f"no route for topic {topic} at {names}: create it with `ariane topic create {topic} -n {names}`, "
            f"or turn on autoCreateTopicEnable at the brokers{hint}"
        )

    async def _known_topics(self) -> list[str]:
        """Kept for some seconds: a program in error asks in a loop, and the list may be long."""
        now = self._clock.monotonic()
        if self._topic_names is None or now - self._topic_names[0] > _TOPIC_NAMES_KEPT_S:
            try:
                self._topic_names = now, (await self._nameservers.ask(ListTopics())).body.topic_list
            except ArianeError:  # only a hint is lost
                self._topic_names = now, []
        return self._topic_names[1]
