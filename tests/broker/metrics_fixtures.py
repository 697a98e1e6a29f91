"""A broker with metrics enabled, and a scraper."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client.parser import text_string_to_metric_families

from ariane.broker.settings import MetricsExporter
from ariane.clock import Clock
from ariane.model.address import Address
from ariane.model.topic import TopicConfig
from ariane.rpc.caller import Caller
from ariane.wire.fields import Request, Response
from tests.broker.brokers import RunningBroker, running_broker
from tests.broker.in_process_broker import TOPIC
from tests.nameserver.servers import caller

A = TypeVar("A", bound=Response)
BASE = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}


class MonitoredBroker:
    """A broker, a client of it, and a scraper."""

    def __init__(self, broker: RunningBroker, client: Caller) -> None:
        self.broker = broker
        self._client = client

    @property
    def address(self) -> Address:
        assert self.broker.broker.metrics is not None
        return self.broker.broker.metrics

    async def call(self, request: Request[A]) -> A:
        return await self._client.call(self.broker.address, request, 10)

    async def get(self, path: str = "/metrics", method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        return parsed(await self.exchange(f"{method} {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode()))

    async def exchange(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(self.address.host, self.address.port)
        try:
            writer.write(request)
            writer.write_eof()
            return await reader.read()
        finally:
            writer.close()

    async def scrape(self) -> "Samples":
        status, _, body = await self.get()
        assert status == 200
        return Samples(body.decode())


class Samples:
    """The response of one scrape, parsed by prometheus_client."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self._samples = [sample for family in self.families.values() for sample in family.samples]

    def of(self, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Values by their labels, but for those that every metric has."""
        found = [sample for sample in self._samples if sample.name == name]
        for sample in found:
            assert BASE.items() <= sample.labels.items()
        return {tuple(sorted(sample.labels.items() - BASE.items())): sample.value for sample in found}

    def value(self, name: str, **labels: str) -> float:
        return self.of(name)[tuple(sorted(labels.items()))]


def parsed(response: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = response.partition(b"\r\n\r\n")
    line, *lines = head.decode().split("\r\n")
    return int(line.split(" ")[1]), dict(header.split(": ", 1) for header in lines), body


@asynccontextmanager
async def monitored_broker(
    tmp_path: Path, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[MonitoredBroker]:
    all_settings = {"metrics_exporter": MetricsExporter.PROM, "metrics_port": 0, **settings}
    async with running_broker(tmp_path, clock=clock, **all_settings) as broker, caller() as client:
        broker.parts.topics.put(TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4))
        yield MonitoredBroker(broker, client)
