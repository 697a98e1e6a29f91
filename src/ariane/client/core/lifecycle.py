"""Lifecycle of producers, consumers and admins: `start()`, `close()`, and their registration at the client instance.

`Lifetime` runs an opened client. `RegisteredClients` holds the producers and consumers that share one client instance,
by group: heartbeats announce them, and requests from brokers are passed on to them.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Generic, Protocol, TypeVar

from ariane.errors import ClientClosed, ClientError, sole_cause
from ariane.lifecycle import TaskSet
from ariane.model.message import StoredMessage
from ariane.model.route import MessageQueue
from ariane.wire.requests.clients import ConsumerData, ConsumeResult, ConsumerRunningInfo, ProducerData
from ariane.wire.requests.send import CheckTransaction

log = logging.getLogger(__name__)

T = TypeVar("T")


class Lifetime(Generic[T]):
    """Holds a context manager open in a task of its own.

    A context manager with background jobs must be left by the task that entered it, but users may well call `start()`
    in one task and `close()` in another; a synchronous program does so with every call.
    """

    def __init__(self, what: str, opener: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._what = what
        self._opener = opener
        self._task = TaskSet()
        self._stop = asyncio.Event()
        self._value: T | None = None
        self._failure: BaseException | None = None
        self._started = False

    @property
    def value(self) -> T:
        """The opened object; ClientClosed before `start()`, after `close()`, and after a failure."""
        if self._value is None:
            raise ClientClosed(f"this {self._what} {self._state()}") from self._failure
        return self._value

    async def start(self) -> T:
        if self._started:
            raise ClientClosed(f"this {self._what} was started before: make a new one")
        self._started = True
        opened: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._task.spawn(self._hold(opened))
        try:
            return await opened
        except asyncio.CancelledError:
            self._task.cancel()
            raise

    async def close(self) -> None:
        """Returns when everything is closed. A second call changes nothing."""
        self._stop.set()
        await self._task.wait()

    async def _hold(self, opened: asyncio.Future[T]) -> None:
        try:
            async with self._opener() as value:
                self._value = value
                opened.set_result(value)
                await self._stop.wait()
        except Exception as error:  # the edge of a task: raised by start(), or by the next use of the value
            self._fail(opened, sole_cause(error))
        finally:
            self._value = None

    def _fail(self, opened: asyncio.Future[T], error: Exception) -> None:
        if not opened.done():
            opened.set_exception(error)
            return
        self._failure = error
        log.error("client stopped by a failure", extra={"client": self._what}, exc_info=error)

    def _state(self) -> str:
        if self._failure is not None:
            return f"stopped by a failure ({self._failure}): make a new one"
        return "is closed: make a new one" if self._started else "is not started: use `async with`, or call start()"


class RegisteredProducer(Protocol):
    """What the client instance needs of a producer: data for the heartbeat, and the handling of transaction checks."""

    def producer_data(self) -> ProducerData: ...

    async def check_transaction(self, request: CheckTransaction, message: StoredMessage, address: str) -> None:
        """Decides the outcome of a half message, and sends it to the broker at `address`."""


class RegisteredConsumer(Protocol):
    """What the client instance needs of a consumer: data for the heartbeat, and the handling of broker requests."""

    def consumer_data(self) -> ConsumerData: ...

    def rebalance_soon(self) -> None: ...

    def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None: ...

    def status(self, topic: str) -> Mapping[MessageQueue, int]: ...

    def running_info(self) -> ConsumerRunningInfo: ...

    async def consume_directly(self, message: StoredMessage, broker_name: str | None) -> ConsumeResult: ...


class RegisteredClients:
    """The producers and consumers of one instance, by group."""

    def __init__(self) -> None:
        self.producers: dict[str, RegisteredProducer] = {}
        self.consumers: dict[str, RegisteredConsumer] = {}

    def add_producer(self, group: str, producer: RegisteredProducer) -> None:
        if self.producers.setdefault(group, producer) is not producer:
            raise ClientError(f"this client already has a producer of group {group}: use that one, or another group")

    def add_consumer(self, group: str, consumer: RegisteredConsumer) -> None:
        if self.consumers.setdefault(group, consumer) is not consumer:
            raise ClientError(
                f"this client already has a consumer of group {group}: two with one client id would share no queues; "
                "open another client"
            )

    @property
    def is_empty(self) -> bool:
        return not self.producers and not self.consumers


class NonTransactionalProducer:
    """A producer without transactions."""

    def __init__(self, group: str) -> None:
        self._group = group

    def producer_data(self) -> ProducerData:
        return ProducerData(group_name=self._group)

    async def check_transaction(self, request: CheckTransaction, message: StoredMessage, address: str) -> None:
        """Another producer of this group sends transactions. The broker repeats the check, and will reach that one."""
        log.warning(
            "transaction check ignored: this producer of the group sends no transactions",
            extra={"group": self._group, "broker": address, "message": message.unique_key},
        )
