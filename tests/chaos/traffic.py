"""Traffic of four kinds, each with its history: ordered, delayed, transactional, retried.

Each kind has its topic, its producers and its consumer group. Producers send one message after the other, each once, so
that order and outcome are known; what happens is written to the kind's history, which
`tests.simulation.delivery_history` checks.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from ariane.client.consumer.message import Received
from ariane.client.consumer.push import PushConsumer
from ariane.client.producer.producer import Producer
from ariane.client.producer.transactional import COMMIT, ROLLBACK, UNKNOWN, TransactionProducer
from ariane.client.settings import ClientSettings
from ariane.errors import ArianeError
from ariane.model.message import StoredMessage
from ariane.model.route import MessageQueue
from ariane.rpc.caller import Caller
from ariane.wire.requests.offsets import GetConsumerOffset
from ariane.wire.requests.send import Decision
from tests.simulation.delivery_history import (
    RULES,
    RULES_OF_ANY_ORDER,
    Acknowledged,
    Attempted,
    Began,
    Committed,
    Delivered,
    Ended,
    Event,
    Fault,
    Queue,
    RolledBack,
    Rule,
    violations,
)

FAST_POLLING = ClientSettings(route_poll_interval_s=1.0, heartbeat_interval_s=1.0)
DELAY_LEVELS = " ".join(["1s"] * 18)
DELAY_S = 1.0
WORK_S = 0.002
BETWEEN_SENDS_S = 0.004
_OUTCOMES = (COMMIT, ROLLBACK, UNKNOWN)


def place(queue: MessageQueue) -> Queue:
    return queue.topic, queue.broker_name, queue.queue_id


@dataclass
class History:
    """What happened to one kind of traffic."""

    rules: tuple[Rule, ...]
    events: list[Event] = field(default_factory=list)
    acknowledged: set[str] = field(default_factory=set)
    delivered: Counter[str] = field(default_factory=Counter)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def acknowledge(self, message: str, queue: Queue, offset: int, producer: str) -> None:
        self.acknowledged.add(message)
        self.events.append(Acknowledged(message, queue, offset, producer))

    def deliver(self, message: Received) -> None:
        body = message.body.decode()
        self.delivered[body] += 1
        self.events.append(Delivered(body, place(message.queue), message.queue_offset, time.time()))
        self.news.set()

    def fault(self, began_s: float, ended_s: float) -> None:
        self.events.append(Fault(began_s, ended_s))

    @property
    def is_complete(self) -> bool:
        return self.acknowledged <= self.delivered.keys()

    def violations(self) -> dict[str, list[str]]:
        return violations(self.events, self.rules)

    def summary(self) -> str:
        copies = self.delivered.total() - len(self.delivered)
        return f"{len(self.acknowledged)} acknowledged, {len(self.delivered)} delivered, {copies} more than once"


Send = Callable[[Producer, str, History], Coroutine[Any, Any, None]]


@dataclass
class Kind:
    name: str
    send: Send
    handle: Callable[["Kind", str, Received], Coroutine[Any, Any, bool | None]]
    rules: tuple[Rule, ...] = RULES_OF_ANY_ORDER
    queues: int = 4
    members: int = 2
    producers: int = 1
    ordered: bool = False
    history: History = field(init=False)

    def __post_init__(self) -> None:
        self.history = History(self.rules)

    @property
    def group(self) -> str:
        return f"{self.name}-group"

    # --- producing --------------------------------------------------------------------------------------------------

    async def produce(self, name: str, nameserver: str, stopped: asyncio.Event, ended: asyncio.Event) -> None:
        """Sends until `stopped`; answers the broker's checks until `ended`."""
        async with self._producer(nameserver) as producer:
            number = 0
            while not stopped.is_set():
                with suppress(ArianeError):  # not acknowledged: it may exist or not
                    await self.send(producer, f"{name}-{number}", self.history)
                number += 1
                await asyncio.sleep(BETWEEN_SENDS_S)
            await ended.wait()

    def _producer(self, nameserver: str) -> Producer:
        options: dict[str, Any] = {"retries": 0, "send_timeout_s": 1.0, "settings": FAST_POLLING}
        group = f"{self.name}-producers"
        if self.send is not send_in_transaction:
            return Producer(nameserver, group=group, **options)
        return TransactionProducer(nameserver, group=group, check=check, **options)

    # --- consuming --------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def consuming(self, nameserver: str) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for number in range(self.members):
                await stack.enter_async_context(self._consumer(nameserver, f"member-{number}"))
            yield

    def _consumer(self, nameserver: str, member: str) -> PushConsumer:
        async def handle(message: Received) -> bool | None:
            return await self.handle(self, member, message)

        consumer = PushConsumer(
            nameserver,
            group=self.group,
            ordered=self.ordered,
            start="earliest",
            handler=handle,
            close_timeout_s=5.0,
            settings=FAST_POLLING,
        )
        consumer.subscribe(self.name)
        return consumer

    async def observe(self, caller: Caller, broker: str, broker_name: str) -> None:
        """Writes down the group's offsets as the broker has them."""
        for queue_id in range(self.queues):
            with suppress(ArianeError):
                response = await caller.call(broker, GetConsumerOffset(self.group, self.name, queue_id), 1.0)
                self.history.events.append(Committed((self.name, broker_name, queue_id), response.offset))


