"""A broker for a test: real sockets on free ports and its own directory, removed at the end of the test.

    with running_broker() as broker:
        ...                                     # any client at broker.namesrv
        broker.wait_for_messages("orders", 3)

With pytest, the fixture `ariane_broker` is the same. With a `FakeClock` the broker's time passes only by
`broker.advance(seconds)` (testing/clock.py). In an `async` test use `await broker.aio.wait_for_messages(...)`:
the plain methods would block the test's event loop.
"""

import asyncio
import dataclasses
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, Unpack

from ariane.broker.server import Broker, running
from ariane.broker.settings import BrokerSettings
from ariane.client.consumer.message import Received, receive
from ariane.client.core.instance import Instance
from ariane.client.producer.producer import Producer
from ariane.client.producer.result import SendResult
from ariane.client.settings import ClientSettings
from ariane.clock import Clock
from ariane.errors import SettingsError, sole_cause
from ariane.lifecycle import Backoff, background
from ariane.model.address import Address
from ariane.model.message import MessageFields
from ariane.model.route import MessageQueue
from ariane.model.topic import TopicConfig
from ariane.nameserver.server import serve
from ariane.nameserver.settings import NameserverSettings
from ariane.store.settings import FlushDiskType, StoreSettings
from ariane.testing.clock import FakeClock
from ariane.transport.settings import TransportSettings
from ariane.wire.record.read import decode

T = TypeVar("T")

_TRANSPORT = TransportSettings(drain_timeout_s=0.05)
"""Clients that a test did not close are not waited for."""


@dataclass(frozen=True, slots=True)
class Servers:
    namesrv: str
    broker: Broker


