"""A nameserver in this process, or as a process of its own, and registrations as a broker sends them."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

from ariane.clock import Clock
from ariane.model.address import Address
from ariane.model.topic import DataVersion, TopicConfig
from ariane.nameserver.server import serve
from ariane.nameserver.settings import NameserverSettings
from ariane.rpc.caller import Caller
from ariane.rpc.dispatcher import Dispatcher
from ariane.rpc.handlers import HandlerTable
from ariane.transport.pool import Pool
from ariane.transport.settings import TransportSettings
from ariane.wire.codes import Serialization
from ariane.wire.registration import RegistrationBody, encode_registration
from ariane.wire.requests.brokers import RegisterBroker

SETTINGS = NameserverSettings(port=0)


@asynccontextmanager
async def nameserver(settings: NameserverSettings = SETTINGS, clock: Clock | None = None) -> AsyncIterator[str]:
    """Runs a nameserver and yields its address."""
    stop = asyncio.Event()
    address: asyncio.Future[Address] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        group.create_task(serve(settings, stop, ready=address.set_result, clock=clock))
        try:
            yield str(await address)
        finally:
            stop.set()


@contextmanager
def nameserver_process() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The real command; killed at the end if the test has not done so."""
    command = [sys.executable, "-m", "ariane", "namesrv", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            assert "ready on" in ready
            yield process, ready.split("ready on ")[1].split()[0]
        finally:
            process.kill()


@asynccontextmanager
async def caller(serialization: Serialization = Serialization.JSON) -> AsyncIterator[Caller]:
    async with Pool.open(TransportSettings(), Clock(), Dispatcher(HandlerTable.of()).receive) as pool:
        yield Caller(pool, serialization)


def registration(
    *topics: str | TopicConfig,
    broker: str = "broker-a",
    address: str = "127.0.0.1:10911",
    cluster: str = "DefaultCluster",
    broker_id: int = 0,
    counter: int = 1,
    compressed: bool = False,
) -> RegisterBroker:
    configs = [topic if isinstance(topic, TopicConfig) else TopicConfig(topic_name=topic) for topic in topics]
    table = RegistrationBody(
        data_version=DataVersion(timestamp=1_700_000_000_000, counter=counter),
        topics={config.topic_name: config for config in configs},
    )
    body, crc = encode_registration(table, compressed)
    return RegisterBroker(
        broker_name=broker,
        broker_addr=address,
        cluster_name=cluster,
        broker_id=broker_id,
        ha_server_addr=address.replace("11", "12"),
        compressed=compressed,
        body_crc32=crc,
        body=body,
    )


def corrupted(request: RegisterBroker) -> RegisterBroker:
    return RegisterBroker(
        broker_name=request.broker_name, broker_addr=request.broker_addr, cluster_name=request.cluster_name,
        broker_id=request.broker_id, body_crc32=request.body_crc32 ^ 1, body=request.body,
    )  # fmt: skip


def with_settings(**changes: object) -> NameserverSettings:
    return replace(SETTINGS, **changes)  # type: ignore[arg-type]
