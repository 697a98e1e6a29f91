"""What a nameserver answers: one class per area, one table."""

from ariane.clock import Clock
from ariane.nameserver.handlers.brokers import BrokerHandlers
from ariane.nameserver.handlers.configs import ConfigHandlers
from ariane.nameserver.handlers.routes import RouteHandlers
from ariane.nameserver.key_values import KeyValues
from ariane.nameserver.route_answers import RouteAnswers
from ariane.nameserver.route_table import RouteTable
from ariane.nameserver.settings import NameserverSettings
from ariane.rpc.handlers import HandlerTable


def handler_table(settings: NameserverSettings, routes: RouteTable, pairs: KeyValues, clock: Clock) -> HandlerTable:
    answers = RouteAnswers(
        routes, pairs, with_order_conf=settings.order_message_enable, texts_max=2 * settings.topics_max
    )
    return HandlerTable.of(
        BrokerHandlers(settings, routes, pairs, clock),
        RouteHandlers(routes, answers),
        ConfigHandlers(settings, pairs),
    )
