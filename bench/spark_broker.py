"""Measures Spark with a broker in another process: the sink, the reader, and micro-batches with little to do."""

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from ariane.client.settings import ClientSettings
from ariane.errors import ArianeError
from ariane.spark.cluster import Cluster
from ariane.wire.requests.brokers import UpdateBrokerSettings
from ariane.wire.requests.send import SendMessageV2
from ariane.wire.requests.topics import UpdateTopic
from bench.spark_cost import Cost, best_cost
from bench.spark_reads import discard
from bench.systems.ariane import Ariane
from bench.systems.system import Running, Setup

_QUEUES = 4
_PATIENCE_S = 60


@dataclass
class SparkWithBroker:
    spark: SparkSession
    system: Running
    cluster: Cluster

    def topic(self, name: str) -> str:
        request = UpdateTopic(
            topic=name,
            default_topic="TBW102",
            read_queue_nums=_QUEUES,
            write_queue_nums=_QUEUES,
            perm=6,
            topic_filter_type="SINGLE_TAG",
        )
        self.cluster.calls.call(self.system.addresses[0], request)
        deadline = monotonic() + _PATIENCE_S
        while monotonic() < deadline:
            try:
                self.cluster.queues([name], fresh=True)
            except ArianeError:
                sleep(0.1)
            else:
                return name
        raise TimeoutError(f"the nameserver does not know topic {name}")

    def rows(self, count: int, body_bytes: int) -> DataFrame:
        return self.spark.range(0, count, 1, 4).select(lit("x" * body_bytes).cast("binary").alias("body"))

    def sink(self, topic: str, count: int, body_bytes: int, rounds: int) -> Cost:
        frame = self.rows(count, body_bytes)

        def write() -> None:
            frame.write.format("rocketmq").option("nameServer", self.system.nameserver).option("topic", topic).mode(
                "append"
            ).save()

        return best_cost(self.spark, write, rounds, self.system.servers)

    def read(self, topic: str, rounds: int) -> tuple[int, Cost]:
        options = {"nameServer": self.system.nameserver, "topic": topic, "columns": "queueId,queueOffset,body"}
        frame = self.spark.read.format("rocketmq").options(**options).load()
        return frame.count(), best_cost(self.spark, lambda: discard(frame), rounds, self.system.servers)

    def set_broker_setting(self, key: str, value: int) -> None:
        """Changes a setting of the running broker, by its name in broker.conf."""
        self.cluster.calls.call(self.system.addresses[0], UpdateBrokerSettings(body=f"{key}={value}\n"))

    def idle_ms(self, topic: str, checkpoint: Path, batches: int) -> float:
        """The median micro-batch with one message in it, the first ones left out."""
        options = {"nameServer": self.system.nameserver, "topic": topic, "startingOffsets": "earliest"}
        frame = self.spark.readStream.format("rocketmq").options(**options).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(processingTime="0 seconds").start()
        try:
            for number in range(batches):
                self._send(topic)
                deadline = monotonic() + _PATIENCE_S
                while sum(progress["numInputRows"] > 0 for progress in query.recentProgress) <= number:
                    if monotonic() > deadline or not query.isActive:
                        raise TimeoutError(f"no micro-batch came: {query.exception()}")
                    sleep(0.02)
            took = [
                progress["durationMs"]["triggerExecution"]
                for progress in query.recentProgress
                if progress["numInputRows"]
            ]
        finally:
            query.stop()
        return float(statistics.median(took[batches // 4 :]))

    def _send(self, topic: str) -> None:
        request = SendMessageV2(
            producer_group="bench",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=_QUEUES,
            queue_id=0,
            sys_flag=0,
            born_timestamp=1_700_000_000_000,
            flag=0,
            properties="",
            body=b"x",
        )
        self.cluster.calls.call(self.system.addresses[0], request)


@contextmanager
def brokered(spark: SparkSession, home: Path) -> Iterator[SparkWithBroker]:
    with Ariane().start(Setup(), home) as system:
        cluster = Cluster(ClientSettings(nameservers=system.nameserver))
        try:
            yield SparkWithBroker(spark, system, cluster)
        finally:
            cluster.calls.close()
