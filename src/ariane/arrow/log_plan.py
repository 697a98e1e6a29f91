"""Which parts of a store directory have to be read, and how: made once, before tasks read the parts.

by key       the index tells where; what it does not cover is scanned
by topic     the queues tell where, if that is less than most of the log
by time      halving finds where a time begins and ends, and the rest is left out
else         the log is scanned, split anywhere
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ariane.arrow.log_bounds import LogBounds, log_bounds
from ariane.arrow.log_cuts import even_cuts, queue_cuts
from ariane.arrow.log_files import LogFiles
from ariane.arrow.log_keys import find_keys
from ariane.arrow.log_probe import LogProbe
from ariane.arrow.log_queues import QueueEntries, open_queues, topics_with_queues
from ariane.arrow.log_split import LogSplit, Way
from ariane.arrow.selection import QueueRange, Selection
from ariane.errors import StoreMismatch
from ariane.store.layout import Layout

BYTES_PER_SPLIT = 128 * 1024 * 1024
_MOST = 0.8
_OFFSETS_PER_SPLIT = 4096
_LIGHT_PREFIX = "%LMQ%"


@dataclass(frozen=True, slots=True)
class LogPlan:
    splits: list[LogSplit]
    """In the order of the log."""
    begin: int
    end: int
    """The log as it was when the plan was made: no record behind `end` is given."""
    gaps: list[tuple[int, int]]
    """Stretches between them whose files are missing."""
    topics_missing: list[str]
    """Topics that were asked for and have no queue."""
    is_live: bool


def plan_log(
    store_root: Path,
    *,
    topics: Collection[str] | None = None,
    queues: Collection[QueueRange] | None = None,
    starting_timestamp_ms: int | None = None,
    ending_timestamp_ms: int | None = None,
    tags: Collection[str] | None = None,
    keys: Collection[str] | None = None,
    bytes_per_split: int = BYTES_PER_SPLIT,
    live: bool | None = None,
    commit_log: Path | None = None,
    raw: bool = False,
) -> LogPlan:
    """Times are store times, the first included, the last not. `live`: whether a broker runs there; None: find out.

    `raw`: every record of the log, also those that no consumer can see: of deleted topics, prepared, rolled back.
    """
    layout = Layout.under(store_root, commit_log)
    files = LogFiles(layout.commit_log)
    if not files.files and not layout.commit_log.is_dir():
        raise StoreMismatch(f"{layout.commit_log} is no directory: name the store's root, which holds `commitlog`")
    bounds = log_bounds(layout, files, live)
    wanted = Selection(
        topics=_topics(topics, queues),
        ranges=None if queues is None else tuple(queues),
        stored_from_ms=starting_timestamp_ms,
        stored_before_ms=ending_timestamp_ms,
        tags=None if tags is None else frozenset(tags),
        keys=None if keys is None else frozenset(keys),
        queued_only=not raw,
    )
    planner = _Planner(layout, files, bounds, wanted, bytes_per_split, raw)
    splits = planner.splits()
    gaps = files.gaps(bounds.begin, bounds.end)
    return LogPlan(splits, bounds.begin, bounds.end, gaps, planner.topics_missing, bounds.is_live)


def _topics(topics: Collection[str] | None, queues: Collection[QueueRange] | None) -> frozenset[str] | None:
    named = None if topics is None else frozenset(topics)
    if queues is not None:
        of_queues = frozenset(one.topic for one in queues)
        named = of_queues if named is None else named & of_queues
    light = sorted(topic for topic in named or () if topic.startswith(_LIGHT_PREFIX))
    if light:
        raise StoreMismatch(f"{light[0]} is a light queue, whose records are of other topics: read it from the broker")
    return named


class _Planner:
    def __init__(
        self, layout: Layout, files: LogFiles, bounds: LogBounds, wanted: Selection, bytes_per_split: int, raw: bool
    ) -> None:
        self._layout = layout
        self._files = files
        self._bounds = bounds
        self._wanted = wanted
        self._bytes_per_split = max(1, bytes_per_split)
        self._raw = raw
        self._known = topics_with_queues(layout)
        has_queues = bounds.queued_to > bounds.begin and bool(self._known)
        self._queued_to = bounds.queued_to if has_queues else bounds.begin
        self.topics_missing = sorted((wanted.topics or frozenset()).difference(self._known)) if has_queues else []

    def splits(self) -> list[LogSplit]:
        queues = self._queues()
        probe = LogProbe(self._files, queues, self._bounds.begin, self._bounds.end)
        begin, end = probe.between(self._wanted.stored_from_ms, self._wanted.stored_before_ms)
        if begin >= end:
            return []
        if self._wanted.keys is not None:
            return self._by_keys(probe, self._wanted.keys, begin, end)
        queued_end = min(end, self._queued_to)
        if begin < queued_end and not self._raw and self._is_less(queues, begin, queued_end):
            return [*self._by_queues(queues, begin, queued_end), *self._scan(probe, max(begin, queued_end), end)]
        return self._scan(probe, begin, end)

    def _queues(self) -> list[QueueEntries]:
        """The queues that are wanted; a topic's name is a directory's, and only one that is there is opened."""
        if self._queued_to <= self._bounds.begin:
            return []
        wanted = self._wanted
        topics = self._known if wanted.topics is None else [topic for topic in self._known if topic in wanted.topics]
        ranges = None if wanted.ranges is None else {(one.topic, one.queue_id) for one in wanted.ranges}
        found = open_queues(self._layout, topics)
        queues = [queue for queue in found if ranges is None or (queue.topic, queue.queue_id) in ranges]
        if wanted.topics is not None and not all(map(self._is_plain, queues)):
            self._queued_to = self._bounds.begin
            return []
        return queues

    def _is_plain(self, queue: QueueEntries) -> bool:
        """Whether the first entry leads to a record of the queue. 5.x has other kinds of queues, which are not read."""
        number = queue.number_at(self._bounds.begin)
        if number >= queue.end or self._queued_to <= queue.physical(number) < self._files.end:
            return True  # nothing of it can be read yet
        view = self._files.record_at(queue.physical(number), self._bounds.end)
        return view is not None and (view.topic, view.queue_id, view.queue_offset) == (
            queue.topic,
            queue.queue_id,
            number,
        )

    def _is_less(self, queues: Sequence[QueueEntries], begin: int, end: int) -> bool:
        """Whether the wanted queues lead to clearly less than all of the log."""
        if self._wanted.topics is None:
            return False
        if self._wanted.tags is not None:
            return True
        return sum(_bytes(queue, begin, end) for queue in queues) < _MOST * (end - begin)

    def _by_queues(self, queues: Sequence[QueueEntries], begin: int, end: int) -> list[LogSplit]:
        cuts = queue_cuts(queues, begin, end, self._bytes_per_split)
        return [self._split(cut.begin, cut.end, Way.QUEUES, bytes_estimate=cut.bytes) for cut in cuts]

    def _scan(self, probe: LogProbe, begin: int, end: int) -> list[LogSplit]:
        """What queues tell is split from what they do not, because only there they say what is visible."""
        ranges = [(begin, min(end, self._queued_to), not self._raw), (max(begin, self._queued_to), end, False)]
        return [
            self._split(cut.begin, cut.end, Way.SCAN, is_aligned=cut.is_aligned, by_queues=by_queues)
            for first, last, by_queues in ranges
            if first < last
            for cut in even_cuts(self._files, probe, first, last, self._bytes_per_split)
        ]

    def _by_keys(self, probe: LogProbe, keys: frozenset[str], begin: int, end: int) -> list[LogSplit]:
        topics = self._known if self._wanted.topics is None else sorted(self._wanted.topics)
        hits = find_keys(self._layout, topics, keys) if self._queued_to > self._bounds.begin else None
        if hits is None:
            return self._scan(probe, begin, end)
        first, last = max(begin, hits.begin), min(end, hits.end, self._queued_to)
        if first >= last:
            return self._scan(probe, begin, end)
        inside = [int(offset) for offset in hits.offsets if first <= offset < last]
        found = [
            self._split(
                first, last, Way.OFFSETS, by_queues=not self._raw, offsets=tuple(inside[at : at + _OFFSETS_PER_SPLIT])
            )
            for at in range(0, len(inside), _OFFSETS_PER_SPLIT)
        ]
        return [*self._scan(probe, begin, first), *found, *self._scan(probe, last, end)]

    def _split(self, begin: int, end: int, way: Way, **more: object) -> LogSplit:
        split = LogSplit(
            store_root=str(self._layout.root),
            commit_log=str(self._layout.commit_log),
            begin=begin,
            end=end,
            limit=self._bounds.end,
            way=way,
            selection=self._wanted,
            bytes_estimate=end - begin,
        )
        return replace(split, **more)  # type: ignore[arg-type]


def _bytes(queue: QueueEntries, begin: int, end: int) -> float:
    first, last = queue.number_at(begin), queue.number_at(end)
    offsets, each = queue.sample(first, last, 16)
    return len(offsets) * each
