"""Every declared request has a handler at each of its servers, or a documented reason; never both."""

from pathlib import Path

import ariane.wire.requests  # noqa: F401 - fills REQUESTS
from ariane.broker.server import handler_table as broker_handlers
from ariane.client.core.instance import ClientHandlers, PendingReplies
from ariane.client.core.lifecycle import RegisteredClients
from ariane.clock import Clock
from ariane.nameserver.key_values import KeyValues
from ariane.nameserver.route_table import RouteTable
from ariane.nameserver.server import handler_table as nameserver_handlers
from ariane.wire.exchange import REQUESTS, ServedBy
from ariane.wire.requests.unsupported import UNSERVED
from tests.broker.brokers import running_broker
from tests.nameserver.servers import SETTINGS


def check(server: ServedBy, handled: set[int]) -> None:
    for code, declaration in REQUESTS.items():
        reason = UNSERVED.get(declaration.code)
        if server in declaration.served_by:
            assert (code in handled) != bool(reason), f"{declaration.code.name}: reason {reason!r}"
        else:
            assert code not in handled, f"{declaration.code.name} is not for {server.name}"


def test_every_request_to_a_nameserver_is_handled_or_has_a_reason() -> None:
    check(ServedBy.NAMESERVER, nameserver_handlers(SETTINGS, RouteTable(), KeyValues(), Clock()).codes())


async def test_every_request_to_a_broker_is_handled_or_has_a_reason(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        check(ServedBy.BROKER, broker_handlers(broker.parts, broker.broker.replication).codes())


def test_every_request_to_a_client_is_handled_or_has_a_reason() -> None:
    check(ServedBy.CLIENT, ClientHandlers(RegisteredClients(), PendingReplies()).table().codes())