class BrokerThread:
    """A nameserver and a broker on an event loop of their own, in a thread. Made by `running`."""

    def __init__(self) -> None:
        self._stop: Callable[[], object] = lambda: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started: Future[Servers] = Future()
        self._ended: Future[None] = Future()

    @classmethod
    @contextmanager
    def running(cls, settings: BrokerSettings, clock: Clock) -> Iterator["BrokerThread"]:
        """Raises the errors of the servers: those of the start immediately, later ones at the end."""
        servers = cls()
        thread = threading.Thread(target=servers._main, args=(settings, clock), name="ariane-broker", daemon=True)
        thread.start()
        try:
            servers._started.result()
            yield servers
        finally:
            servers._stop()
            thread.join()
        servers._ended.result()

    @property
    def servers(self) -> Servers:
        return self._started.result()

    def begin(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Runs `work` on the event loop of the broker."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _main(self, settings: BrokerSettings, clock: Clock) -> None:
        try:
            asyncio.run(self._serve(settings, clock))
        except Exception as error:  # the edge of the thread: raised by `running`
            (self._ended if self._started.done() else self._started).set_exception(sole_cause(error))
        if not self._ended.done():
            self._ended.set_result(None)

    async def _serve(self, settings: BrokerSettings, clock: Clock) -> None:
        stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        async with _nameserver() as namesrv:
            settings = replace(settings, namesrv_addr=str(namesrv), transport=_TRANSPORT)
            async with running(settings, clock) as broker:
                self._stop = partial(self._loop.call_soon_threadsafe, stop.set)
                self._started.set_result(Servers(str(namesrv), broker))
                await stop.wait()


@asynccontextmanager
async def _nameserver() -> AsyncIterator[Address]:
    address: asyncio.Future[Address] = asyncio.get_running_loop().create_future()
    settings = NameserverSettings(port=0, transport=_TRANSPORT)
    async with background(partial(serve, settings, asyncio.Event(), ready=address.set_result)):
        yield await address


_POLL_S = 0.01  # for state without a notification: offsets, and routes at a nameserver
_BATCH = 32
_BODIES_SHOWN_MAX = 5


class BrokerInspector:
    """Reads and changes the state of a broker in this process. Everything here runs on the broker's event loop."""

    def __init__(self, namesrv: str, broker: Broker, clock: Clock) -> None:
        self.namesrv = namesrv
        self._broker = broker
        self._clock = clock
        self._components = broker.parts
        self._arrived = asyncio.Event()
        self._components.store.store.components.dispatcher.on_arrival(lambda *_: self._arrived.set())

    # --- changes ----------------------------------------------------------------------------------------------------

    async def create_topic(self, topic: str, queues: int = 4) -> None:
        self._components.topics.put(TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues))
        await self._until_routed(topic)

    async def _until_routed(self, topic: str) -> None:
        pauses = Backoff(first_s=0.001, longest_s=0.05)
        async with Instance.open(ClientSettings(nameservers=self.namesrv)) as instance:
            while await instance.routes.find(topic, fresh=True) is None:  # noqa: ASYNC110 - there is no notification
                await asyncio.sleep(pauses.next_s())

    async def send(self, topic: str, body: bytes, **fields: Unpack[MessageFields]) -> SendResult:
        async with Producer(self.namesrv, group="ariane-tests") as producer:
            return await producer.send(topic, body, **fields)

    async def advance(self, seconds: float) -> None:
        if not isinstance(self._clock, FakeClock):
            raise RuntimeError(  # noqa: TRY004 - the clock was chosen elsewhere, no argument has a wrong type
                "this broker has the system clock, whose time cannot be moved: pass clock=FakeClock() to "
                "running_broker, or return it from the fixture ariane_broker_settings"
            )
        await self._clock.jump(seconds)  # the moments between would be those of hundreds of jobs a second

    # --- state ------------------------------------------------------------------------------------------------------

    async def messages(self, topic: str) -> list[Received]:
        """All stored messages, the oldest first."""
        return self._messages(topic)

    def _messages(self, topic: str) -> list[Received]:
        config = self._components.topics.get(topic)
        queue_ids = range(config.read_queue_nums if config else 0)
        messages = [message for queue_id in queue_ids for message in self._in_queue(topic, queue_id)]
        return sorted(messages, key=lambda message: (message.store_timestamp_ms, message.physical_offset))

    def _in_queue(self, topic: str, queue_id: int) -> list[Received]:
        queue = MessageQueue(topic=topic, broker_name=self._broker.settings.name, queue_id=queue_id)
        messages: list[Received] = []
        offset = 0
        while True:
            page = self._components.store.store.reader.read(topic, queue_id, offset, _BATCH)
            messages += [receive(decode(bytes(piece)), queue, page.max_offset) for piece in page.slices]
            if page.next_offset <= offset:
                return messages
            offset = page.next_offset

    async def lag(self, group: str, topic: str | None = None) -> int | None:
        """How many messages the group has not consumed; None while it has no offset in a queue that has messages."""
        return self._lag(group, topic)

    def _lag(self, group: str, topic: str | None) -> int | None:
        topics = self._components.offsets.topics_of(group) if topic is None else {topic}
        lags = [lag for name in topics for lag in self._lags(group, name)]
        return None if not topics or None in lags else sum(lag for lag in lags if lag is not None)

    def _lags(self, group: str, topic: str) -> list[int | None]:
        config = self._components.topics.get(topic)
        queues = self._components.store.store.components.queues
        by_number = [(number, queues.get(topic, number)) for number in range(config.read_queue_nums if config else 0)]
        ends = {number: queue.max_offset for number, queue in by_number if queue is not None and queue.max_offset}
        offsets = {number: self._components.offsets.get(group, topic, number) for number in ends}
        return [None if offsets[number] < 0 else end - offsets[number] for number, end in ends.items()]

    # --- waiting ----------------------------------------------------------------------------------------------------

    async def wait_for_messages(self, topic: str, count: int = 1, timeout_s: float = 10.0) -> list[Received]:
        """The messages of `topic`, as soon as there are `count`."""
        try:
            async with asyncio.timeout(timeout_s):
                while len(messages := self._messages(topic)) < count:
                    self._arrived.clear()
                    await self._arrived.wait()
                return messages
        except TimeoutError:
            raise AssertionError(self._missing(topic, count, timeout_s)) from None

    def _missing(self, topic: str, count: int, timeout_s: float) -> str:
        bodies = [message.body for message in self._messages(topic)]
        shown = ", ".join(map(repr, bodies[:_BODIES_SHOWN_MAX])) + (", ..." if len(bodies) > _BODIES_SHOWN_MAX else "")
        hint = "" if self._components.topics.get(topic) else f"; there is no topic {topic}"
        return f"{len(bodies)} of {count} messages of {topic} after {timeout_s:g} s: [{shown}]{hint}"

    async def wait_for_lag(
        self, group: str, lag: int = 0, *, topic: str | None = None, timeout_s: float = 10.0
    ) -> None:
        """Waits until the group is at most `lag` messages behind. Consumers commit every few seconds: 5 by default."""
        await self._until(
            lambda: (now := self._lag(group, topic)) is not None and now <= lag,
            timeout_s,
            lambda: f"group {group} has {self._lag_text(group, topic)} after {timeout_s:g} s, not {lag}",
        )

    def _lag_text(self, group: str, topic: str | None) -> str:
        lag = self._lag(group, topic)
        return "an unknown lag (no offset)" if lag is None else f"a lag of {lag}"

    async def _until(self, condition: Callable[[], bool], timeout_s: float, describe: Callable[[], str]) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():  # noqa: ASYNC110 - there is no notification
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise AssertionError(describe()) from None


_SMALL_STORE = {
    "segment_bytes": 16 * 1024 * 1024,
    "queue_segment_bytes": 200_000,
    "index_slots": 1_000,
    "index_entries": 20_000,
    "reserve_bytes": 64 * 1024,
    "flush_disk_type": FlushDiskType.ASYNC,  # a test's messages need not survive a power failure
}


