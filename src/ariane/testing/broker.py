"""A broker for a test: real sockets on free ports, its own directory, gone when the test is.

    with running_broker() as broker:
        ...                                     # any client at broker.namesrv
        broker.wait_for_messages("orders", 3)

With pytest the fixture `ariane_broker` is the same. In an `async` test use `await broker.aio.wait_for_messages(...)`:
the plain methods block, and with them the test's own event loop.
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
from ariane.transport.settings import TransportSettings
from ariane.wire.record.read import decode

# --- broker_thread ---
#
# A nameserver and a broker on an event loop of their own, in a thread of this process.

T = TypeVar("T")

_TRANSPORT = TransportSettings(drain_timeout_s=0.05)
"""A test is over when it is over: clients that it did not close are not waited for."""


@dataclass(frozen=True, slots=True)
class Servers:
    namesrv: str
    broker: Broker


class BrokerThread:
    """Made by `running`."""

    def __init__(self) -> None:
        self._stop: Callable[[], object] = lambda: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started: Future[Servers] = Future()
        self._ended: Future[None] = Future()

    @classmethod
    @contextmanager
    def running(cls, settings: BrokerSettings) -> Iterator["BrokerThread"]:
        """Raises what the servers raise: at the start, or later at the end."""
        one = cls()
        thread = threading.Thread(target=one._main, args=(settings,), name="ariane-broker", daemon=True)
        thread.start()
        try:
            one._started.result()
            yield one
        finally:
            one._stop()
            thread.join()
        one._ended.result()

    @property
    def servers(self) -> Servers:
        return self._started.result()

    def begin(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Runs `work` beside the broker."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _main(self, settings: BrokerSettings) -> None:
        try:
            asyncio.run(self._serve(settings))
        except Exception as error:  # the edge of the thread: told to whoever started it
            told = sole_cause(error)
            (self._ended if self._started.done() else self._started).set_exception(told)
        if not self._ended.done():
            self._ended.set_result(None)

    async def _serve(self, settings: BrokerSettings) -> None:
        stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        async with _nameserver() as namesrv:
            told = replace(settings, namesrv_addr=str(namesrv), transport=_TRANSPORT)
            async with running(told, Clock()) as broker:
                self._stop = partial(self._loop.call_soon_threadsafe, stop.set)
                self._started.set_result(Servers(str(namesrv), broker))
                await stop.wait()


@asynccontextmanager
async def _nameserver() -> AsyncIterator[Address]:
    address: asyncio.Future[Address] = asyncio.get_running_loop().create_future()
    settings = NameserverSettings(port=0, transport=_TRANSPORT)
    async with background(partial(serve, settings, asyncio.Event(), ready=address.set_result)):
        yield await address


# --- broker_desk ---
#
# What tests ask of a broker in their own process. Everything here runs on the broker's event loop.

_POLL_S = 0.01  # for what a broker tells nobody: offsets, and what a nameserver has heard
_BATCH = 32
_BODIES_SHOWN_MAX = 5


class BrokerInspector:
    def __init__(self, namesrv: str, broker: Broker) -> None:
        self.namesrv = namesrv
        self._broker = broker
        self._parts = broker.parts
        self._arrived = asyncio.Event()
        self._parts.store.store.components.dispatcher.on_arrival(lambda *_: self._arrived.set())

    # --- making -----------------------------------------------------------------------------------------------------

    async def create_topic(self, topic: str, queues: int = 4) -> None:
        self._parts.topics.put(TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues))
        await self._until_routed(topic)

    async def _until_routed(self, topic: str) -> None:
        pauses = Backoff(first_s=0.001, longest_s=0.05)
        async with Instance.open(ClientSettings(nameservers=self.namesrv)) as instance:
            while await instance.routes.find(topic, fresh=True) is None:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(pauses.next_s())

    async def send(self, topic: str, body: bytes, **fields: Unpack[MessageFields]) -> SendResult:
        async with Producer(self.namesrv, group="ariane-tests") as producer:
            return await producer.send(topic, body, **fields)

    # --- looking ----------------------------------------------------------------------------------------------------

    async def messages(self, topic: str) -> list[Received]:
        """All that are stored, the oldest first."""
        return self._messages(topic)

    def _messages(self, topic: str) -> list[Received]:
        config = self._parts.topics.get(topic)
        found = [
            one for queue_id in range(config.read_queue_nums if config else 0) for one in self._in(topic, queue_id)
        ]
        return sorted(found, key=lambda one: (one.store_timestamp_ms, one.physical_offset))

    def _in(self, topic: str, queue_id: int) -> list[Received]:
        queue = MessageQueue(topic=topic, broker_name=self._broker.settings.name, queue_id=queue_id)
        found: list[Received] = []
        offset = 0
        while True:
            page = self._parts.store.store.reader.read(topic, queue_id, offset, _BATCH)
            found += [receive(decode(bytes(piece)), queue, page.max_offset) for piece in page.slices]
            if page.next_offset <= offset:
                return found
            offset = page.next_offset

    async def lag(self, group: str, topic: str | None = None) -> int | None:
        """Messages that the group has not consumed; None while it has no offset in a queue that has messages."""
        return self._lag(group, topic)

    def _lag(self, group: str, topic: str | None) -> int | None:
        topics = self._parts.offsets.topics_of(group) if topic is None else {topic}
        lags = [lag for one in topics for lag in self._lags(group, one)]
        return None if not topics or None in lags else sum(lag for lag in lags if lag is not None)

    def _lags(self, group: str, topic: str) -> list[int | None]:
        config = self._parts.topics.get(topic)
        queues = self._parts.store.store.components.queues
        found = [(number, queues.get(topic, number)) for number in range(config.read_queue_nums if config else 0)]
        ends = {number: queue.max_offset for number, queue in found if queue is not None and queue.max_offset}
        offsets = {number: self._parts.offsets.get(group, topic, number) for number in ends}
        return [None if offsets[number] < 0 else end - offsets[number] for number, end in ends.items()]

    # --- waiting ----------------------------------------------------------------------------------------------------

    async def wait_for_messages(self, topic: str, count: int = 1, timeout_s: float = 10.0) -> list[Received]:
        """The messages of `topic`, as soon as there are `count`."""
        try:
            async with asyncio.timeout(timeout_s):
                while len(found := self._messages(topic)) < count:
                    self._arrived.clear()
                    await self._arrived.wait()
                return found
        except TimeoutError:
            raise AssertionError(self._missing(topic, count, timeout_s)) from None

    def _missing(self, topic: str, count: int, timeout_s: float) -> str:
        found = [one.body for one in self._messages(topic)]
        shown = ", ".join(map(repr, found[:_BODIES_SHOWN_MAX])) + (", ..." if len(found) > _BODIES_SHOWN_MAX else "")
        known = "" if self._parts.topics.get(topic) else f"; there is no topic {topic}"
        return f"{len(found)} of {count} messages of {topic} after {timeout_s:g} s: [{shown}]{known}"

    async def wait_for_lag(
        self, group: str, lag: int = 0, *, topic: str | None = None, timeout_s: float = 10.0
    ) -> None:
        """Until the group is at most `lag` messages behind. Consumers commit every few seconds: 5 by default."""
        await self._until(
            lambda: (now := self._lag(group, topic)) is not None and now <= lag,
            timeout_s,
            lambda: f"group {group} has {self._lag_text(group, topic)} after {timeout_s:g} s, not {lag}",
        )

    def _lag_text(self, group: str, topic: str | None) -> str:
        lag = self._lag(group, topic)
        return "an unknown lag, for want of an offset," if lag is None else f"a lag of {lag}"

    async def _until(self, condition: Callable[[], bool], timeout_s: float, told: Callable[[], str]) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise AssertionError(told()) from None


# ---

_SMALL_STORE = {
    "segment_bytes": 16 * 1024 * 1024,
    "queue_segment_bytes": 200_000,
    "index_slots": 1_000,
    "index_entries": 20_000,
    "flush_disk_type": FlushDiskType.ASYNC,  # what a test stores need not outlive a power cut
}


class BrokerForTests:
    """Made by `running_broker`. A wait that does not come true is an AssertionError that says what is there."""

    def __init__(self, thread: BrokerThread, desk: BrokerInspector) -> None:
        self._thread = thread
        self.namesrv = desk.namesrv
        """What clients are told: HOST:PORT of the nameserver."""
        self.address = str(thread.servers.broker.address)
        """HOST:PORT of the broker itself."""
        self._desk = desk
        self.aio = AsyncBrokerForTests(thread, desk)
        """The same methods for `async` tests."""

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Returns when clients find it."""
        self._call(self._desk.create_topic(topic, queues))

    def send(self, topic: str, body: bytes, **fields: Unpack[MessageFields]) -> SendResult:
        return self._call(self._desk.send(topic, body, **fields))

    def messages(self, topic: str) -> list[Received]:
        """All that are stored, the oldest first."""
        return self._call(self._desk.messages(topic))

    def lag(self, group: str, topic: str | None = None) -> int | None:
        """None while the group has no offset: unknown is not 0."""
        return self._call(self._desk.lag(group, topic))

    def wait_for_messages(self, topic: str, count: int = 1, timeout_s: float = 10.0) -> list[Received]:
        """The messages of `topic`, as soon as there are `count`."""
        _check_may_block("wait_for_messages")
        return self._call(self._desk.wait_for_messages(topic, count, timeout_s))

    def wait_for_lag(self, group: str, lag: int = 0, *, topic: str | None = None, timeout_s: float = 10.0) -> None:
        """Until the group is at most `lag` messages behind. Consumers commit every few seconds: 5 by default."""
        _check_may_block("wait_for_lag")
        self._call(self._desk.wait_for_lag(group, lag, topic=topic, timeout_s=timeout_s))

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.begin(work).result()


