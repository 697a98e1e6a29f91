"""What a broker answers: one class per area, one table."""

from ariane.broker.consume_stats import ConsumeProgress
from ariane.broker.flow_control import FlowControl
from ariane.broker.handlers.access import AccessHandlers
from ariane.broker.handlers.clients import ClientHandlers
from ariane.broker.handlers.configs import ConfigHandlers
from ariane.broker.handlers.connections import ConnectionHandlers
from ariane.broker.handlers.consumer_offsets import ConsumerOffsetHandlers
from ariane.broker.handlers.groups import GroupHandlers
from ariane.broker.handlers.locks import LockHandlers
from ariane.broker.handlers.messages import MessageHandlers
from ariane.broker.handlers.pull import PullHandlers
from ariane.broker.handlers.queues import QueueHandlers
from ariane.broker.handlers.replies import ReplyHandlers
from ariane.broker.handlers.retries import RetryHandlers
from ariane.broker.handlers.runtime import RuntimeHandlers
from ariane.broker.handlers.schedule import ScheduleHandlers
from ariane.broker.handlers.send import SendHandlers
from ariane.broker.handlers.stats import StatsHandlers
from ariane.broker.handlers.topics import TopicHandlers
from ariane.broker.handlers.transactions import TransactionHandlers
from ariane.broker.parts import Parts
from ariane.broker.pull_checks import PullChecks
from ariane.broker.replies import ReplyPusher
from ariane.broker.send_answers import SendAnswers
from ariane.broker.send_checks import SendChecks
from ariane.rpc.handlers import HandlerTable


def handler_table(parts: Parts) -> HandlerTable:
    settings, clock, store = parts.settings, parts.clock, parts.store.store
    topics, groups, offsets, clients, intake = parts.topics, parts.groups, parts.offsets, parts.clients, parts.intake
    flow, checks = FlowControl(store, intake, settings), SendChecks(settings, topics, clock)
    pull_checks = PullChecks(settings, topics, groups, clients)
    pusher = ReplyPusher(clients, clock, parts.store_host)
    progress = ConsumeProgress(settings.name, topics, offsets, clients, store, rate_of=parts.statistics.consume_rate)
    return HandlerTable.of(
        SendHandlers(settings, topics, groups, store, intake, flow, checks, SendAnswers(settings, parts.store_host)),
        PullHandlers(settings, pull_checks, offsets, parts.store, intake, parts.parked, clock, parts.store_host),
        QueueHandlers(store),
        MessageHandlers(settings, parts.store, clients),
        ReplyHandlers(settings, store, intake, checks, pusher, parts.store_host),
        RetryHandlers(intake, store.lookup, groups, topics, settings),
        ScheduleHandlers(parts.delayed),
        TransactionHandlers(parts.transactions, store, intake),
        ClientHandlers(settings, clients, groups, topics, clock),
        LockHandlers(parts.locks, topics, clock),
        ConsumerOffsetHandlers(settings, offsets, groups, topics, clients, store),
        GroupHandlers(settings, groups, offsets, clients, progress, clock),
        ConnectionHandlers(settings, clients, store, clock),
        TopicHandlers(settings, topics, offsets, store),
        AccessHandlers(settings, parts.access),
        ConfigHandlers(settings, topics, clock),
        RuntimeHandlers(settings, topics, parts.store, clock, parts.booted_ms, parts.statistics, intake),
        StatsHandlers(parts.statistics),
    )
