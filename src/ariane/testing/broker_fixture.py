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
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, Unpack

from ariane.broker.settings import BrokerSettings
from ariane.client.received import Received
from ariane.client.send_result import SendResult
from ariane.errors import SettingsError
from ariane.model.message import MessageFields
from ariane.store.settings import FlushDiskType, StoreSettings
from ariane.testing.broker_desk import BrokerDesk
from ariane.testing.broker_thread import BrokerThread

T = TypeVar("T")

_SMALL_STORE = {
    "segment_bytes": 16 * 1024 * 1024,
    "queue_segment_bytes": 200_000,
    "index_slots": 1_000,
    "index_entries": 20_000,
    "flush_disk_type": FlushDiskType.ASYNC,  # what a test stores need not outlive a power cut
}


class BrokerForTests:
    """Made by `running_broker`. A wait that does not come true is an AssertionError that says what is there."""

    def __init__(self, thread: BrokerThread, desk: BrokerDesk) -> None:
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
    def __init__(self, thread: BrokerThread, desk: BrokerDesk) -> None:
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


async def _desk(namesrv: str, broker: Any) -> BrokerDesk:
    """Made on the broker's loop, which its listener runs on."""
    return BrokerDesk(namesrv, broker)


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
