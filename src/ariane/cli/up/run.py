"""Runs `ariane up`: a nameserver and one broker in one event loop, or a nameserver and several broker processes."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial

import click

from ariane.cli.common.connection import Notice
from ariane.cli.up.command import SLAVE, UpPlan, up_broker_settings
from ariane.cli.up.processes import BrokerProcesses, UpBroker
from ariane.clock import Clock
from ariane.errors import ListenFailed, sole_cause
from ariane.lifecycle import background
from ariane.model.address import Address
from ariane.nameserver.server import serve
from ariane.nameserver.settings import NameserverSettings
from ariane.transport.listener import ANOTHER_ADDRESS

_REPLICATION = {
    "sync": "sync: a send is acknowledged when the slave has the message, too",
    "async": "async: a send is acknowledged at once, and the slave gets the message a moment later",
}


@dataclass(frozen=True, slots=True)
class UpServers:
    namesrv: Address
    brokers: list[UpBroker]


@asynccontextmanager
async def servers_running(plan: UpPlan, log_level: str) -> AsyncIterator[UpServers]:
    """The servers are ready when the body begins, and stopped when it is left."""
    async with _nameserver(plan.nameserver(os.environ)) as namesrv:
        is_one = plan.brokers == 1 and not plan.has_slaves
        start = _broker_here if is_one else partial(_broker_processes, log_level=log_level)
        with _port_hint("--broker-port"):
            opening: AbstractAsyncContextManager[list[UpBroker]] = start(plan, str(namesrv))
            async with opening as brokers:
                yield UpServers(namesrv, brokers)


@asynccontextmanager
async def _nameserver(settings: NameserverSettings) -> AsyncIterator[Address]:
    address: asyncio.Future[Address] = asyncio.get_running_loop().create_future()
    with _port_hint("--port"):
        async with background(partial(serve, settings, asyncio.Event(), ready=address.set_result)):
            yield await address


@asynccontextmanager
async def _broker_here(plan: UpPlan, namesrv: str) -> AsyncIterator[list[UpBroker]]:
    from ariane.broker.server import running  # the parent of broker processes does not need it: a faster start

    ((name, flags),) = plan.master_flags(namesrv).items()
    async with running(up_broker_settings(flags, os.environ), Clock()) as broker:
        yield [UpBroker(name, name, 0, os.getpid(), broker.address)]


@asynccontextmanager
async def _broker_processes(plan: UpPlan, namesrv: str, log_level: str) -> AsyncIterator[list[UpBroker]]:
    masters, slaves = plan.master_flags(namesrv), plan.slave_flags(namesrv)
    async with BrokerProcesses.running(masters, slaves, log_level) as processes:
        yield [member.broker for member in processes.members]


@contextmanager
def _port_hint(option: str) -> Iterator[None]:
    """The servers' errors suggest `--listen`; `ariane up` has another option for the port."""
    try:
        yield
    except Exception as error:
        cause = sole_cause(error)
        if not isinstance(cause, ListenFailed) or ANOTHER_ADDRESS not in str(cause):
            raise
        text = str(cause).replace(ANOTHER_ADDRESS, f"another with {option} PORT (0 takes a free one)")
        raise ListenFailed(text) from error


@dataclass(frozen=True, slots=True)
class Session:
    plan: UpPlan
    notice: Notice
    demo_rate: float | None
    """Events a second; None without the demo."""
    log_level: str

    async def serve(self, stop: asyncio.Event, *, ready: Callable[[Address], None]) -> None:
        async with servers_running(self.plan, self.log_level) as servers, self._demo(str(servers.namesrv)):
            self.notice.publish(str(servers.namesrv), (broker.as_row() for broker in servers.brokers))
            ready(servers.namesrv)
            click.echo("\n".join(self._summary(servers)))
            await stop.wait()

    @asynccontextmanager
    async def _demo(self, namesrv: str) -> AsyncIterator[None]:
        if self.demo_rate is None:
            yield
            return
        from ariane.cli.up.demo_orders import OrderStream, feed

        async with background(partial(feed, namesrv, self.demo_rate, Clock(), OrderStream())):
            yield

    def _summary(self, servers: UpServers) -> list[str]:
        facts = {"nameserver": str(servers.namesrv)}
        facts |= {broker.label: str(broker.address) for broker in servers.brokers}
        if self.plan.replication is not None:
            facts["replication"] = _REPLICATION[self.plan.replication]
        facts["data"] = str(self.plan.data)
        if self.demo_rate is not None:
            facts["demo"] = f"{self.demo_rate:g} events a second to the topic `orders`"
        idle = {"--brokers": self.plan.idle(), "--slave": self.plan.idle(SLAVE)}
        if any(idle.values()):
            facts["not started"] = "; ".join(
                f"{', '.join(names)} (data exists here): start with {option}" for option, names in idle.items() if names
            )
        width = max(map(len, facts))
        return [
            *(f"  {name:{width}}  {fact}" for name, fact in facts.items()),
            "Ctrl-C stops all servers. Next, in another terminal:",
            *(f"  {line}" for line in next_commands(str(servers.namesrv))),
        ]


def next_commands(namesrv: str) -> list[str]:
    return [
        f"ariane send orders 'hello' -n {namesrv}",
        f"ariane tail orders --from earliest -n {namesrv}",
        f"ariane cluster -n {namesrv}",
    ]
