"""What an engine needs of a table of messages, wherever it comes from."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from ariane.arrow.filter import Selection
from ariane.arrow.schema import COLUMNS, DEFAULT_COLUMNS

# --- progress ---
#
# What was scanned for a query, and whether that is everything: told in sentences, so that nobody has to guess.


@dataclass(slots=True)
class Scan:
    """One way through a table. A query that joins a topic with itself makes two."""

    scanned: int = 0
    is_done: bool = False


@dataclass(slots=True, kw_only=True)
class Progress:
    """Of all scans of one table."""

    name: str
    queues: int
    total: int
    """Messages of the table: those to be scanned, those that the limit leaves out, those that files rule out."""
    left_out: int = 0
    """Behind --limit-scan."""
    scans: list[Scan] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    """What could not be read, one sentence each; the first ones only."""
    trouble_count: int = 0

    def begin(self) -> Scan:
        self.scans.append(Scan())
        return self.scans[-1]

    def trouble(self, sentence: str) -> None:
        self.trouble_count += 1
        if len(self.troubles) < _TROUBLES_TOLD:
            self.troubles.append(sentence)

    @property
    def is_whole(self) -> bool:
        """Nothing that should have been read is missing. A limit that somebody asked for is no fault."""
        return not self.trouble_count

    def sentences(self) -> list[str]:
        if not self.scans:
            return []
        told = [f"incomplete: {sentence}" for sentence in self.troubles]
        if self.trouble_count > len(self.troubles):
            told.append(f"incomplete: {self.trouble_count - len(self.troubles):,} more such places in {self.name}")
        return [*told, self._scanned()]

    def _scanned(self) -> str:
        scanned = max(scan.scanned for scan in self.scans)
        again = f", each {len(self.scans)} times" if len(self.scans) > 1 else ""
        what = f"messages of {self.name} ({counted(self.queues, 'queue')}){again}"
        if not all(scan.is_done for scan in self.scans):
            return f"scanned {scanned:,} of {self.total:,} {what}: the query needed no more"
        if self.left_out:
            return f"scanned {scanned:,} of {self.total:,} {what}, stopped at --limit-scan: not complete"
        if not self.is_whole:
            return f"scanned {scanned:,} of {self.total:,} {what}, not complete"
        if scanned < self.total:
            return f"scanned {scanned:,} of {self.total:,} {what}, complete: the rest was ruled out unread"
        return f"scanned {scanned:,} {what}, complete"


_TROUBLES_TOLD = 5


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


# ---


class MessageTable(Protocol):
    """Planned when it is made: every scan reads the same messages, however many come meanwhile."""

    progress: Progress

    def batches(self, columns: Sequence[str], scan: Scan) -> Iterator[pa.RecordBatch]:
        """The messages, with these columns in this order."""
        ...


class Catalog(Protocol):
    """The names that a query may use."""

    place: str
    """Where the topics are, for a sentence."""

    def topics(self) -> list[str]: ...

    def messages(self, topic: str) -> MessageTable: ...

    def facts(self, name: str) -> pa.Table | None:
        """What is known about topics, queues or groups; None when there is no such table."""
        ...

    def fact_names(self) -> tuple[str, ...]: ...


# --- wanted ---
#
# Which messages of a topic a query looks at. SQL then chooses among them.


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanFilter:
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


# --- columns ---
#
# The columns of a table of messages: those that `select *` gives, and those that a query has to name.
#
# They are those of `spark.read` (docs/spark.md), and two that are made from the body.

BODY_TEXT, BODY_JSON = "body_text", "body_json"

_WORD = re.compile(r"\w+")


def named_columns(sql: str) -> list[str]:
    """What a query's tables have: the usual columns, and others that the query names somewhere.

    With all of them `select *` would be unreadable, and slow: properties alone halve the speed.
    """
    words = {word.lower() for word in _WORD.findall(sql)}
    return [name for name in COLUMNS if name in DEFAULT_COLUMNS or name.lower() in words]


def named_body_columns(sql: str) -> list[str]:
    words = {word.lower() for word in _WORD.findall(sql)}
    return [name for name in (BODY_TEXT, BODY_JSON) if name in words]


def cheapest_first(names: Iterable[str]) -> list[str]:
    """Numbers before texts: an engine that only counts reads the first column."""
    return sorted(names, key=lambda name: name != "queueOffset")
