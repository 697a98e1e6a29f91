"""Deleting a topic of a running broker: when it is durable, what sends meet meanwhile, and what tools find later."""

import asyncio
import errno
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ariane import Admin, Producer
from ariane.cli.main import main
from ariane.errors import RequestFailed
from ariane.model.topic import TopicConfig
from ariane.store.config import deletions
from ariane.store.config.table_file import save_config
from ariane.store.disk import Disk
from ariane.wire.requests.offsets import GetMaxOffset
from ariane.wire.requests.topics import DeleteTopicInBroker, GetTopicConfig
from tests.broker.brokers import RunningBroker, running_broker, running_cluster
from tests.broker.test_server import message
from tests.nameserver.servers import caller
from tests.store.stores import draft
from tests.transport.peers import PATIENCE_S, until

ORDERS = TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4)


async def test_a_topic_deleted_and_created_again_stays_empty_after_verify_and_rebuild(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_cluster(tmp_path) as cluster:
        async with Admin(cluster.nameserver) as admin, Producer(cluster.nameserver, group="p") as producer:
            await admin.topics.put(ORDERS)
            for number in range(12):
                await producer.send("orders", b"old %d" % number)
            await admin.topics.delete("orders")
            await admin.topics.put(ORDERS)
        root = str(cluster.broker.settings.store.root)
    assert main(["store", "verify", root]) == 0
    assert "of a topic that was deleted" in capsys.readouterr().out
    assert main(["store", "rebuild", root, "--yes"]) == 0
    assert main(["store", "verify", root]) == 0
    async with running_cluster(tmp_path) as cluster:
        queues = cluster.broker.parts.store.store.components.queues
        assert cluster.broker.parts.topics.get("orders") is not None
        assert sum(queue.max_offset for queue in queues.of_topic("orders").values()) == 0


# --- while the record of the deletion is saved ---


class SlowRecords:
    """Saves of the record of deletions wait for `gate`, or fail with `error`; `threads` are those that save."""

    def __init__(self) -> None:
        self.began, self.gate = threading.Event(), threading.Event()
        self.error: OSError | None = None
        self.threads: list[threading.Thread] = []

    def save(self, disk: Disk, path: Path, content: bytes) -> None:
        self.threads.append(threading.current_thread())
        self.began.set()
        # On the event loop nobody could open the gate.
        assert threading.current_thread() is threading.main_thread() or self.gate.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        save_config(disk, path, content)


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowRecords]:
    slow = SlowRecords()
    monkeypatch.setattr(deletions, "save_config", slow.save)
    yield slow
    slow.gate.set()


def table(broker: RunningBroker, name: str) -> str:
    """A file of `config/`, as it is on the disk."""
    path = broker.settings.store.root / "config" / name
    return path.read_text() if path.exists() else "{}"


def is_in_table(broker: RunningBroker) -> bool:
    return "orders" in json.loads(table(broker, "topics.json"))["topicConfigTable"]


def queue_directory(broker: RunningBroker) -> Path:
    return broker.settings.store.root / "consumequeue" / "orders"


def max_offset(broker: RunningBroker) -> int:
    queue = broker.parts.store.store.components.queues.get("orders", 0)
    return 0 if queue is None else queue.max_offset


async def test_a_deletion_is_answered_when_all_of_it_is_durable_and_holds_nobody_up(
    tmp_path: Path, records: SlowRecords
) -> None:
    async with running_broker(tmp_path, auto_create_topics=True) as broker, caller() as calls, caller() as others:
        for _ in range(3):
            await calls.call(broker.address, message())
        broker.parts.store.store.make_durable()
        deletion = asyncio.ensure_future(calls.call(broker.address, DeleteTopicInBroker(topic="orders")))
        await until(records.began.is_set)
        with pytest.raises(RequestFailed):  # others are served, and do not find the topic
            await others.call(broker.address, GetTopicConfig(topic="orders"))
        assert not deletion.done()
        assert is_in_table(broker)
        assert queue_directory(broker).exists()
        records.gate.set()
        await deletion
        assert json.loads(table(broker, "deletedTopics.json"))["deletedTopics"].keys() == {"orders"}
        assert not queue_directory(broker).exists()
        assert not is_in_table(broker)
        assert threading.main_thread() not in records.threads


async def test_a_send_during_a_deletion_comes_after_it(tmp_path: Path, records: SlowRecords) -> None:
    async with running_broker(tmp_path, auto_create_topics=True) as broker, caller() as calls, caller() as others:
        for _ in range(3):
            await calls.call(broker.address, message())
        deletion = asyncio.ensure_future(calls.call(broker.address, DeleteTopicInBroker(topic="orders")))
        await until(records.began.is_set)
        send = asyncio.ensure_future(others.call(broker.address, message(b"new")))
        await until(lambda: broker.parts.topics.get("orders"))  # created again
        assert not send.done()
        assert max_offset(broker) == 3
        records.gate.set()
        await deletion
        assert (await send).queue_offset == 0
    async with running_broker(tmp_path, auto_create_topics=True) as broker, caller() as calls:
        assert (await calls.call(broker.address, GetMaxOffset(topic="orders", queue_id=0))).offset == 1


async def test_a_deletion_is_completed_although_the_client_hangs_up(tmp_path: Path, records: SlowRecords) -> None:
    async with running_broker(tmp_path, auto_create_topics=True) as broker:
        async with caller() as calls:
            await calls.call(broker.address, message())
            deletion = asyncio.ensure_future(calls.call(broker.address, DeleteTopicInBroker(topic="orders")))
            await until(records.began.is_set)
            deletion.cancel()
        await asyncio.sleep(0.05)  # the server sees it
        records.gate.set()
        await until(lambda: not broker.parts.store.store.components.queues.of_topic("orders"))
        assert broker.parts.store.store.components.deletions.end_of("orders") > 0


async def test_a_deletion_that_cannot_be_recorded_deletes_nothing(tmp_path: Path, records: SlowRecords) -> None:
    records.error = OSError(errno.ENOSPC, "No space left on device")
    records.gate.set()
    async with running_broker(tmp_path, auto_create_topics=True) as broker, caller() as calls:
        await calls.call(broker.address, message())
        with pytest.raises(RequestFailed, match="cannot be saved"):
            await calls.call(broker.address, DeleteTopicInBroker(topic="orders"))
        await calls.call(broker.address, GetTopicConfig(topic="orders"))
        assert max_offset(broker) == 1


async def test_what_arrives_while_a_deletion_is_recorded_is_deleted_with_the_topic(
    tmp_path: Path, records: SlowRecords
) -> None:
    """A send that was on its way, or a delayed message whose time has come."""
    async with running_broker(tmp_path, auto_create_topics=True) as broker, caller() as calls:
        await calls.call(broker.address, message())
        deletion = asyncio.ensure_future(calls.call(broker.address, DeleteTopicInBroker(topic="orders")))
        await until(records.began.is_set)
        await broker.parts.store.append([draft(b"late")])
        records.gate.set()
        await deletion
        store = broker.parts.store.store
        assert store.components.deletions.end_of("orders") == store.components.commit_log.max_offset
        assert threading.main_thread() not in records.threads
