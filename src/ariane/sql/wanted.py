"""Which messages of a topic a query looks at. SQL then chooses among them."""

from collections.abc import Sequence
from dataclasses import dataclass

from ariane.arrow.selection import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is None does not choose."""

    since_ms: int | None = None
    """Stored at this time or later."""
    until_ms: int | None = None
    """Stored before this time."""
    tags: frozenset[str] | None = None
    keys: frozenset[str] | None = None
    limit: int | None = None
    """At most so many of each topic, the oldest of every queue."""

    @property
    def selection(self) -> Selection:
        return Selection(stored_from_ms=self.since_ms, stored_before_ms=self.until_ms, tags=self.tags, keys=self.keys)


def shares(lengths: Sequence[int], limit: int | None) -> list[int]:
    """How many messages each queue may give: all, or as many as every other, until `limit` is used up."""
    if limit is None or sum(lengths) <= limit:
        return list(lengths)
    given = [0] * len(lengths)
    left, open_queues = limit, [place for place, length in enumerate(lengths) if length]
    while left and open_queues:
        each = max(1, left // len(open_queues))
        for place in open_queues[: left // each]:
            more = min(each, lengths[place] - given[place])
            given[place] += more
            left -= more
        open_queues = [place for place in open_queues if given[place] < lengths[place]]
    return given
