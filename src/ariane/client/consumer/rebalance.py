"""Who owns which queue: looked at every 20 s, and at once when members or routes change."""

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Protocol

from ariane.client.consumer.allocation import Allocation
from ariane.client.core.instance import Instance
from ariane.client.core.queue_bounds import readable_queues
from ariane.errors import ArianeError
from ariane.lifecycle import Backoff, Job, every
from ariane.model.group import MessageModel
from ariane.model.ids import RETRY_PREFIX
from ariane.model.route import MessageQueue, TopicRoute

log = logging.getLogger(__name__)

INTERVAL_S = 20.0

QueuesChanged = Callable[[str, frozenset[MessageQueue], frozenset[MessageQueue]], None]
"""Told the topic, all its queues, and those that are now ours."""


class RetentionHold(Protocol):
    """What takes and gives up queues."""

    def of(self, topic: str) -> set[MessageQueue]: ...
    async def take(self, queue: MessageQueue) -> bool: ...
    def give_up(self, queue: MessageQueue) -> None: ...


class Rebalance:
    def __init__(
        self,
        instance: Instance,
        group: str,
        model: MessageModel,
        allocation: Allocation,
        topics: Collection[str],
        holder: RetentionHold,
    ) -> None:
        """`topics` is looked at in each round: the consumer's own, living collection."""
        self._instance = instance
        self._group = group
        self._model = model
        self._allocation = allocation
        self._topics = topics
        self._holder = holder
        self._due = asyncio.Event()
        self._seen: dict[str, tuple[frozenset[MessageQueue], frozenset[MessageQueue]]] = {}
        self._listeners: list[QueuesChanged] = []
        self._warned: set[str] = set()
        instance.routes.on_change(self._route_changed)

    def soon(self) -> None:
        self._due.set()

    def on_change(self, listener: QueuesChanged) -> None:
        self._listeners.append(listener)

    def jobs(self) -> list[Job]:
        return [partial(every, self._instance.clock, INTERVAL_S, self.soon, INTERVAL_S), self._run]

    async def _run(self) -> None:
        backoff = Backoff(first_s=0.5, longest_s=INTERVAL_S)
        while True:
            self._due.clear()
            if await self.round():
                backoff.reset()
                await self._due.wait()
            else:
                await self._instance.clock.sleep(backoff.next_s())

    async def round(self) -> bool:
        """Brings what we hold in line with what is ours; False when something is missing that may come soon."""
        complete = True
        for topic in [*self._seen.keys() - set(self._topics)]:
            self._apply_lost(topic, frozenset())
            del self._seen[topic]
        for topic in list(self._topics):
            try:
                complete &= await self._round_of(topic)
            except ArianeError as error:  # keep what we hold: not to know is no reason to stop
                log.warning("rebalance failed", extra={"topic": topic, "reason": str(error)})
                complete = False
        return complete

    async def _round_of(self, topic: str) -> bool:
        route = await self._instance.routes.find(topic)
        if route is None:
            await self._warn_of(topic)
            return False
        everything = frozenset(readable_queues(topic, route))
        members = await self._members(topic)
        if members is None:
            return False
        mine = frozenset(self._allocation.queues_of(self._instance.client_id, everything, members))
        if self._model is MessageModel.BROADCASTING:
            mine = everything
        return await self._apply(topic, everything, mine)

    async def _apply(self, topic: str, everything: frozenset[MessageQueue], mine: frozenset[MessageQueue]) -> bool:
        self._apply_lost(topic, mine)
        taken = True
        for queue in sorted(mine):
            taken &= await self._holder.take(queue)
        if self._seen.get(topic) != (everything, mine):
            self._seen[topic] = (everything, mine)
            log.info("queues shared out", extra={"topic": topic, "all": len(everything), "mine": len(mine)})
            for listener in self._listeners:
                listener(topic, everything, mine)
        return taken

    def _apply_lost(self, topic: str, mine: frozenset[MessageQueue]) -> None:
        for queue in self._holder.of(topic) - mine:
            self._holder.give_up(queue)

    async def _members(self, topic: str) -> list[str] | None:
        """The group as the broker sees it. None when it does not see us: our heartbeat may still be on its way."""
        if self._model is MessageModel.BROADCASTING:
            return [self._instance.client_id]
        members = await self._instance.consumer_ids(topic, self._group)
        if self._instance.client_id not in members:
            await self._instance.heartbeat_now()
            members = await self._instance.consumer_ids(topic, self._group)
        return members if self._instance.client_id in members else None

    async def _warn_of(self, topic: str) -> None:
        """Once: a retry topic comes with the first heartbeat, and any other perhaps with the first message."""
        if topic not in self._warned and not topic.startswith(RETRY_PREFIX):
            self._warned.add(topic)
            log.warning(
                "nothing to consume yet",
                extra={"topic": topic, "reason": str(await self._instance.routes.no_route(topic))},
            )

    def _route_changed(self, topic: str, _route: TopicRoute) -> None:
        if topic in self._topics:
            self.soon()