class AsyncBrokerForTests:
    def __init__(self, thread: BrokerThread, desk: BrokerInspector) -> None:
        self._thread = thread
        self._desk = desk

    async def create_topic(self, topic: str, queues: int = 4) -> None:
        await self._call(self._desk.create_topic(topic, queues))

    async def send(self, topic: str, body: bytes, **fields: Unpack[MessageFields]) -> SendResult:
        return await self._call(self._desk.send(topic, body, **fields))

    async def messages(self, topic: str) -> list[Received]:
        return await self._call(self._desk.messages(topic))

    async def lag(self, group: str, topic: str | None = None) -> int | None:
        return await self._call(self._desk.lag(group, topic))

    async def wait_for_messages(self, topic: str, count: int = 1, timeout_s: float = 10.0) -> list[Received]:
        return await self._call(self._desk.wait_for_messages(topic, count, timeout_s))

    async def wait_for_lag(
        self, group: str, lag: int = 0, *, topic: str | None = None, timeout_s: float = 10.0
    ) -> None:
        await self._call(self._desk.wait_for_lag(group, lag, topic=topic, timeout_s=timeout_s))

    async def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(self._thread.begin(work))


@contextmanager
def running_broker(directory: Path | None = None, **settings: Any) -> Iterator[BrokerForTests]:
    """`settings` are those of BrokerSettings; `store` is a dict of those of StoreSettings. Without a `directory`,
    a throw-away one."""
    with _directory(directory) as root, BrokerThread.running(_settings(root, settings)) as thread:
        servers = thread.servers
        desk = thread.begin(_desk(servers.namesrv, servers.broker)).result()
        yield BrokerForTests(thread, desk)


async def _desk(namesrv: str, broker: Any) -> BrokerInspector:
    """Made on the broker's loop, which its listener runs on."""
    return BrokerInspector(namesrv, broker)


@contextmanager
def _directory(given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="ariane-test-") as made:
        yield Path(made)


def _settings(root: Path, changes: dict[str, Any]) -> BrokerSettings:
    known = {one.name for one in dataclasses.fields(BrokerSettings)} - {"namesrv_addr", "transport"}
    for name in changes.keys() - known:
        raise SettingsError(f"a broker for tests has no setting {name}; it has {', '.join(sorted(known))}")
    store = StoreSettings(**{"root": root, **_SMALL_STORE, **changes.get("store", {})})
    told = {"name": "broker-a", "port": 0, "auto_create_topics": True, **changes, "store": store}
    return BrokerSettings(**told)


def _check_may_block(method: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"{method}() would block this event loop: use `await ariane_broker.aio.{method}(...)`")
