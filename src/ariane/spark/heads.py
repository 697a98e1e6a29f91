"""Where the queues of a stream end, asked of the brokers at most every few milliseconds.

Spark asks a hundred times a second while there is nothing new. A queue that was once seen stays, and a broker that
does not answer keeps the ends it last told: a stream waits for it and goes on with the others meanwhile.
"""

import logging
from collections.abc import Callable
from time import monotonic

from ariane.errors import ArianeError
from ariane.model.route import MessageQueue
from ariane.spark.cluster import Ends
from ariane.spark.planning import Planner

log = logging.getLogger(__name__)

_ASK_INTERVAL_S = 0.05


class Heads:
    def __init__(
        self,
        planner: Planner,
        route_refresh_s: float,
        *,
        fail_on_data_loss: bool,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        self._planner = planner
        self._route_refresh_s = route_refresh_s
        self._fails = fail_on_data_loss
        self._now_s = now_s
        self._ends: dict[MessageQueue, Ends] = {}
        self._routes_at = float("-inf")
        self._asked_at = float("-inf")

    def now(self) -> dict[MessageQueue, Ends]:
        """At most some milliseconds old."""
        if self._now_s() - self._asked_at >= _ASK_INTERVAL_S:
            self.refresh()
        return self._ends

    def refresh(self) -> None:
        if self._now_s() - self._routes_at >= self._route_refresh_s:
            self._look_for_queues()
        self._ask_brokers()
        self._asked_at = self._now_s()

    def _look_for_queues(self) -> None:
        try:
            queues = self._planner.queues()
        except ArianeError as error:
            if not self._ends:
                raise
            log.warning("queues not looked for: %s", error)
        else:
            for queue in queues:
                self._ends.setdefault(queue, Ends(-1, -1))
            self._routes_at = self._now_s()

    def _ask_brokers(self) -> None:
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in self._ends:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        told: dict[MessageQueue, Ends] = {}
        for queues in by_broker.values():
            try:
                told |= self._planner.ends(queues)
            except ArianeError as error:
                if (self._fails and not error.retriable) or any(self._ends[queue].next < 0 for queue in queues):
                    raise
                log.warning("a broker does not tell the ends of its queues: %s", error)
                self._routes_at = float("-inf")  # it may have moved
        self._ends |= told
