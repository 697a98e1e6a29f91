"""A cluster for Spark tests: brokers on an event loop in a thread, so that the tests need no event loop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import sleep, time
from typing import Any

from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from ariane.client.settings import ClientSettings
from ariane.errors import ArianeError
from ariane.nameserver.settings import NameserverSettings
from ariane.spark.cluster import Cluster
from ariane.transport.settings import TlsSettings
from ariane.wire.properties import encode_properties
from ariane.wire.requests.send import SendMessageV2
from ariane.wire.requests.topics import UpdateTopic
from tests.broker.brokers import RunningCluster, running_broker
from tests.nameserver.servers import nameserver

_NUMBERS = count(1)
_START_TIMEOUT_S = 30


@dataclass
class ClusterFixture:
    nameserver: str
    brokers: dict[str, str]
    """Addresses by name."""
    stores: dict[str, Path]
    client: Cluster

    def topic(self, queues: int = 2, brokers: Sequence[str] | None = None, name: str = "spark") -> str:
        topic = f"{name}-{next(_NUMBERS)}"
        self.create(topic, queues, brokers)
        return topic

    def create(self, topic: str, queues: int, brokers: Sequence[str] | None = None) -> None:
        selected = sorted(self.brokers) if brokers is None else brokers
        request = UpdateTopic(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
        )
        for name in selected:
            self.client.calls.call(self.brokers[name], request)
        while len(self.known_queues(topic)) < queues * len(selected):
            sleep(0.01)  # the nameserver sends no notification

    def known_queues(self, topic: str) -> list[Any]:
        try:
            return self.client.queues([topic], fresh=True)
        except ArianeError:
            return []

    def send(
        self,
        topic: str,
        bodies: Sequence[bytes],
        *,
        broker: str = "broker-a",
        queue_id: int = 0,
        properties: Mapping[str, str] | None = None,
        born_ms: int | None = None,
    ) -> None:
        """One message after the other, to one queue."""
        requests = [
            SendMessageV2(
                producer_group="tests",
                topic=topic,
                default_topic="TBW102",
                default_topic_queue_nums=4,
                queue_id=queue_id,
                sys_flag=0,
                born_timestamp=born_ms or int(time() * 1000),
                flag=0,
                properties=encode_properties(dict(properties or {})).decode(),
                body=body,
            )
            for body in bodies
        ]
        for start in range(0, len(requests), 100):
            responses = self.client.calls.call_all(self.brokers[broker], requests[start : start + 100], 30.0)
            assert {response.code for response in responses} == {0}, responses[0].remark

    def spread(self, topic: str, messages: int, queues: int = 2, **properties: str) -> list[bytes]:
        """Messages over all queues of both brokers, numbered from 0."""
        queues_of_all = [(broker, queue) for broker in sorted(self.brokers) for queue in range(queues)]
        bodies = [b"%d" % number for number in range(messages)]
        for number, (broker, queue) in enumerate(queues_of_all):
            of_queue = bodies[number :: len(queues_of_all)]
            self.send(topic, of_queue, broker=broker, queue_id=queue, properties=properties)
        return bodies

    def spread_over(self, topic: str, counts: Mapping[int, int]) -> None:
        """Sends the given number of messages to each of these queues of broker-a."""
        for queue, messages in counts.items():
            self.send(topic, [b"%d" % number for number in range(messages)], queue_id=queue)

    def read(self, spark: SparkSession, topic: str | None, **options: object) -> DataFrameReader:
        reader: DataFrameReader = self._with_options(spark.read.format("rocketmq"), topic, options)
        return reader

    def stream(self, spark: SparkSession, topic: str, **options: object) -> DataStreamReader:
        reader: DataStreamReader = self._with_options(spark.readStream.format("rocketmq"), topic, options)
        return reader

    def _with_options(self, reader: Any, topic: str | None, options: Mapping[str, object]) -> Any:
        reader = reader.option("nameServer", self.nameserver)
        if topic is not None:
            reader = reader.option("topic", topic)
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader


@asynccontextmanager
async def _running(root: Path, brokers: int, **settings: Any) -> AsyncIterator[RunningCluster]:
    """With `tls` the nameserver uses it, too."""
    async with AsyncExitStack() as stack:
        tls = settings.get("tls", TlsSettings())
        address = await stack.enter_async_context(nameserver(NameserverSettings(port=0, tls=tls)))
        started = []
        for letter in "abcd"[:brokers]:
            name = f"broker-{letter}"
            broker = running_broker(root / name, [address], **{"name": name, **settings})
            started.append(await stack.enter_async_context(broker))
        yield RunningCluster(address, started)


@contextmanager
def cluster_in_thread(root: Path, brokers: int = 1, **settings: Any) -> Iterator[ClusterFixture]:
    """A real cluster, on real sockets."""
    started: Future[ClusterFixture] = Future()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def run() -> None:
        async with _running(root, brokers, **settings) as cluster:
            addresses = {broker.settings.name: broker.address for broker in cluster.brokers}
            stores = {broker.settings.name: broker.settings.store.root for broker in cluster.brokers}
            client = Cluster(ClientSettings(nameservers=cluster.nameserver))
            started.set_result(ClusterFixture(cluster.nameserver, addresses, stores, client))
            await stop.wait()

    def serve() -> None:
        try:
            loop.run_until_complete(run())
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=serve, name="cluster", daemon=True)
    thread.start()
    try:
        cluster = started.result(_START_TIMEOUT_S)
        yield cluster
        cluster.client.calls.close()
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