class BrokerForTests:
    """A broker for tests, made by `running_broker`. A wait that times out is an AssertionError with the state."""

    def __init__(self, thread: BrokerThread, inspector: BrokerInspector) -> None:
        self._thread = thread
        self.namesrv = inspector.namesrv
        """HOST:PORT of the nameserver, for clients."""
        self.address = str(thread.servers.broker.address)
        """HOST:PORT of the broker itself."""
        self._inspector = inspector
        self.aio = AsyncBrokerForTests(thread, inspector)
        """The same methods for `async` tests."""

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Returns when clients can find the topic."""
        self._call(self._inspector.create_topic(topic, queues))

    def send(self, topic: str, body: bytes, **fields: Unpack[MessageFields]) -> SendResult:
        return self._call(self._inspector.send(topic, body, **fields))

    def advance(self, seconds: float) -> None:
        """Moves the time of a broker with a FakeClock forward, so that delayed messages become due.

        Delivery times are exact to 0.1 s. Two minutes also expire what was silent so long: idle connections, and
        members of groups without a heartbeat.
        """
        self._call(self._inspector.advance(seconds))

    def messages(self, topic: str) -> list[Received]:
        """All stored messages, the oldest first."""
        return self._call(self._inspector.messages(topic))

    def lag(self, group: str, topic: str | None = None) -> int | None:
        """None while the group has no offset: an unknown lag is not 0."""
        return self._call(self._inspector.lag(group, topic))

    def wait_for_messages(self, topic: str, count: int = 1, timeout_s: float = 10.0) -> list[Received]:
        """The messages of `topic`, as soon as there are `count`."""
        _check_may_block("wait_for_messages")
        return self._call(self._inspector.wait_for_messages(topic, count, timeout_s))

    def wait_for_lag(self, group: str, lag: int = 0, *, topic: str | None = None, timeout_s: float = 10.0) -> None:
        """Waits until the group is at most `lag` messages behind. Consumers commit every few seconds: 5 by default."""
        _check_may_block("wait_for_lag")
        self._call(self._inspector.wait_for_lag(group, lag, topic=topic, timeout_s=timeout_s))

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.begin(work).result()


class AsyncBrokerForTests:
    """The methods of `BrokerForTests` for `async` tests."""

    def __init__(self, thread: BrokerThread, inspector: BrokerInspector) -> None:
        self._thread = thread
        self._inspector = inspector

    async def create_topic(self, topic: str, queues: int = 4) -> None:
        await self._call(self._inspector.create_topic(topic, queues))

    async def send(self, topic: str, body: bytes, **fields: Unpack[MessageFields]) -> SendResult:
        return await self._call(self._inspector.send(topic, body, **fields))

    async def advance(self, seconds: float) -> None:
        await self._call(self._inspector.advance(seconds))

    async def messages(self, topic: str) -> list[Received]:
        return await self._call(self._inspector.messages(topic))

    async def lag(self, group: str, topic: str | None = None) -> int | None:
        return await self._call(self._inspector.lag(group, topic))

    async def wait_for_messages(self, topic: str, count: int = 1, timeout_s: float = 10.0) -> list[Received]:
        return await self._call(self._inspector.wait_for_messages(topic, count, timeout_s))

    async def wait_for_lag(
        self, group: str, lag: int = 0, *, topic: str | None = None, timeout_s: float = 10.0
    ) -> None:
        await self._call(self._inspector.wait_for_lag(group, lag, topic=topic, timeout_s=timeout_s))

    async def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(self._thread.begin(work))


@contextmanager
def running_broker(
    directory: Path | None = None, *, clock: Clock | None = None, **settings: Any
) -> Iterator[BrokerForTests]:
    """`settings` are those of BrokerSettings; `store` is a dict of those of StoreSettings. Without a `directory`, a
    temporary one. `clock` is the broker's; the nameserver and clients have the system's."""
    clock = clock or Clock()
    with _directory(directory) as root, BrokerThread.running(_settings(root, settings), clock) as thread:
        servers = thread.servers
        inspector = thread.begin(_make_inspector(servers.namesrv, servers.broker, clock)).result()
        yield BrokerForTests(thread, inspector)


async def _make_inspector(namesrv: str, broker: Broker, clock: Clock) -> BrokerInspector:
    """Runs on the broker's event loop, because its listener does."""
    return BrokerInspector(namesrv, broker, clock)


@contextmanager
def _directory(directory: Path | None) -> Iterator[Path]:
    if directory is not None:
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix="ariane-test-") as temporary:
        yield Path(temporary)


def _settings(root: Path, changes: dict[str, Any]) -> BrokerSettings:
    names = {field.name for field in dataclasses.fields(BrokerSettings)} - {"namesrv_addr", "transport"}
    for name in changes.keys() - names:
        raise SettingsError(f"a broker for tests has no setting {name}; it has {', '.join(sorted(names))}")
    store = StoreSettings(**{"root": root, **_SMALL_STORE, **changes.get("store", {})})
    values = {"name": "broker-a", "port": 0, "auto_create_topics": True, **changes, "store": store}
    return BrokerSettings(**values)


def _check_may_block(method: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"{method}() would block this event loop: use `await ariane_broker.aio.{method}(...)`")
