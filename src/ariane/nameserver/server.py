"""The nameserver process: builds its components, serves requests and expires brokers until it is stopped."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from ariane.clock import Clock
from ariane.lifecycle import background, every
from ariane.model.address import Address
from ariane.nameserver.access import NameserverAccess
from ariane.nameserver.handlers import BrokerHandlers, ConfigHandlers, RouteHandlers, RouteResponses
from ariane.nameserver.key_values import KeyValues
from ariane.nameserver.route_table import RouteTable
from ariane.nameserver.settings import NameserverSettings
from ariane.rpc.dispatcher import Dispatcher
from ariane.rpc.handlers import HandlerTable
from ariane.transport.exposure import exposed_hosts, exposure_logged
from ariane.transport.server import Server

log = logging.getLogger(__name__)


def handler_table(
    settings: NameserverSettings,
    routes: RouteTable,
    pairs: KeyValues,
    clock: Clock,
    access: NameserverAccess | None = None,
) -> HandlerTable:
    responses = RouteResponses(
        routes, pairs, with_order_conf=settings.order_message_enable, entries_max=2 * settings.topics_max
    )
    return HandlerTable.of(
        BrokerHandlers(settings, routes, pairs, clock, access),
        RouteHandlers(routes, responses),
        ConfigHandlers(settings, pairs),
    )


async def serve(
    settings: NameserverSettings,
    stop: asyncio.Event,
    *,
    ready: Callable[[Address], None],
    clock: Clock | None = None,
) -> None:
    """Runs until `stop` is set. Components start in this order and stop in reverse; a failed job stops the server."""
    clock = clock or Clock()
    exposed = exposed_hosts(
        {"bindAddress": settings.host}, access_control=settings.acl_enable, insecure=settings.insecure
    )
    key_values = KeyValues(settings.kv_config_path)
    routes = RouteTable(topics_max=settings.topics_max, brokers_max=settings.brokers_max)
    address = Address(settings.host, settings.port)
    async with _access(settings, clock) as access:
        table = handler_table(settings, routes, key_values, clock, access)
        dispatcher = Dispatcher(table, None if access is None else access.guard)
        expire = partial(_expire, routes, clock)
        show = partial(_print, key_values)
        async with (
            background(
                partial(every, clock, settings.scan_interval_s, expire, settings.first_scan_delay_s),
                partial(every, clock, settings.print_interval_s, show, settings.print_interval_s),
            ),
            Server.open(address, dispatcher.receive, settings.transport, settings.tls, clock) as server,
            exposure_logged("nameserver", exposed, clock),
        ):
            ready(server.address)
            await stop.wait()


@asynccontextmanager
async def _access(settings: NameserverSettings, clock: Clock) -> AsyncIterator[NameserverAccess | None]:
    """The accounts, when access control is on."""
    if not settings.acl_enable:
        yield None
        return
    async with NameserverAccess.open(settings.acl_file, clock, require_v2=settings.acl_require_v2) as access:
        yield access


def _expire(routes: RouteTable, clock: Clock) -> None:
    for broker in routes.expire(clock.monotonic()):
        log.warning(
            "broker dropped: no heartbeat",
            extra={"broker": broker.broker_name, "id": broker.broker_id, "address": broker.address},
        )


def _print(key_values: KeyValues) -> None:
    log.debug("configuration", extra={"table": dict(key_values.table)})
