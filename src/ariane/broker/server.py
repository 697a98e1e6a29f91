"""The broker process: ports, components, handlers, servers and registration, opened in order and closed in reverse."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial

from ariane.broker.acl.rights import all_rights
from ariane.broker.admin.acl import AccessHandlers
from ariane.broker.admin.clients import ConnectionHandlers
from ariane.broker.admin.configs import ConfigHandlers
from ariane.broker.admin.groups import GroupHandlers
from ariane.broker.admin.messages import MessageHandlers
from ariane.broker.admin.offsets import ConsumerOffsetHandlers
from ariane.broker.admin.runtime import RuntimeHandlers, ScheduleHandlers, StatsHandlers
from ariane.broker.admin.topics import QueueHandlers, TopicHandlers
from ariane.broker.components import Components
from ariane.broker.groups.lag import ConsumeProgress
from ariane.broker.groups.locks import LockHandlers
from ariane.broker.groups.retries import RetryHandlers
from ariane.broker.heartbeats import ClientHandlers
from ariane.broker.metrics.http import MetricsServer, metrics_listener
from ariane.broker.pull.checks import PullChecks
from ariane.broker.pull.handler import PullHandlers
from ariane.broker.pull.long_polling import PullWaiters
from ariane.broker.registration import Registration, resolve_advertised_address
from ariane.broker.send.checks import SendChecks
from ariane.broker.send.flow_control import FlowControl
from ariane.broker.send.handler import SendHandlers
from ariane.broker.send.reply import ReplyHandlers, ReplyPusher
from ariane.broker.send.responses import SendResponses
from ariane.broker.settings import VIP_PORT_DISTANCE, BrokerSettings, MetricsExporter
from ariane.broker.transactions.outcomes import TransactionHandlers
from ariane.clock import Clock
from ariane.errors import ListenFailed
from ariane.model.address import Address
from ariane.rpc.dispatcher import Dispatcher
from ariane.rpc.handlers import HandlerTable
from ariane.transport.exposure import exposed_hosts, exposure_logged
from ariane.transport.listener import listen_failed
from ariane.transport.server import Server

# --- ports ------------------------------------------------------------------------------------------------------------
#
# A broker has a main port and a VIP port two below it. Both are bound before the store is opened, so that a port in use
# is reported at once and not after a recovery of minutes, and so that no other process takes one of a free pair.
# Binding is not listening: no client is accepted yet.

_ATTEMPTS = 100
_VIP = f" (the VIP port, {VIP_PORT_DISTANCE} below the main one)"


@dataclass(frozen=True, slots=True)
class Reservation:
    port: int
    _held: ExitStack

    def release(self) -> None:
        """Just before the servers listen on the ports themselves."""
        self._held.close()


@contextmanager
def reserved_ports(host: str, port: int) -> Iterator[Reservation]:
    """Holds `port` and its VIP port, or a free pair for port 0. ListenFailed when one is taken."""
    with ExitStack() as held:
        yield Reservation(_hold_pair(host, port, held), held)


def _hold_pair(host: str, port: int, held: ExitStack) -> int:
    if port:
        held.enter_context(_bind(Address(host, port), ""))
        held.enter_context(_bind(Address(host, port - VIP_PORT_DISTANCE), _VIP))
        return port
    for _ in range(_ATTEMPTS - 1):
        try:
            return _hold_free_pair(host, held)
        except ListenFailed:
            continue
    return _hold_free_pair(host, held)


def _hold_free_pair(host: str, held: ExitStack) -> int:
    with ExitStack() as pair:
        main = pair.enter_context(_bind(Address(host, 0), ""))
        port: int = main.getsockname()[1]
        pair.enter_context(_bind(Address(host, port - VIP_PORT_DISTANCE), _VIP))
        held.enter_context(pair.pop_all())
    return port


def _bind(address: Address, note: str) -> socket.socket:
    try:
        family, *_ = socket.getaddrinfo(address.host or "0.0.0.0", address.port, type=socket.SOCK_STREAM)[0]  # noqa: S104
    except socket.gaierror as error:
        raise listen_failed(address, error, note) from error
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port of a broker that has just stopped is free
        bound.bind((address.host, address.port))
    except OSError as error:
        bound.close()
        raise listen_failed(address, error, note) from error
    return bound


# --- handlers ---------------------------------------------------------------------------------------------------------


def handler_table(parts: Components) -> HandlerTable:
    settings, clock, store = parts.settings, parts.clock, parts.store.store
    topics, groups, offsets, clients, writer = parts.topics, parts.groups, parts.offsets, parts.clients, parts.writer
    flow, checks = FlowControl(store, writer, settings), SendChecks(settings, topics, clock)
    pull_checks = PullChecks(settings, topics, groups, clients)
    pusher = ReplyPusher(clients, clock, parts.store_host)
    rights_of = all_rights if parts.access is None else parts.access.rights_of
    progress = ConsumeProgress(settings.name, topics, offsets, clients, store, rate_of=parts.statistics.consume_rate)
    return HandlerTable.of(
        SendHandlers(settings, topics, groups, store, writer, flow, checks, SendResponses(settings, parts.store_host)),
        PullHandlers(settings, pull_checks, offsets, parts.store, writer, parts.pull_waiters, clock, parts.store_host),
        QueueHandlers(store),
        MessageHandlers(settings, parts.store, clients, rights_of),
        ReplyHandlers(settings, store, writer, checks, pusher, parts.store_host, rights_of),
        RetryHandlers(writer, store.lookup, groups, topics, settings, rights_of),
        ScheduleHandlers(parts.delayed),
        TransactionHandlers(parts.transactions, store, writer, rights_of),
        ClientHandlers(settings, clients, groups, topics, clock),
        LockHandlers(settings, parts.locks, topics, groups, clock),
        ConsumerOffsetHandlers(settings, offsets, groups, topics, clients, store, rights_of, parts.invented),
        GroupHandlers(settings, groups, offsets, clients, progress, clock, rights_of),
        ConnectionHandlers(settings, clients, store, clock),
        TopicHandlers(settings, topics, offsets, store, rights_of),
        AccessHandlers(settings, parts.access),
        ConfigHandlers(settings, topics, clock),
        RuntimeHandlers(settings, topics, parts.store, clock, parts.booted_ms, parts.statistics, writer),
        StatsHandlers(parts.statistics),
    )


def dispatcher_of(parts: Components) -> Dispatcher:
    """All handlers, behind access control if it is on."""
    table, access = handler_table(parts), parts.access
    if access is None:
        return Dispatcher(table)
    return Dispatcher(table, access.guard, access.admits_frame, access.signatures.frame_left)


# --- the broker -------------------------------------------------------------------------------------------------------

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker: its address, its effective settings, and its components."""

    address: Address
    settings: BrokerSettings
    parts: Components
    registration: Registration
    metrics: Address | None
    """Of the metrics endpoint, when there is one."""


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

    On a stop the broker first unregisters from the nameservers. Then requests in progress are answered, each only when
    its message is as durable as promised; only then do the components and the store below them close.

    Both ports serve everything. Apache 4 leaves pulls out of the VIP port, 5 does not, and clients of both send all but
    pulls there.
    """
    exposed = exposed_hosts(_hosts(settings), access_control=settings.acl_enable, insecure=settings.insecure)
    with reserved_ports(settings.host, settings.port) as ports, metrics_listener(settings) as metrics_socket:
        placed = await resolve_advertised_address(settings, ports.port)
        settings = placed.settings
        async with Components.open(settings, clock, placed.store_host) as parts:
            dispatcher = dispatcher_of(parts)
            open_server = partial(
                Server.open,
                receive=dispatcher.receive,
                settings=settings.transport,
                tls=settings.tls,
                clock=clock,
                fast_path=dispatcher.fast_path,
                memory=parts.memory,
            )
            main, vip = settings.port, settings.port - VIP_PORT_DISTANCE
            ports.release()
            async with (
                MetricsServer.open(metrics_socket, parts) as metrics,
                open_server(Address(settings.host, vip)),
                open_server(Address(settings.host, main)) as server,
                exposure_logged("broker", exposed, clock),
                _responding_at_the_end(parts.pull_waiters),
                Registration.open(settings, parts.topics, clock) as registration,
            ):
                log.info("broker started", extra={"broker": settings.name, "address": str(settings.advertised)})
                yield Broker(server.address, settings, parts, registration, metrics.address if metrics else None)


def _hosts(settings: BrokerSettings) -> dict[str, str]:
    """Where the broker listens, by setting. The metrics have no accounts, but names of topics and groups."""
    hosts = {"bindAddress": settings.host}
    if settings.metrics_exporter is not MetricsExporter.DISABLE and settings.metrics_host is not None:
        hosts["metricsPromExporterHost"] = settings.metrics_host
    return hosts


@asynccontextmanager
async def _responding_at_the_end(pull_waiters: PullWaiters) -> AsyncIterator[None]:
    """Waiting pulls are answered before their connections drain, so that clients need not time out."""
    try:
        yield
    finally:
        pull_waiters.respond_all()
