"""A running `ariane up`, from its servers to the lines that it prints."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import click

from ariane.cli.up_notice import Notice
from ariane.cli.up_plan import UpPlan
from ariane.cli.up_servers import UpServers, servers_running
from ariane.clock import Clock
from ariane.lifecycle import background
from ariane.model.address import Address


@dataclass(frozen=True, slots=True)
class Session:
    plan: UpPlan
    notice: Notice
    demo_rate: float | None
    """None: no demo."""
    log_level: str

    async def serve(self, stop: asyncio.Event, *, ready: Callable[[Address], None]) -> None:
        async with servers_running(self.plan, self.log_level) as servers, self._demo(str(servers.namesrv)):
            self.notice.tell(str(servers.namesrv))
            ready(servers.namesrv)
            click.echo("\n".join(self._summary(servers)))
            await stop.wait()

    @asynccontextmanager
    async def _demo(self, namesrv: str) -> AsyncIterator[None]:
        if self.demo_rate is None:
            yield
            return
        from ariane.cli.up_orders import OrderStream, feed

        async with background(partial(feed, namesrv, self.demo_rate, Clock(), OrderStream())):
            yield

    def _summary(self, servers: UpServers) -> list[str]:
        facts = {"nameserver": str(servers.namesrv)}
        facts |= {name: str(address) for name, address in servers.brokers.items()}
        facts["data"] = str(self.plan.data)
        if self.demo_rate is not None:
            facts["demo"] = f"{self.demo_rate:g} events a second to the topic `orders`"
        if self.plan.idle:
            facts["not started"] = f"{', '.join(self.plan.idle)}, which have data here: start them with --brokers"
        width = max(map(len, facts))
        return [
            *(f"  {name:{width}}  {fact}" for name, fact in facts.items()),
            "Ctrl-C stops everything. Next, in another terminal:",
            *(f"  {line}" for line in next_commands(str(servers.namesrv))),
        ]


def next_commands(namesrv: str) -> list[str]:
    return [
        f"ariane send orders 'hello' -n {namesrv}",
        f"ariane tail orders --from earliest -n {namesrv}",
        f"ariane cluster -n {namesrv}",
    ]
