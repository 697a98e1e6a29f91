"""The main job end to end, as far as Ariane goes today: `make demo` runs this.

Starts a real nameserver process, registers a broker by hand over the wire, looks the route up as a client would, and
prints it.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.table import Table

from ariane.clock import Clock
from ariane.model.route import TopicRoute
from ariane.model.topic import DataVersion, TopicConfig
from ariane.rpc.caller import Caller
from ariane.rpc.dispatcher import Dispatcher
from ariane.rpc.handlers import HandlerTable
from ariane.transport.pool import Pool
from ariane.transport.settings import TransportSettings
from ariane.wire.registration import RegistrationBody, encode_registration
from ariane.wire.requests.brokers import RegisterBroker
from ariane.wire.requests.routes import GetRoute

TOPICS = [
    TopicConfig(topic_name="orders", read_queue_nums=8, write_queue_nums=8),
    TopicConfig(topic_name="payments", read_queue_nums=4, write_queue_nums=4),
]
console = Console(width=100)  # the same table in a narrow terminal, a log or a pipe


@contextmanager
def nameserver() -> Iterator[str]:
    command = [sys.executable, "-m", "ariane", "namesrv", "--listen", "127.0.0.1:0", "--log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline().strip()
            if "ready on" not in ready:
                raise SystemExit("the nameserver did not start; its message is above")
            console.print(f"[green]✓[/] {ready}", highlight=False)
            yield ready.split("ready on ")[1].split()[0]
        finally:
            process.terminate()
    console.print(f"[green]✓[/] nameserver stopped, exit status {process.returncode}", highlight=False)


def registration() -> RegisterBroker:
    """What a broker with two topics tells a nameserver every 30 seconds."""
    table = RegistrationBody(
        data_version=DataVersion(timestamp=Clock().now_ms(), counter=1),
        topics={topic.topic_name: topic for topic in TOPICS},
    )
    body, crc = encode_registration(table, compressed=False)
    return RegisterBroker(
        broker_name="broker-a",
        broker_addr="127.0.0.1:10911",
        cluster_name="DefaultCluster",
        broker_id=0,
        body_crc32=crc,
        body=body,
    )


def rows(topic: str, route: TopicRoute) -> Iterator[tuple[str, ...]]:
    brokers = {broker.broker_name: broker for broker in route.broker_datas}
    for queues in route.queue_datas:
        broker = brokers[queues.broker_name]
        addresses = ", ".join(f"{number}={address}" for number, address in broker.broker_addrs.items())
        counts = str(queues.write_queue_nums), str(queues.read_queue_nums), str(queues.perm)
        yield topic, broker.cluster, broker.broker_name, addresses, *counts


async def run(address: str) -> None:
    no_requests = Dispatcher(HandlerTable.of())
    async with Pool.open(TransportSettings(), Clock(), no_requests.receive) as pool:
        caller = Caller(pool)
        await caller.call(address, registration())
        console.print("[green]✓[/] broker-a registered with 2 topics", highlight=False)
        table = Table(title="Routes, as a client gets them", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1))
        for heading in ("topic", "cluster", "broker", "address", "write", "read", "perm"):
            table.add_column(heading, no_wrap=True)
        for topic in TOPICS:
            answer = await caller.call(address, GetRoute(topic.topic_name))
            for row in rows(topic.topic_name, answer.body):
                table.add_row(*row)
        console.print(table)


def main() -> None:
    with nameserver() as address:
        asyncio.run(run(address))


if __name__ == "__main__":
    main()
