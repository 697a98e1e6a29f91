"""Attempts: choose a queue, send, and if that fails choose another, all within one time-out."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from ariane.client.core.instance import Instance
from ariane.client.producer.queue_selection import FaultTable, RoundRobin, publish_queues, template_route
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

# Apache's retryResponseCodes: another broker may well say yes. SYSTEM_BUSY is among them from 5.x on.
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

# With these a broker says that it has not even tried; after SYSTEM_ERROR or a failed sync nobody knows.
_NOT_STORED_CODES = frozenset({ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SYSTEM_BUSY, ResponseCode.NO_PERMISSION})


@dataclass(slots=True)
class _Sending:
    """One parcel on its way: which queue it must go to, if any, and what failed so far."""

    parcel: SendRequest
    fixed: MessageQueue | None
    deadline: float
    first: MessageQueue | None = None
    """Where the first attempt goes, when a queue has been taken in its turn already."""
    failures: list[str] = field(default_factory=list)
    refusals: int = 0
    """How many of the failures say for sure that nothing was stored."""
    last_broker: str | None = None
    backoff: Backoff = field(default_factory=lambda: Backoff(first_s=0.1))


class Delivery:
    def __init__(self, instance: Instance, settings: ProducerSettings) -> None:
        self._instance = instance
        self._settings = settings
        self._faults = FaultTable()
        self._round_robin: dict[str, RoundRobin] = {}
        self._queues: dict[str, tuple[TopicRoute, Sequence[MessageQueue]]] = {}

    # --- queues -----------------------------------------------------------------------------------------------------

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """Where messages of `topic` may go; a topic that does not exist goes where TBW102 is."""
        routes = self._instance.routes
        route = await routes.find(topic)
        known = self._queues.get(topic)
        if known is not None and known[0] is route:  # nearly always: no need to list them anew
            return known[1]
        if route is None:
            template = await routes.find(self._settings.template_topic)
            if template is None:
                raise await routes.no_route(topic)
            route = template_route(template, self._settings.template_queues)
        queues = publish_queues(topic, route) or await self._queues_now(topic)
        if not queues:
            raise NoRoute(
                f"topic {topic} has no queue that takes messages: its brokers have no master, or the topic has no "
                "write permission; start the master, or give the topic permission 6"
            )
        if route is routes.known(topic):
            self._queues[topic] = route, tuple(queues)
        return queues

    async def _queues_now(self, topic: str) -> list[MessageQueue]:
        """A permission that was just repaired is not in the route we remember."""
        route = await self._instance.routes.find(topic, fresh=True)
        return [] if route is None else publish_queues(topic, route)

    def choose(self, queues: Sequence[MessageQueue], last_broker: str | None = None) -> MessageQueue:
        """The next queue in turn, on another broker than the one that just failed where there is one."""
        topic = queues[0].topic
        turn = self._round_robin.get(topic) or self._round_robin.setdefault(topic, RoundRobin())
        if self._settings.latency_fault:
            now = self._instance.clock.monotonic()
            chosen = turn.pick(queues, usable=lambda broker: self._faults.is_usable(broker, now))
            if chosen is not None:
                return chosen
            better = self._faults.least_bad(now)
            chosen = turn.pick(queues, usable=lambda broker: broker == better)
            if chosen is not None:
                return chosen
        chosen = turn.pick(queues, avoid=last_broker) or turn.pick(queues)
        assert chosen is not None
        return chosen

    # --- sending ----------------------------------------------------------------------------------------------------

    async def send(
        self,
        parcel: SendRequest,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
        first: MessageQueue | None = None,
    ) -> list[SendResult]:
        """A result for each message. With a `queue`, every attempt goes there; `first` is for the first one only."""
        timeout_s = self._settings.send_timeout_s if timeout_s is None else timeout_s
        sending = _Sending(parcel, queue, self._instance.clock.monotonic() + timeout_s, first)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._attempts(sending, self._settings.retries)
        except TimeoutError:
            raise self._failed(sending, f"no success within {timeout_s} s") from None

    async def go_on(
        self, parcel: SendRequest, queue: MessageQueue, error: ArianeError, timeout_s: float, left_s: float
    ) -> list[SendResult]:
        """As `send`, when its first attempt, at `queue`, was made elsewhere and ended with `error`."""
        sending = _Sending(parcel, None, self._instance.clock.monotonic() + left_s, last_broker=queue.broker_name)
        try:
            async with asyncio.timeout(left_s):
                await self._after(sending, queue, error, self._settings.retries)
                return await self._attempts(sending, self._settings.retries - 1, error)
        except TimeoutError:
            raise self._failed(sending, f"no success within {timeout_s} s") from None

    def known_queues(self, topic: str) -> Sequence[MessageQueue] | None:
        """What `queues` returns, when nobody needs to be asked."""
        known = self._queues.get(topic)
        return known[1] if known is not None and known[0] is self._instance.routes.known(topic) else None

    def took(self, queue: MessageQueue, seconds: float) -> None:
        """Notes how long a send took, for `choose`."""
        self._faults.took(queue.broker_name, seconds, self._instance.clock.monotonic())

    async def send_oneway(self, parcel: SendRequest, queue: MessageQueue | None = None) -> None:
        queue = queue or self.choose(await self.queues(parcel.topic))
        request = parcel.request(queue, self._settings, self._instance.clock.now_ms())
        await self._instance.oneway(self._address(queue), request)

    async def _attempts(
        self, sending: _Sending, retries: int, last_error: ArianeError | None = None
    ) -> list[SendResult]:
        for retries_left in range(retries, -1, -1):
            queues = await self.queues(sending.parcel.topic)
            queue = sending.fixed or sending.first or self.choose(queues, sending.last_broker)
            sending.first = None
            if queue.broker_name == sending.last_broker:
                # The same broker once more, for want of another: it needs a moment more than we do.
                await self._instance.clock.sleep(sending.backoff.next_s())
            sending.last_broker = queue.broker_name
            try:
                results = await self._attempt(sending, queue, self._time_for(sending, queues, retries_left))
            except (TransportError, RequestFailed, WireError) as error:
                last_error = error
                await self._after(sending, queue, error, retries_left)
                continue
            if retries_left and self._settings.retry_when_not_ok and not results[0].is_ok:
                sending.failures.append(f"{queue.broker_name}: {results[0].status}")
                continue
            return results
        raise self._failed(sending, f"{self._settings.retries + 1} attempts failed") from last_error

    async def _attempt(self, sending: _Sending, queue: MessageQueue, timeout_s: float) -> list[SendResult]:
        clock = self._instance.clock
        began = clock.monotonic()
        request = sending.parcel.request(queue, self._settings, clock.now_ms())
        response = await self._instance.call(self._address(queue), request, timeout_s)
        self.took(queue, clock.monotonic() - began)
        return results_of(response, queue, sending.parcel.unique_keys)

    async def _after(self, sending: _Sending, queue: MessageQueue, error: ArianeError, retries_left: int) -> None:
        self._note_failure(sending, queue, error)
        if retries_left:
            await self._look_again(sending.parcel.topic)

    def _note_failure(self, sending: _Sending, queue: MessageQueue, error: ArianeError) -> None:
        """Raises what no other attempt can mend."""
        if isinstance(error, RequestFailed) and error.code == ResponseCode.MESSAGE_ILLEGAL:
            raise MessageRejected(f"broker {queue.broker_name} refuses the message: {error.remark}") from error
        if isinstance(error, RequestFailed) and error.code not in RETRY_CODES:
            raise error
        if isinstance(error, WireError):
            sending.failures.append(f"{queue.broker_name}: {error}")
            raise self._failed(sending, "the broker's answer cannot be read") from error
        self._faults.failed(queue.broker_name, self._instance.clock.monotonic())
        sending.failures.append(f"{queue.broker_name}: {error}")
        refused = isinstance(error, RequestFailed) and error.code in _NOT_STORED_CODES
        sending.refusals += refused or isinstance(error, ConnectFailed)
        log.info(
            "attempt to send failed",
            extra={"topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id, "reason": str(error)},
        )

    def _time_for(self, sending: _Sending, queues: Sequence[MessageQueue], retries_left: int) -> float:
        """Half of what is left while another broker could be tried, so that a silent one does not take it all."""
        left_s = max(0.0, sending.deadline - self._instance.clock.monotonic())
        has_choice = sending.fixed is None and queues[0].broker_name != queues[-1].broker_name
        return left_s / 2 if retries_left and has_choice else left_s

    async def _look_again(self, topic: str) -> None:
        """A broker that failed may have left the route. What the nameservers cannot tell now is kept as it is."""
        try:
            await self._instance.routes.find(topic, fresh=True)
        except ArianeError as error:
            log.debug("route not refreshed", extra={"topic": topic, "reason": str(error)})

    def _address(self, queue: MessageQueue) -> str:
        master = self._instance.routes.master_of(queue.broker_name)
        if master is None:
            raise ConnectFailed(
                f"broker {queue.broker_name} has no master in any route known: start it, or choose another queue"
            )
        return self._instance.send_address(master)

    def _failed(self, sending: _Sending, summary: str) -> SendFailed:
        keys = sending.parcel.unique_keys
        which = keys[0] if len(keys) == 1 else f"{keys[0]} and {len(keys) - 1} more"
        names = self._instance.nameservers.names
        details = "; ".join(sending.failures) or f"no attempt was finished: is a nameserver of {names} silent?"
        told = f"message {which} to topic {sending.parcel.topic}: {summary} ({details}). "
        if sending.failures and sending.refusals == len(sending.failures):
            return SendFailed(f"{told}It was not stored: mend what they say, and send it again")
        return SendFailed(
            f"{told}It may have been stored all the same: send it again if a duplicate does no harm, and check that "
            "the brokers run"
        )
