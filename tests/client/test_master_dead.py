"""Clients of a master that is killed: they read from its slave, commit there, and go back; nothing is skipped."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ariane import Admin, Message, NoRoute, Producer, PushConsumer, Received, SendFailed
from ariane.client.core import routes
from ariane.client.settings import ClientSettings
from ariane.model.topic import TopicConfig
from ariane.replication import metadata
from ariane.replication.group.link import held
from ariane.rpc.caller import Caller
from ariane.spark.cluster import Cluster
from ariane.spark.offsets import QueueRange
from ariane.spark.read.range_pull import PullSettings, RangePull
from ariane.sync import LitePullConsumer as SyncLitePullConsumer
from ariane.wire.record.read import decode_all
from ariane.wire.requests.brokers import RegisterBroker
from ariane.wire.requests.offsets import GetConsumerOffset
from ariane.wire.requests.topics import UpdateTopic
from tests.broker.brokers import SMALL_STORE, RunningBroker, running_broker
from tests.broker.test_server_replication import a_caller, slave_of
from tests.cli.servers.test_command_broker import ENVIRONMENT
from tests.client.cluster_fixture import PATIENCE_S, MessageCollector, until
from tests.cluster.processes import ServerProcess, properties
from tests.nameserver.servers import nameserver

TOPIC, GROUP = "orders", "billing"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "FIRST_SYNC_S", 0.02)
    monkeypatch.setattr(metadata, "SYNC_INTERVAL_S", 0.02)
    monkeypatch.setattr(routes, "_AVOID_S", 1.0)


def master_process(root: Path, nameserver: str) -> ServerProcess:
    conf = {
        "brokerName": "broker-a",
        "brokerRole": "ASYNC_MASTER",
        "namesrvAddr": nameserver,
        "storePathRootDir": root / "master",
        "mappedFileSizeCommitLog": SMALL_STORE["segment_bytes"],
        "mappedFileSizeConsumeQueue": SMALL_STORE["queue_segment_bytes"],
    }
    file = properties(root / "master.conf", conf)
    return ServerProcess(root / "master.log", "broker", "-c", str(file), "--listen", "127.0.0.1:0")


@dataclass(frozen=True)
class Pair:
    nameserver: str
    master: ServerProcess
    slave: RunningBroker
    caller: Caller

    async def send(self, bodies: Iterable[bytes]) -> None:
        async with Producer(self.nameserver, group="shop", send_timeout_s=PATIENCE_S) as producer:
            for body in bodies:
                await producer.send(Message(topic=TOPIC, body=body, keys=[body.decode()]))

    def consumer(self, collector: MessageCollector) -> PushConsumer:
        settings = ClientSettings(nameservers=self.nameserver, offsets_save_interval_s=0.2, route_poll_interval_s=0.2)
        consumer = PushConsumer(group=GROUP, start="earliest", handler=collector.put, settings=settings)
        consumer.subscribe(TOPIC)
        return consumer

    async def slave_has(self, count: int) -> None:
        queues = self.slave.parts.store.store.components.queues
        await until(lambda: sum(queue.max_offset for queue in queues.of_topic(TOPIC).values()) == count)

    async def register_the_dead(self) -> None:
        """A nameserver that has not noticed yet: it may take two minutes."""
        request = RegisterBroker(
            broker_name="broker-a", broker_addr=self.master.address, cluster_name="DefaultCluster", broker_id=0,
            ha_server_addr="127.0.0.1:1", compressed=False, body_crc32=0, body=b"",
        )  # fmt: skip
        await self.caller.call(self.nameserver, request, PATIENCE_S)

    async def master_knows(self, committed: int) -> None:
        """Waits until the group's offsets are there, so many in all queues together."""
        requests = [GetConsumerOffset(GROUP, TOPIC, queue_id) for queue_id in range(4)]
        async with asyncio.timeout(PATIENCE_S):
            while committed != sum(await asyncio.gather(*map(self._offset_at_master, requests))):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def _offset_at_master(self, request: GetConsumerOffset) -> int:
        return (await self.caller.call(self.master.address, request, PATIENCE_S)).offset

    def committed_at_slave(self) -> int:
        return sum(self.slave.parts.offsets.of(GROUP, TOPIC).values())


@asynccontextmanager
async def a_pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(nameserver())
        caller = await stack.enter_async_context(a_caller())
        master = master_process(tmp_path, address)
        stack.push_async_callback(master.kill)
        await master.start()
        master.keep_address()
        request = UpdateTopic(
            topic=TOPIC, default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6,
            topic_filter_type="SINGLE_TAG",
        )  # fmt: skip
        await caller.call(master.address, request, PATIENCE_S)
        slave = await stack.enter_async_context(slave_of(tmp_path, [address]))
        await until(lambda: slave.parts.topics.get(TOPIC) is not None)
        yield Pair(address, master, slave, caller)


def numbered(begin: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(begin, end)]


STALE = pytest.mark.parametrize("is_stale", [False, True], ids=["gone from the route", "still in the route"])


