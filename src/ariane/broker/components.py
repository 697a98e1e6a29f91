"""The components of a broker that its handlers use, opened in order and closed in reverse."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from ariane.broker.acl.guard import AccessControl
from ariane.broker.groups.configs import Groups
from ariane.broker.groups.invented import InventedGroups
from ariane.broker.groups.locks import QueueLocks
from ariane.broker.groups.members import Clients, RebalanceNotifier
from ariane.broker.groups.offsets import ConsumerOffsets, OffsetJournal
from ariane.broker.json_table import JsonTable
from ariane.broker.pull.long_polling import PullWaiters
from ariane.broker.schedule.delay_levels import DelayedDelivery
from ariane.broker.schedule.timer import TimerDelivery
from ariane.broker.settings import BrokerSettings
from ariane.broker.stats.counters import Counters
from ariane.broker.stats.statistics import Statistics
from ariane.broker.topics import CreationLimit, Topics
from ariane.broker.transactions.checks import MayBeAsked, TransactionChecks
from ariane.broker.transactions.half_messages import HALF_QUEUE
from ariane.broker.transactions.outcomes import Transactions
from ariane.broker.writer import MessageWriter
from ariane.clock import Clock
from ariane.model.system_topics import SCHEDULE, TRANS_HALF
from ariane.store.blocking_io import IoSteps
from ariane.store.checkpoint import LastExit
from ariane.store.consume_queue.queues import ConsumeQueues
from ariane.store.disk import Disk, RealDisk
from ariane.store.following import FollowingLog
from ariane.store.layout import Layout
from ariane.store.message_store import MessageStore
from ariane.store.service import StoreService
from ariane.transport.memory_budget import MemoryBudget

log = logging.getLogger(__name__)


def oldest_undelivered_offset(
    store: MessageStore, delayed: DelayedDelivery, transactions: Transactions
) -> IoSteps[int | None]:
    """The physical offset of the oldest delayed or half message, which retention must keep; None when none waits.

    Delay levels and half messages wait in queues, in order, so the next one to be delivered is the oldest. Messages of
    the timer wheel do not: `TimerDelivery` looks for them.
    """
    queues = store.components.queues
    next_offsets = [(queues.get(SCHEDULE, level - 1), offset) for level, (offset, _) in delayed.progress().items()]
    next_offsets.append((queues.get(TRANS_HALF, HALF_QUEUE), transactions.open.first_open))
    places = []
    for queue, offset in next_offsets:
        if queue is not None:
            places.append((yield from queue.physical_offset_steps(max(offset, queue.min_offset))))
    return min((place for place in places if place is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    settings: BrokerSettings
    clock: Clock
    booted_ms: int
    store_host: bytes
    access: AccessControl | None
    store: StoreService
    following: FollowingLog | None
    """At a slave: its log, which takes what the master sends."""
    topics: Topics
    groups: Groups
    offsets: ConsumerOffsets
    clients: Clients
    invented: InventedGroups
    statistics: Statistics
    locks: QueueLocks
    writer: MessageWriter
    pull_waiters: PullWaiters
    memory: MemoryBudget
    delayed: DelayedDelivery
    timer: TimerDelivery
    transactions: Transactions
    checks: TransactionChecks

    @classmethod
    @asynccontextmanager
    async def open(
        cls, settings: BrokerSettings, clock: Clock, store_host: bytes, *, gated: bool = False
    ) -> AsyncIterator["Components"]:
        """The store before all that use it: tables and deliveries still save and put messages while they close.

        `gated`: messages are visible when they are confirmed (store/consume_queue/gate.py)."""
        booted_ms = clock.now_ms()
        async with (
            _access(settings, clock) as access,
            StoreService.open(settings.store, clock, store_host, gated=gated) as store,
        ):
            tables = _Tables(store.store.components.disk, store.store.components.layout)
            memory = MemoryBudget(settings.transport.memory_bytes_max)
            creations = CreationLimit(settings, clock)
            topics = Topics(settings, tables.file("topics.json"), clock, creations)
            if not settings.is_slave:  # a slave gets its tables from the master
                await topics.check_stored(store.store.components.queues.topics())
            groups = Groups(settings, tables.file("subscriptionGroup.json"), clock, creations)
            offsets = ConsumerOffsets(tables.file("consumerOffset.json"), tables.offset_journal(store), clock.monotonic)
            following = FollowingLog(store.store) if settings.is_slave else None
            if following is None:  # the offsets of a slave are those of the master, and may be ahead of its log
                _keep_offsets_of_lost_queues(offsets, topics, store.store)
                offsets.clamp_to_queue_ends(partial(_queue_end, store.store.components.queues))
            clients = Clients(RebalanceNotifier(settings, groups.get).members_changed)
            counters = Counters()
            writer = MessageWriter(store, settings, clock, counters)
            invented = InventedGroups(settings, groups, offsets, clients, counters, clock)
            transactions = Transactions(store.store, writer, offsets, clock)
            async with (
                QueueLocks.open(store.store.components, clock.monotonic()) as locks,
                topics.autosave(clock, settings.offsets_save_interval_s),
                groups.autosave(clock, settings.offsets_save_interval_s),
                offsets.autosave(clock, settings.offsets_save_interval_s),
                clients.expiry_scan(clock),
                invented.expiry_scan(),
                Statistics.open(
                    counters,
                    clock,
                    settings.cluster,
                    is_topic=lambda topic: topics.get(topic) is not None or topics.is_system(topic),
                    is_group=lambda group: groups.get(group) is not None or clients.group(group) is not None,
                ) as statistics,
                PullWaiters.open(clock, memory=memory) as pull_waiters,
                DelayedDelivery.open(
                    store, writer, tables.file("delayOffset.json"), clock, settings.delay_offsets_save_interval_s
                ) as delayed,
                TimerDelivery.open(store, writer, clock) as timer,
                TransactionChecks.open(
                    transactions, store, settings, clients, topics, offsets, clock, _may_be_asked(access)
                ) as checks,
            ):
                store.store.components.dispatcher.on_arrivals(pull_waiters.on_arrivals, wanted=pull_waiters.__len__)
                store.store.add_retention_hold(partial(oldest_undelivered_offset, store.store, delayed, transactions))
                store.store.add_retention_hold(timer.oldest_waiting)
                yield cls(
                    settings=settings,
                    clock=clock,
                    booted_ms=booted_ms,
                    store_host=store_host,
                    access=access,
                    store=store,
                    following=following,
                    topics=topics,
                    groups=groups,
                    offsets=offsets,
                    clients=clients,
                    invented=invented,
                    statistics=statistics,
                    locks=locks,
                    writer=writer,
                    pull_waiters=pull_waiters,
                    memory=memory,
                    delayed=delayed,
                    timer=timer,
                    transactions=transactions,
                    checks=checks,
                )


def _keep_offsets_of_lost_queues(offsets: ConsumerOffsets, topics: Topics, store: MessageStore) -> None:
    """Lets a queue that was lost begin where a group has got to: neither is the group moved back, nor an offset reused.

    Recovery builds queues from the log. This is for one without a record there, in a store without a saved state.
    """
    ends: dict[tuple[str, int], int] = {}
    queues, deletions = store.components.queues, store.components.deletions
    for pair, committed in offsets.table().items():
        topic = pair.partition("@")[0]
        if topics.get(topic) is not None and not deletions.end_of(topic):
            for queue_id, offset in committed.items():
                ends[topic, queue_id] = max(offset, ends.get((topic, queue_id), 0))
    for (topic, queue_id), end in ends.items():
        if end > 0 and queues.get(topic, queue_id) is None:
            queues.get_or_create(topic, queue_id).extend_to(end)
            fields = {"topic": topic, "queue": queue_id, "begin": end}
            log.error("a queue is missing: it begins where its consumers are", extra=fields)


def _queue_end(queues: ConsumeQueues, topic: str, queue_id: int) -> int:
    queue = queues.get(topic, queue_id)
    return 0 if queue is None else queue.max_offset


@asynccontextmanager
async def _access(settings: BrokerSettings, clock: Clock) -> AsyncIterator[AccessControl | None]:
    """The accounts, when access control is on; an unusable file is reported before the store is recovered."""
    if not settings.acl_enable:
        yield None
        return
    access = AccessControl.open(RealDisk(), settings.acl_file, clock, require_v2=settings.acl_require_v2)
    async with access as opened:
        yield opened


def _may_be_asked(access: AccessControl | None) -> MayBeAsked:
    """A check request contains the half message: only who may publish to its topic gets it."""
    if access is None:
        return lambda connection, topic: True
    return lambda connection, topic: access.rights_of_member(connection).may_publish(topic)


@dataclass(frozen=True, slots=True)
class _Tables:
    disk: Disk
    layout: Layout

    def file(self, name: str) -> JsonTable:
        return JsonTable(self.disk, self.layout.config / name)

    def offset_journal(self, store: StoreService) -> OffsetJournal:
        was_killed = store.store.components.last_exit is LastExit.PROCESS_CRASH
        return OffsetJournal(self.disk, self.layout.config, was_killed=was_killed)
