"""What a slave does with the tables and the progress of its master (replication/metadata.py asks for them)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ariane.broker.groups.configs import Groups
from ariane.broker.groups.offsets import ConsumerOffsets, OffsetsByPair
from ariane.broker.schedule.delay_levels import DelayedDelivery
from ariane.broker.schedule.timer import TimerDelivery, TimerProgress
from ariane.broker.topics import Topics
from ariane.errors import StoreReadOnly
from ariane.model.ids import topic_name_problem
from ariane.replication.frames import OFFSET_MAX
from ariane.replication.metadata import Progress, Tables
from ariane.store.append.draft import Appended
from ariane.store.service import StoreService
from ariane.wire.requests.offsets import TIMER_PROGRESS, TimerProgressResponse
from ariane.wire.requests.topics import TopicTable

_NUMBER_MAX = 2**31 - 1


@dataclass
class CopiedTables:
    store: StoreService
    topics: Topics
    groups: Groups
    offsets: ConsumerOffsets
    delayed: DelayedDelivery
    timer: TimerDelivery
    _copied: OffsetsByPair = field(default_factory=dict)

    @property
    def tables(self) -> Tables:
        return Tables(self.copy_topics, self.groups.copy, self.copy_progress)

    async def copy_topics(self, table: TopicTable) -> None:
        """With the master's record of deletions, a topic that was created again has none of its old messages here."""
        known = self.store.store.components.deletions
        deleted = {
            topic: end
            for topic, end in (table.deleted_topics or {}).items()
            if end > known.end_of(topic) and topic_name_problem(topic) is None
        }
        await self.topics.copy(table)
        if deleted:
            await self.store.run(self.store.store.copy_deletions_steps(deleted))
            for topic in deleted:
                self.offsets.delete_topic(topic)

    async def copy_progress(self, progress: Progress) -> None:
        """Our log has what it rests on. It is saved only when that is durable: after a power cut of this machine alone
        it would count as delivered what is lost here."""
        await self._wait_durable()
        if progress.offsets is not None:
            offsets = {key: _valid(queues) for key, queues in progress.offsets.items()}
            self._copy_offsets(offsets, only_forward=progress.is_of_ours)
        if progress.delays is not None:
            await self.delayed.copy_offsets(_valid(progress.delays))
        if progress.timer is not None:
            await self.timer.copy_progress(_timer_progress(progress.timer))

    async def _wait_durable(self) -> None:
        end = self.store.store.components.commit_log.dispatched_to
        try:
            await self.store.wait_durable([Appended(end, 0, 0, 0)])
        except TimeoutError:
            raise StoreReadOnly("the sync takes too long; it is tried again") from None

    def _copy_offsets(self, table: OffsetsByPair, *, only_forward: bool) -> None:
        self.offsets.copy(table, self._copied, only_forward=only_forward)
        for key in self._copied.keys() - table.keys():
            topic, _, group = key.partition("@")
            if self.topics.get(topic) is None or self.groups.get(group) is None:  # the master has deleted one
                self.offsets.delete_pair(key)
        self._copied = table


def _valid(offsets: Mapping[int, int]) -> dict[int, int]:
    """By queue or delay level, without what is no number of a queue and no offset: no file of ours could hold it."""
    return {
        number: offset for number, offset in offsets.items() if 0 <= number <= _NUMBER_MAX and 0 <= offset <= OFFSET_MAX
    }


def _timer_progress(response: TimerProgressResponse) -> TimerProgress:
    known_ms, _, known_below, _ = TIMER_PROGRESS.unpack_from(response.body)
    return TimerProgress(max(0, known_below), max(0, known_ms), max(0, response.roll_window_ms or 0))