# --- ways to send ---


async def send_plainly(producer: Producer, message: str, history: History) -> None:
    history.events.append(Attempted(message))
    result = await producer.send(_topic(message), message.encode())
    history.acknowledge(message, place(result.queue), result.queue_offset, message.rpartition("-")[0])


async def send_delayed(producer: Producer, message: str, history: History) -> None:
    """By delay level and by delivery time, alternately."""
    due_s = time.time() + DELAY_S
    history.events.append(Attempted(message, due_s - 0.001))  # brokers count in milliseconds, and round down
    if int(message.rpartition("-")[2]) % 2:
        await producer.send(_topic(message), message.encode(), delay_level=1)
    else:
        await producer.send(_topic(message), message.encode(), deliver_at=int(due_s * 1000) + 1)
    history.acknowledge(message, ("(waiting)", "", 0), len(history.acknowledged), message)


def decision_of(message: str) -> Decision:
    """A third each is committed, rolled back, and left to the broker's check, which commits it."""
    return _OUTCOMES[int(message.rpartition("-")[2]) % 3]


def check(message: StoredMessage) -> Decision:
    decision = decision_of(message.body.decode())
    return COMMIT if decision is UNKNOWN else decision


async def send_in_transaction(producer: Producer, message: str, history: History) -> None:
    assert isinstance(producer, TransactionProducer)
    history.events.append(Attempted(message))
    decision = decision_of(message)
    if decision is ROLLBACK:
        history.events.append(RolledBack(message))
    await producer.send_in_transaction(_topic(message), message.encode(), execute=lambda half, argument: decision)
    if decision is not ROLLBACK:  # the half message is stored: the outcome, or a check, makes it visible
        history.acknowledge(message, ("(half)", "", 0), len(history.acknowledged), message)


def _topic(message: str) -> str:
    return message.partition(":")[0]


# --- ways to handle ---


async def handle_in_order(kind: Kind, member: str, message: Received) -> None:
    where = (member, place(message.queue), message.queue_offset)
    kind.history.events.append(Began(*where))
    try:
        await asyncio.sleep(WORK_S)
        kind.history.deliver(message)
    finally:
        kind.history.events.append(Ended(*where))


async def handle_at_once(kind: Kind, member: str, message: Received) -> None:
    kind.history.deliver(message)


async def handle_on_second_attempt(kind: Kind, member: str, message: Received) -> bool | None:
    """Each third message fails at first: it counts as delivered when it has come back."""
    if message.reconsume_times == 0 and int(message.body.rpartition(b"-")[2]) % 3 == 0:
        return False
    kind.history.deliver(message)
    return None


def kinds(*names: str) -> list[Kind]:
    """Those of these names; all without names."""
    all_kinds = [
        Kind("ordered", send_plainly, handle_in_order, RULES, queues=8, members=4, producers=2, ordered=True),
        Kind("delayed", send_delayed, handle_at_once),
        Kind("transactional", send_in_transaction, handle_at_once),
        Kind("retried", send_plainly, handle_on_second_attempt),
    ]
    return [kind for kind in all_kinds if not names or kind.name in names]
