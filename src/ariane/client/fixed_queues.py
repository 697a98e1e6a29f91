"""Queues chosen by hand: held whatever the group's other members do."""

import asyncio
import logging
from collections.abc import Collection

from ariane.client.held_queues import HeldQueues
from ariane.client.instance import Instance
from ariane.errors import ArianeError
from ariane.lifecycle import Backoff
from ariane.model.route import MessageQueue

log = logging.getLogger(__name__)


class FixedQueues:
    """Does for chosen queues what `Rebalance` does for shared ones; nothing until some are chosen."""

    def __init__(self, instance: Instance, holder: HeldQueues) -> None:
        self._instance = instance
        self._holder = holder
        self._wanted: frozenset[MessageQueue] | None = None
        self._due = asyncio.Event()

    def assign(self, queues: Collection[MessageQueue]) -> None:
        self._wanted = frozenset(queues)
        self._due.set()

    async def run(self) -> None:
        backoff = Backoff(first_s=0.2, longest_s=5.0)
        while True:
            self._due.clear()
            if await self.round():
                backoff.reset()
                await self._due.wait()
            else:
                await self._instance.clock.sleep(backoff.next_s())

    async def round(self) -> bool:
        if self._wanted is None:
            return True
        for held in self._holder.all():
            if held.queue not in self._wanted:
                self._holder.give_up(held.queue)
        return all([await self._take(queue) for queue in sorted(self._wanted)])

    async def _take(self, queue: MessageQueue) -> bool:
        try:
            return await self._holder.take(queue)
        except ArianeError as error:
            log.warning("queue not taken yet", extra={"queue": queue, "reason": str(error)})
            return False
