"""The broker's whole life in one function."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from ariane.broker.advertise import place
from ariane.broker.handlers import handler_table
from ariane.broker.metrics.server import MetricsServer, metrics_listener
from ariane.broker.parts import Parts
from ariane.broker.ports import reserved_ports
from ariane.broker.registration import Registration
from ariane.broker.settings import VIP_PORT_DISTANCE, BrokerSettings
from ariane.broker.waiting import ParkedPulls
from ariane.clock import Clock
from ariane.model.address import Address
from ariane.rpc.dispatcher import Dispatcher
from ariane.transport.server import Server

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that runs: where it listens, what it was told in the end, and its parts."""

    address: Address
    settings: BrokerSettings
    parts: Parts
    registration: Registration
    metrics: Address | None
    """Where the page of metrics is, when there is one."""


async def serve(
    settings: BrokerSettings,
    stop: asyncio.Event,
    *,
    ready: Callable[[Address], None],
    clock: Clock | None = None,
) -> None:
    async with running(settings, clock or Clock()) as broker:
        ready(broker.address)
        await stop.wait()


@asynccontextmanager
async def running(settings: BrokerSettings, clock: Clock) -> AsyncIterator[Broker]:
    """Boot order reads downwards, stop order upwards. A job that fails stops the broker with its error.

    On a stop clients first learn from the nameservers that we go. Then requests in hand are answered, each only when
    its message is as durable as it was promised; only then do the parts and the store below them close.

    Both ports serve everything. Apache 4 leaves pulls out of the VIP port, 5 does not, and clients of both send all but
    pulls there.
    """
    with reserved_ports(settings.host, settings.port) as ports, metrics_listener(settings) as metrics_socket:
        placed = await place(settings, ports.port)
        settings = placed.settings
        async with Parts.open(settings, clock, placed.store_host) as parts:
            dispatcher = Dispatcher(handler_table(parts), guard=parts.access.guard if parts.access else None)
            open_server = partial(
                Server.open,
                receive=dispatcher.receive,
                settings=settings.transport,
                tls=settings.tls,
                clock=clock,
                lane=dispatcher.lane,
            )
            main, vip = settings.port, settings.port - VIP_PORT_DISTANCE
            ports.release()
            async with (
                MetricsServer.open(metrics_socket, parts) as metrics,
                open_server(Address(settings.host, vip)),
                open_server(Address(settings.host, main)) as server,
                _answered_at_the_end(parts.parked),
                Registration.open(settings, parts.topics, clock) as registration,
            ):
                log.info("broker started", extra={"broker": settings.name, "address": str(settings.advertised)})
                yield Broker(server.address, settings, parts, registration, metrics.address if metrics else None)


@asynccontextmanager
async def _answered_at_the_end(parked: ParkedPulls) -> AsyncIterator[None]:
    """Pulls that wait for a message are answered before their connections drain: clients need not find out."""
    try:
        yield
    finally:
        parked.answer_all()
