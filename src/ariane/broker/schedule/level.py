"""One delay level: how far its queue has been delivered, and what of it is due."""

from dataclasses import dataclass

from ariane.broker.system_topics import SCHEDULE
from ariane.errors import SettingsError
from ariane.store.consume_queue import ConsumeQueue
from ariane.store.message_store import MessageStore
from ariane.store.queue_entry import ENTRY
from ariane.store.steps import Steps

_HOUR_MS = 3_600_000
_DELAY_UNKNOWN_MS = 1 << 60


@dataclass(slots=True)
class Level:
    number: int
    delay_ms: int
    offset: int = 0
    """The next entry to deliver."""
    held_until_ms: int = 0
    """After a failure: not before this; 0 when the last attempt went well."""

    @property
    def queue_id(self) -> int:
        return self.number - 1

    def is_due(self, delivery_ms: int, now_ms: int) -> bool:
        """A time further ahead than the level's own delay was written before the clock was set back: due, as Apache
        has it. The message then comes early by as much; waiting instead might take years."""
        return delivery_ms <= now_ms or delivery_ms > now_ms + self.delay_ms


class LevelQueues:
    """The queues of the schedule topic."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def of(self, level: Level) -> ConsumeQueue | None:
        """The level's queue, with `level.offset` inside it; None when nothing was ever put there."""
        queue = self._store.parts.queues.get(SCHEDULE, level.queue_id)
        if queue is not None and not queue.min_offset <= level.offset <= queue.max_offset:
            # Below: retention took what came before. Above: this is another queue than the one that was followed.
            level.offset = queue.min_offset
        return queue

    def due_count(self, level: Level, now_ms: int, count_max: int) -> Steps[int]:
        """How many entries from `level.offset` on are due, up to the first that is not."""
        times = [] if level.held_until_ms > now_ms else (yield from self._times(level, count_max))
        waiting = (index for index, time_ms in enumerate(times) if not level.is_due(time_ms, now_ms))
        return next(waiting, len(times))

    def next_ms(self, level: Level) -> Steps[int | None]:
        """When the level is to be looked at again; None when it is empty."""
        times = yield from self._times(level, 1)
        return max(times[0], level.held_until_ms) if times else None

    def _times(self, level: Level, count_max: int) -> Steps[list[int]]:
        queue, times = self.of(level), list[int]()
        if queue is None:
            return times
        yield from queue.warm(level.offset, count_max)
        for _, _, tags_code in ENTRY.iter_unpack(queue.entries(level.offset, count_max)):
            own_ms = tags_code > 0
            times.append(tags_code if own_ms else (yield from self._by_store_time(queue, level, len(times))))
        return times

    def _by_store_time(self, queue: ConsumeQueue, level: Level, index: int) -> Steps[int]:
        """For an entry without a time of its own: Apache may have put it into a file beside the queue."""
        stored_ms = yield from self._store.lookup.finding_store_time(queue, level.offset + index)
        return (stored_ms or 0) + level.delay_ms


def levels_of(store: MessageStore, delays_ms: tuple[int, ...], offsets: dict[int, int]) -> list[Level]:
    """The levels as the settings have them, and those of earlier settings whose messages still wait."""
    used = max((queue_id + 1 for queue_id in store.parts.queues.of_topic(SCHEDULE)), default=0)
    forgotten = range(len(delays_ms) + 1, used + 1)
    levels = [*enumerate(delays_ms, 1), *((number, _DELAY_UNKNOWN_MS) for number in forgotten)]
    return [Level(number, delay_ms, offsets.get(number, 0)) for number, delay_ms in levels]


def check_levels(levels_ms: tuple[int, ...], retention_hours: int) -> None:
    """Refuses levels whose messages retention may delete before they are due."""
    for number, delay_ms in enumerate(levels_ms, 1):
        if delay_ms >= retention_hours * _HOUR_MS:
            raise SettingsError(
                f"messageDelayLevel: level {number} waits {delay_ms // 1000} s, but fileReservedTime keeps messages "
                f"only {retention_hours} h: raise fileReservedTime, shorten the level, or send with a delivery time"
            )