@STALE
async def test_a_consumer_goes_to_the_slave_commits_there_and_goes_back(tmp_path: Path, is_stale: bool) -> None:
    async with a_pair(tmp_path) as pair:
        collector = MessageCollector()
        await pair.send(numbered(0, 20))
        await pair.slave_has(20)
        async with pair.consumer(collector):
            await collector.until_count(20)
            await pair.send(numbered(20, 30))
            await pair.slave_has(30)
            await pair.master.kill()
            if is_stale:
                await pair.register_the_dead()
            await until(lambda: pair.committed_at_slave() == 30)
            await pair.master.start()
            await pair.send(numbered(30, 40))
            await until(lambda: len(set(collector.bodies)) == 40)
            await pair.master_knows(40)
        assert set(collector.bodies) == set(numbered(0, 40))


@STALE
async def test_what_the_slave_had_not_copied_is_committed_there(
    tmp_path: Path, is_stale: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held.Held, "put", lambda *_: None)  # as if the master died before the next copy
    async with a_pair(tmp_path) as pair:
        collector = MessageCollector()
        await pair.send(numbered(0, 20))
        await pair.slave_has(20)
        async with pair.consumer(collector):
            await collector.until_count(20)
            await pair.master_knows(20)
            assert pair.committed_at_slave() == 0
            await pair.master.kill()
            if is_stale:
                await pair.register_the_dead()
            await until(lambda: pair.committed_at_slave() == 20)


@STALE
async def test_a_consumer_that_starts_while_the_master_is_dead_loses_nothing(tmp_path: Path, is_stale: bool) -> None:
    async with a_pair(tmp_path) as pair:
        await pair.send(numbered(0, 30))
        await pair.slave_has(30)
        await pair.master.kill()
        if is_stale:
            await pair.register_the_dead()
        collector = MessageCollector()
        async with pair.consumer(collector):
            await collector.until_count(30)
            await until(lambda: pair.committed_at_slave() == 30)
            await pair.master.start()
            await pair.master_knows(30)
        assert sorted(collector.bodies) == sorted(numbered(0, 30)), "what was committed at the slave is known"


async def test_sends_go_to_another_broker_and_never_to_the_slave(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        config = TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4)
        async with running_broker(tmp_path / "other", [pair.nameserver], name="broker-b") as other:
            other.parts.topics.put(config)
            await other.broker.registration.announced()
            async with Producer(pair.nameserver, group="shop", send_timeout_s=PATIENCE_S) as producer:
                await producer.send(Message(topic=TOPIC, body=b"first"))
                await pair.master.kill()
                await pair.register_the_dead()
                results = [await producer.send(Message(topic=TOPIC, body=b"x")) for _ in range(10)]
            assert {result.queue.broker_name for result in results} == {"broker-b"}


@STALE
async def test_without_another_broker_a_send_fails_in_time(tmp_path: Path, is_stale: bool) -> None:
    """When the route has no master, the producer says so, and does not wait."""
    async with a_pair(tmp_path) as pair, Producer(pair.nameserver, group="shop", send_timeout_s=PATIENCE_S) as producer:
        await producer.send(Message(topic=TOPIC, body=b"first"))
        await pair.slave_has(1)
        await pair.master.kill()
        if is_stale:
            await pair.register_the_dead()
        with pytest.raises((SendFailed, NoRoute)):
            await producer.send(Message(topic=TOPIC, body=b"x"), timeout_s=1.0)
        await pair.slave_has(1)


@STALE
async def test_tools_and_spark_read_from_the_slave(tmp_path: Path, is_stale: bool) -> None:
    async with a_pair(tmp_path) as pair:
        await pair.send(numbered(0, 40))
        await pair.slave_has(40)
        await pair.master.kill()
        if is_stale:
            await pair.register_the_dead()
        async with Admin(pair.nameserver, timeout_s=PATIENCE_S) as admin:
            found = [message async for message in admin.queues.scan(TOPIC)]
            assert sorted(message.body for message in found) == sorted(numbered(0, 40))
            (one,) = (await admin.messages.by_key(TOPIC, "17")).messages
            assert one.body == b"17"
            assert (await admin.topics.stats(TOPIC)).count == 40
        read = await asyncio.to_thread(_read_as_spark, pair.nameserver)
        assert sorted(read) == sorted(numbered(0, 40))
        command = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "ariane", "tail", TOPIC, "--from", "earliest", "--exit-at-end", "-n", pair.nameserver,
            env=ENVIRONMENT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, errors = await command.communicate()
        assert command.returncode == 0, errors
        assert len(output.splitlines()) >= 40
        polled = await asyncio.to_thread(_poll_synchronously, pair.nameserver)
        assert sorted(polled) == sorted(numbered(0, 40))


def _read_as_spark(nameserver: str) -> list[bytes]:
    cluster, bodies = Cluster(ClientSettings(nameservers=nameserver)), list[bytes]()
    for queue, ends in cluster.ends(TOPIC, "broker-a").items():
        pull = RangePull(cluster, QueueRange(queue, ends.first, ends.next), PullSettings(group="TOOLS_CONSUMER"))
        bodies += [message.body for data in pull for message in decode_all(data)]
    cluster.calls.close()
    return bodies


def _poll_synchronously(nameserver: str) -> list[bytes]:
    with SyncLitePullConsumer(nameserver, group=GROUP, start="earliest") as consumer:
        consumer.subscribe(TOPIC)
        messages = list[Received]()
        while len(messages) < 40:
            messages += consumer.poll()
        return [message.body for message in messages]
