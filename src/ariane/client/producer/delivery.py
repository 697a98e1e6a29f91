"""Delivery with retries: send, and after a failure send again, all within one timeout.

queue_selection.py chooses the queue of each attempt.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from ariane.client.core.instance import Instance
from ariane.client.producer.queue_selection import QueueSelection, publish_queues, template_route
from ariane.client.producer.request import SendRequest
from ariane.client.producer.result import SendResult, results_of
from ariane.client.producer.settings import ProducerSettings
from ariane.errors import (
    ArianeError,
    ConnectFailed,
    MessageRejected,
    NoRoute,
    RequestFailed,
    SendFailed,
    TransportError,
    WireError,
)
from ariane.lifecycle import Backoff
from ariane.model.route import MessageQueue, TopicRoute
from ariane.wire.codes import ResponseCode

log = logging.getLogger(__name__)

# Apache's retryResponseCodes: another broker may accept the message. SYSTEM_BUSY is among them from 5.x on.
RETRY_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)

# With these codes the message was certainly not stored. After SYSTEM_ERROR or a failed sync that is unknown.
_NOT_STORED_CODES = frozenset({ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SYSTEM_BUSY, ResponseCode.NO_PERMISSION})


@dataclass(slots=True)
class _SendState:
    """The state of one send: the request, its fixed queue if it has one, and the failures so far."""

    send_request: SendRequest
    fixed: MessageQueue | None
    deadline: float
    first: MessageQueue | None = None
    """The queue of the first attempt, if round robin has already chosen it."""
    failures: list[str] = field(default_factory=list)
    not_stored: int = 0
    """How many of the failures prove that nothing was stored."""
    last_broker: str | None = None
    backoff: Backoff = field(default_factory=lambda: Backoff(first_s=0.1))


class Delivery:
    """Sends requests of one producer, with retries on other brokers."""

    def __init__(self, instance: Instance, settings: ProducerSettings) -> None:
        self._instance = instance
        self._settings = settings
        self.selection = QueueSelection(instance.clock.monotonic, latency_fault=settings.latency_fault)
        self._queues: dict[str, tuple[TopicRoute, Sequence[MessageQueue]]] = {}

    # --- queues -----------------------------------------------------------------------------------------------------

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues for messages of `topic`; for a topic that does not exist those of the template topic TBW102."""
        routes = self._instance.routes
        route = await routes.find(topic)
        cached = self._queues.get(topic)
        if cached is not None and cached[0] is route:  # the common case: no need to list them again
            return cached[1]
        if route is None:
            template = await routes.find(self._settings.template_topic)
            if template is None:
                raise await routes.no_route(topic)
            route = template_route(template, self._settings.template_queues)
        queues = publish_queues(topic, route) or await self._refreshed_queues(topic)
        if not queues:
            raise NoRoute(
                f"topic {topic} has no queue that takes messages: its brokers have no master, or the topic has no "
                "write permission; start the master, or give the topic permission 6"
            )
        if route is routes.cached(topic):
            self._queues[topic] = route, tuple(queues)
        return queues

    async def _refreshed_queues(self, topic: str) -> list[MessageQueue]:
        """A permission that was just changed is not in the cached route."""
        route = await self._instance.routes.find(topic, fresh=True)
        return [] if route is None else publish_queues(topic, route)

    # --- sending ----------------------------------------------------------------------------------------------------

    async def send(
        self,
        send_request: SendRequest,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
        first: MessageQueue | None = None,
    ) -> list[SendResult]:
        """A result for each message. With a `queue`, every attempt goes there; `first` is for the first one only."""
        timeout_s = self._settings.send_timeout_s if timeout_s is None else timeout_s
        state = _SendState(send_request, queue, self._instance.clock.monotonic() + timeout_s, first)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._attempts(state, self._settings.retries)
        except TimeoutError:
            raise self._failed(state, f"no success within {timeout_s} s") from None

    async def resume_after(
        self, send_request: SendRequest, queue: MessageQueue, error: ArianeError, timeout_s: float, left_s: float
    ) -> list[SendResult]:
        """As `send`, after a first attempt at `queue` (by the fast path) that failed with `error`."""
        state = _SendState(send_request, None, self._instance.clock.monotonic() + left_s, last_broker=queue.broker_name)
        try:
            async with asyncio.timeout(left_s):
                await self._handle_failure(state, queue, error, self._settings.retries)
                return await self._attempts(state, self._settings.retries - 1, error)
        except TimeoutError:
            raise self._failed(state, f"no success within {timeout_s} s") from None

    def cached_queues(self, topic: str) -> Sequence[MessageQueue] | None:
        """What `queues` returns, if that needs no request."""
        cached = self._queues.get(topic)
        return cached[1] if cached is not None and cached[0] is self._instance.routes.cached(topic) else None

    async def send_oneway(self, send_request: SendRequest, queue: MessageQueue | None = None) -> None:
        queue = queue or self.selection.choose(await self.queues(send_request.topic))
        request = send_request.wire_request(queue, self._settings, self._instance.clock.now_ms())
        await self._instance.oneway(self._address(queue), request)

    async def _attempts(
        self, state: _SendState, retries: int, last_error: ArianeError | None = None
    ) -> list[SendResult]:
        for retries_left in range(retries, -1, -1):
            queues = await self.queues(state.send_request.topic)
            queue = state.fixed or state.first or self.selection.choose(queues, state.last_broker)
            state.first = None
            if queue.broker_name == state.last_broker:
                # The same broker again, because there is no other: give it some time.
                await self._instance.clock.sleep(state.backoff.next_s())
            state.last_broker = queue.broker_name
            try:
                results = await self._attempt(state, queue, self._attempt_timeout_s(state, queues, retries_left))
            except (TransportError, RequestFailed, WireError) as error:
                last_error = error
                await self._handle_failure(state, queue, error, retries_left)
                continue
            if retries_left and self._settings.retry_when_not_ok and not results[0].is_ok:
                state.failures.append(f"{queue.broker_name}: {results[0].status}")
                continue
            return results
        raise self._failed(state, f"{self._settings.retries + 1} attempts failed") from last_error

    async def _attempt(self, state: _SendState, queue: MessageQueue, timeout_s: float) -> list[SendResult]:
        clock = self._instance.clock
        began = clock.monotonic()
        request = state.send_request.wire_request(queue, self._settings, clock.now_ms())
        response = await self._instance.call(self._address(queue), request, timeout_s)
        self.selection.record_latency(queue, clock.monotonic() - began)
        return results_of(response, queue, state.send_request.unique_keys)

    async def _handle_failure(
        self, state: _SendState, queue: MessageQueue, error: ArianeError, retries_left: int
    ) -> None:
        self._record_failure(state, queue, error)
        if retries_left:
            await self._refresh_route(state.send_request.topic)

    def _record_failure(self, state: _SendState, queue: MessageQueue, error: ArianeError) -> None:
        """Raises errors that no other attempt can fix."""
        if isinstance(error, RequestFailed) and error.code == ResponseCode.MESSAGE_ILLEGAL:
            raise MessageRejected(f"broker {queue.broker_name} refuses the message: {error.remark}") from error
        if isinstance(error, RequestFailed) and error.code not in RETRY_CODES:
            raise error
        if isinstance(error, WireError):
            state.failures.append(f"{queue.broker_name}: {error}")
            raise self._failed(state, "the broker's response cannot be read") from error
        self.selection.record_failure(queue)
        state.failures.append(f"{queue.broker_name}: {error}")
        not_stored = isinstance(error, RequestFailed) and error.code in _NOT_STORED_CODES
        state.not_stored += not_stored or isinstance(error, ConnectFailed)
        log.info(
            "attempt to send failed",
            extra={"topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id, "reason": str(error)},
        )

    def _attempt_timeout_s(self, state: _SendState, queues: Sequence[MessageQueue], retries_left: int) -> float:
        """Half of the remaining time if another broker can be tried: one that does not respond must not use it all."""
        left_s = max(0.0, state.deadline - self._instance.clock.monotonic())
        has_choice = state.fixed is None and queues[0].broker_name != queues[-1].broker_name
        return left_s / 2 if retries_left and has_choice else left_s

    async def _refresh_route(self, topic: str) -> None:
        """A broker that failed may have left the route. If the nameservers fail, too, the cached route is kept."""
        try:
            await self._instance.routes.find(topic, fresh=True)
        except ArianeError as error:
            log.debug("route not refreshed", extra={"topic": topic, "reason": str(error)})

    def _address(self, queue: MessageQueue) -> str:
        master = self._instance.routes.master_of(queue.broker_name)
        if master is None:
            raise ConnectFailed(
                f"broker {queue.broker_name} has no master in any known route: start it, or choose another queue"
            )
        return self._instance.send_address(master)

    def _failed(self, state: _SendState, summary: str) -> SendFailed:
        keys = state.send_request.unique_keys
        which = keys[0] if len(keys) == 1 else f"{keys[0]} and {len(keys) - 1} more"
        names = self._instance.nameservers.names
        details = "; ".join(state.failures) or f"no attempt was finished: check that the nameservers ({names}) respond"
        text = f"message {which} to topic {state.send_request.topic}: {summary} ({details}). "
        if state.failures and state.not_stored == len(state.failures):
            return SendFailed(f"{text}It was not stored: fix the cause, and send it again")
        return SendFailed(
            f"{text}It may have been stored nevertheless: send it again if a duplicate does no harm, and check that "
            "the brokers run"
        )
