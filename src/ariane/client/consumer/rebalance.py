"""Rebalance: updates the assigned queues of each topic every 20 s, and when members or routes change."""

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Protocol

from ariane.client.consumer.allocation import Allocation
from ariane.client.core.instance import Instance
from ariane.client.core.queue_bounds import readable_queues
from ariane.errors import ArianeError
from ariane.lifecycle import Backoff, Job, TaskSet, every
from ariane.model.group import MessageModel
from ariane.model.ids import RETRY_PREFIX
from ariane.model.route import MessageQueue, TopicRoute

log = logging.getLogger(__name__)

INTERVAL_S = 20.0
_WAIT_S_MAX = 5.0
"""A queue that its last member has just unlocked, or whose broker is back, must not wait for long."""

QueuesChanged = Callable[[str, frozenset[MessageQueue], frozenset[MessageQueue]], None]
"""Called with the topic, all its queues, and those that are now assigned to this consumer."""


class QueueAssignments(Protocol):
    """Assigns and revokes queues."""

    def of(self, topic: str) -> set[MessageQueue]: ...
    async def assign(self, queue: MessageQueue) -> bool: ...
    def revoke(self, queue: MessageQueue) -> None: ...


class Rebalance:
    def __init__(
        self,
        instance: Instance,
        group: str,
        model: MessageModel,
        allocation: Allocation,
        topics: Collection[str],
        assigned: QueueAssignments,
    ) -> None:
        """`topics` is read in each pass, so the consumer may change it."""
        self._instance = instance
        self._group = group
        self._model = model
        self._allocation = allocation
        self._topics = topics
        self._assigned = assigned
        self._due = asyncio.Event()
        self._last: dict[str, tuple[frozenset[MessageQueue], frozenset[MessageQueue]]] = {}
        self._listeners: list[QueuesChanged] = []
        self._warned: set[str] = set()
        self._is_waiting = False
        """Whether a queue of this member still belongs to another, or a broker did not respond."""
        instance.routes.on_change(self._route_changed)

    def trigger(self) -> None:
        """Runs a pass soon."""
        self._due.set()

    def on_change(self, listener: QueuesChanged) -> None:
        self._listeners.append(listener)

    def jobs(self) -> list[Job]:
        return [partial(every, self._instance.clock, INTERVAL_S, self.trigger, INTERVAL_S), self._run]

    async def _run(self) -> None:
        backoff = Backoff(first_s=0.5, longest_s=INTERVAL_S)
        while True:
            self._due.clear()
            if await self.run_once():
                backoff.reset()
                await self._due.wait()
            else:
                await self._wait_at_most(min(backoff.next_s(), _WAIT_S_MAX if self._is_waiting else INTERVAL_S))

    async def _wait_at_most(self, seconds: float) -> None:
        """Until the next trigger: members that join or leave change what is missing."""
        timer = TaskSet()
        timer.spawn(self._trigger_after(seconds))
        try:
            await self._due.wait()
        finally:
            timer.cancel()

    async def _trigger_after(self, seconds: float) -> None:
        await self._instance.clock.sleep(seconds)
        self.trigger()

    async def run_once(self) -> bool:
        """One pass over all topics; False if something is missing that may be there soon."""
        complete = True
        self._is_waiting = False
        for topic in [*self._last.keys() - set(self._topics)]:
            self._revoke_all_but(topic, frozenset())
            del self._last[topic]
        for topic in list(self._topics):
            try:
                complete &= await self._rebalance_topic(topic)
            except ArianeError as error:  # keep the current queues: an unknown state is no reason to stop
                log.warning("rebalance failed", extra={"topic": topic, "reason": str(error)})
                complete, self._is_waiting = False, True
        return complete

    async def _rebalance_topic(self, topic: str) -> bool:
        route = await self._instance.routes.find(topic)
        if route is None:
            await self._warn_once(topic)
            return False
        all_queues = frozenset(readable_queues(topic, route))
        members = await self._members(topic)
        if members is None:
            self._is_waiting = True
            return False
        mine = frozenset(self._allocation.queues_of(self._instance.client_id, all_queues, members))
        if self._model is MessageModel.BROADCASTING:
            mine = all_queues
        return await self._apply(topic, all_queues, mine)

    async def _apply(self, topic: str, all_queues: frozenset[MessageQueue], mine: frozenset[MessageQueue]) -> bool:
        self._revoke_all_but(topic, mine)
        complete = True
        for queue in sorted(mine):
            complete &= await self._assigned.assign(queue)
        self._is_waiting |= not complete
        if self._last.get(topic) != (all_queues, mine):
            self._last[topic] = (all_queues, mine)
            log.info("queues rebalanced", extra={"topic": topic, "all": len(all_queues), "mine": len(mine)})
            for listener in self._listeners:
                listener(topic, all_queues, mine)
        return complete

    def _revoke_all_but(self, topic: str, mine: frozenset[MessageQueue]) -> None:
        for queue in self._assigned.of(topic) - mine:
            self._assigned.revoke(queue)

    async def _members(self, topic: str) -> list[str] | None:
        """The client ids of the group at a broker. None if this client is missing: its heartbeat may be in flight."""
        if self._model is MessageModel.BROADCASTING:
            return [self._instance.client_id]
        members = await self._instance.consumer_ids(topic, self._group)
        if self._instance.client_id not in members:
            await self._instance.heartbeat_now()
            members = await self._instance.consumer_ids(topic, self._group)
        return members if self._instance.client_id in members else None

    async def _warn_once(self, topic: str) -> None:
        """Not for a retry topic, which the first heartbeat creates."""
        if topic not in self._warned and not topic.startswith(RETRY_PREFIX):
            self._warned.add(topic)
            log.warning(
                "nothing to consume yet",
                extra={"topic": topic, "reason": str(await self._instance.routes.no_route(topic))},
            )

    def _route_changed(self, topic: str, _route: TopicRoute) -> None:
        if topic in self._topics:
            self.trigger()
