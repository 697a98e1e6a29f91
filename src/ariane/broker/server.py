"""The broker process: ports, components, handlers, servers and registration, opened in order and closed in reverse."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from ariane.broker.acl.rights import all_rights
from ariane.broker.admin.acl import AccessHandlers
from ariane.broker.admin.clients import ConnectionHandlers
from ariane.broker.admin.configs import ConfigHandlers
from ariane.broker.admin.copied_tables import CopiedTables
from ariane.broker.admin.groups import GroupHandlers
from ariane.broker.admin.messages import MessageHandlers
from ariane.broker.admin.offsets import ConsumerOffsetHandlers
from ariane.broker.admin.replication import ReplicationHandlers
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
from ariane.broker.settings import VIP_PORT_DISTANCE, BrokerRole, BrokerSettings, MetricsExporter
from ariane.broker.transactions.handler import TransactionHandlers
from ariane.clock import Clock
from ariane.model.address import Address
from ariane.replication.hello import Identity
from ariane.replication.role import Replication, ReplicationRole
from ariane.replication.slave_guard import Guards, at_slave
from ariane.rpc.dispatcher import Dispatcher
from ariane.rpc.handlers import HandlerTable
from ariane.transport.exposure import exposed_hosts, exposure_logged
from ariane.transport.reserved_ports import Reservation, reserved_ports
from ariane.transport.server import Server
from ariane.wire.frame import FrameLimits

# --- handlers ---------------------------------------------------------------------------------------------------------


def handler_table(parts: Components, replication: Replication) -> HandlerTable:
    settings, clock, store = parts.settings, parts.clock, parts.store.store
    topics, groups, offsets, clients, writer = parts.topics, parts.groups, parts.offsets, parts.clients, parts.writer
    flow, checks = FlowControl(store, writer, settings), SendChecks(settings, topics, clock)
    pull_checks = PullChecks(settings, topics, groups, clients)
    pusher = ReplyPusher(clients, clock, parts.store_host)
    rights_of = all_rights if parts.access is None else parts.access.rights_of
    limits = FrameLimits(settings.transport.frame_bytes_max, settings.transport.header_bytes_max)
    progress = ConsumeProgress(settings.name, topics, offsets, clients, store, rate_of=parts.statistics.consume_rate)
    return HandlerTable.of(
        SendHandlers(settings, topics, groups, store, writer, flow, checks, SendResponses(settings, parts.store_host)),
        PullHandlers(settings, pull_checks, offsets, parts.store, writer, parts.pull_waiters, clock, parts.store_host),
        QueueHandlers(store),
        MessageHandlers(settings, parts.store, clients, rights_of),
        ReplyHandlers(settings, store, writer, checks, pusher, parts.store_host, rights_of),
        RetryHandlers(writer, store.lookup, groups, topics, settings, rights_of),
        ScheduleHandlers(parts.delayed, parts.timer),
        TransactionHandlers(parts.transactions, store, writer, rights_of, limits),
        ClientHandlers(settings, clients, groups, topics, clock),
        LockHandlers(settings, parts.locks, topics, groups, clock),
        ConsumerOffsetHandlers(settings, offsets, groups, topics, clients, store, rights_of, parts.invented),
        GroupHandlers(settings, groups, offsets, clients, progress, clock, rights_of),
        ConnectionHandlers(settings, clients, store, clock),
        TopicHandlers(settings, topics, offsets, store, rights_of),
        AccessHandlers(settings, parts.access),
        ConfigHandlers(settings, topics, clock),
        RuntimeHandlers(settings, topics, parts.store, clock, parts.booted_ms, parts.statistics, writer, replication),
        ReplicationHandlers(settings, replication),
        StatsHandlers(parts.statistics),
    )


def dispatcher_of(parts: Components, replication: Replication) -> Dispatcher:
    """All handlers, behind access control if it is on. A slave refuses what would write."""
    table, access = handler_table(parts, replication), parts.access
    guards = Guards() if access is None else Guards(access.guard, access.admits_frame, access.signatures.frame_left)
    return Dispatcher(table, *(at_slave(guards) if parts.settings.is_slave else guards))


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
    replication: Replication


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
    with reserved_ports(settings.ports) as ports, metrics_listener(settings) as metrics_socket:
        placed = await resolve_advertised_address(settings, ports.port)
        settings = placed.settings
        async with (
            Components.open(settings, clock, placed.store_host) as parts,
            _replicating(parts, ports) as replicating,
        ):
            dispatcher = dispatcher_of(parts, replicating)
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
            async with (
                MetricsServer.open(metrics_socket, parts, replicating) as metrics,
                open_server(Address(settings.host, vip)),
                open_server(Address(settings.host, main)) as server,
                exposure_logged("broker", exposed, clock),
                _responding_at_the_end(parts.pull_waiters),
                Registration.open(settings, parts.topics, clock, replicating.on_master) as registration,
            ):
                replicating.ask_nameservers_by(registration.make_due)
                log.info("broker started", extra={"broker": settings.name, "address": str(settings.advertised)})
                metrics_address = metrics.address if metrics else None
                yield Broker(server.address, settings, parts, registration, metrics_address, replicating)


def _replicating(parts: Components, ports: Reservation) -> AbstractAsyncContextManager[Replication]:
    """The first to listen; the other ports are bound right behind it."""
    settings = parts.settings
    ports.release()
    identity = Identity(settings.cluster, settings.name, settings.store.segment_bytes)
    role = ReplicationRole(settings.replication, identity, parts.clock, settings.transport, settings.tls)
    if parts.following is None:
        waiting = parts.writer if settings.role is BrokerRole.SYNC_MASTER else None
        return role.master(Address(settings.host, settings.replication_port), parts.store, waiting)
    copied = CopiedTables(parts.store, parts.topics, parts.groups, parts.offsets, parts.delayed, parts.timer)
    return role.slave(settings.broker_id, parts.following, copied.tables)


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
