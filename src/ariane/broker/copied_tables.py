"""What a slave does with the tables and the progress of its master (replication/metadata.py asks for them)."""

from ariane.broker.components import Components
from ariane.broker.groups.offsets import OffsetsByPair
from ariane.broker.schedule.timer import TimerProgress
from ariane.errors import StoreReadOnly
from ariane.model.ids import topic_name_problem
from ariane.replication.metadata import Progress, Tables
from ariane.store.append.draft import Appended
from ariane.wire.requests.offsets import TIMER_PROGRESS, TimerProgressResponse
from ariane.wire.requests.topics import TopicTable


class CopiedTables:
    def __init__(self, parts: Components) -> None:
        self._parts = parts
        self._offsets: OffsetsByPair = {}

    @property
    def tables(self) -> Tables:
        return Tables(self.copy_topics, self._parts.groups.copy, self.copy_progress)

    async def copy_topics(self, table: TopicTable) -> None:
        """With the master's record of deletions, a topic that was created again has none of its old messages here."""
        parts = self._parts
        known = parts.store.store.components.deletions
        deleted = {
            topic: end
            for topic, end in (table.deleted_topics or {}).items()
            if end > known.end_of(topic) and topic_name_problem(topic) is None
        }
        await parts.topics.copy(table)
        if deleted:
            await parts.store.run(parts.store.store.copy_deletions_steps(deleted))
            for topic in deleted:
                parts.offsets.delete_topic(topic)

    async def copy_progress(self, progress: Progress) -> None:
        """Our log has what it rests on. It is saved only when that is durable: after a power cut of this machine alone
        it would count as delivered what is lost here."""
        await self._wait_durable()
        if progress.offsets is not None:
            self._copy_offsets(progress.offsets, only_forward=progress.is_of_ours)
        if progress.delays is not None:
            await self._parts.delayed.copy_offsets(progress.delays)
        if progress.timer is not None:
            await self._parts.timer.copy_progress(_timer_progress(progress.timer))

    async def _wait_durable(self) -> None:
        store = self._parts.store
        end = store.store.components.commit_log.dispatched_to
        try:
            await store.wait_durable([Appended(end, 0, 0, 0)])
        except TimeoutError:
            raise StoreReadOnly("the sync takes too long; it is tried again") from None

    def _copy_offsets(self, table: OffsetsByPair, *, only_forward: bool) -> None:
        parts = self._parts
        parts.offsets.copy(table, self._offsets, only_forward=only_forward)
        for key in self._offsets.keys() - table.keys():
            topic, _, group = key.partition("@")
            if parts.topics.get(topic) is None or parts.groups.get(group) is None:  # the master has deleted one
                parts.offsets.delete_pair(key)
        self._offsets = table


def _timer_progress(response: TimerProgressResponse) -> TimerProgress:
    known_ms, _, known_below, _ = TIMER_PROGRESS.unpack_from(response.body)
    return TimerProgress(max(0, known_below), max(0, known_ms), max(0, response.roll_window_ms or 0))
