"""Interface between query engines and tables of messages: tables, catalogs, scan filters, progress and columns.

The tables themselves, of topics and of stores, are in sources.py; catalog.py finds them; each engine (duckdb_engine.py,
spark_engine.py) binds the names of a query to them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from ariane.arrow.filter import Selection
from ariane.arrow.schema import COLUMNS, DEFAULT_COLUMNS

# --- progress: what a query scanned and whether it is complete, reported in sentences ---


@dataclass(slots=True)
class Scan:
    """One scan of a table. A query that joins a topic with itself makes two."""

    scanned: int = 0
    is_done: bool = False


@dataclass(slots=True, kw_only=True)
class Progress:
    """Progress of all scans of one table."""

    name: str
    queues: int
    total: int
    """Messages of the table: scanned ones, those past the limit, and those that queues or the index rule out."""
    left_out: int = 0
    """Messages past --limit-scan."""
    scans: list[Scan] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What could not be read, one sentence each; only the first ones."""
    problem_count: int = 0

    def begin(self) -> Scan:
        self.scans.append(Scan())
        return self.scans[-1]

    def add_problem(self, sentence: str) -> None:
        self.problem_count += 1
        if len(self.problems) < _PROBLEMS_SHOWN:
            self.problems.append(sentence)

    @property
    def is_complete(self) -> bool:
        """Whether everything that should be read was read. A limit that the user set is not a problem."""
        return not self.problem_count

    def sentences(self) -> list[str]:
        if not self.scans:
            return []
        problems = [f"incomplete: {sentence}" for sentence in self.problems]
        if self.problem_count > len(self.problems):
            problems.append(f"incomplete: {self.problem_count - len(self.problems):,} more problems in {self.name}")
        return [*problems, self._scanned()]

    def _scanned(self) -> str:
        scanned = max(scan.scanned for scan in self.scans)
        again = f", each {len(self.scans)} times" if len(self.scans) > 1 else ""
        what = f"messages of {self.name} ({counted(self.queues, 'queue')}){again}"
        if not all(scan.is_done for scan in self.scans):
            return f"scanned {scanned:,} of {self.total:,} {what}: the query needed no more"
        if self.left_out:
            return f"scanned {scanned:,} of {self.total:,} {what}, stopped at --limit-scan: not complete"
        if not self.is_complete:
            return f"scanned {scanned:,} of {self.total:,} {what}, not complete"
        if scanned < self.total:
            return f"scanned {scanned:,} of {self.total:,} {what}, complete: the others were ruled out without reading"
        return f"scanned {scanned:,} {what}, complete"


_PROBLEMS_SHOWN = 5


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


# --- tables and catalogs ---


class MessageTable(Protocol):
    """Planned when it is made: every scan reads the same messages, however many arrive in between."""

    progress: Progress

    def batches(self, columns: Sequence[str], scan: Scan) -> Iterator[pa.RecordBatch]:
        """The messages, with these columns in this order."""
        ...


class Catalog(Protocol):
    """The tables that a query may use."""

    location: str
    """Where the topics are, for messages."""

    def topics(self) -> list[str]: ...

    def messages(self, topic: str) -> MessageTable: ...

    def metadata(self, name: str) -> pa.Table | None:
        """The metadata table of topics, queues or groups; None when there is no such table."""
        ...

    def metadata_names(self) -> tuple[str, ...]: ...


# --- scan filters: which messages of a topic are scanned, before SQL conditions ---


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanFilter:
    """A field that is None matches all messages."""

    since_ms: int | None = None
    """Stored at this time or later."""
    until_ms: int | None = None
    """Stored before this time."""
    tags: frozenset[str] | None = None
    keys: frozenset[str] | None = None
    limit: int | None = None
    """At most so many messages of each topic, the oldest of every queue."""

    @property
    def selection(self) -> Selection:
        return Selection(stored_from_ms=self.since_ms, stored_before_ms=self.until_ms, tags=self.tags, keys=self.keys)


def limit_per_queue(lengths: Sequence[int], limit: int | None) -> list[int]:
    """How many messages of each queue are read: all, or equal shares of `limit`."""
    if limit is None or sum(lengths) <= limit:
        return list(lengths)
    counts = [0] * len(lengths)
    left, open_queues = limit, [queue for queue, length in enumerate(lengths) if length]
    while left and open_queues:
        each = max(1, left // len(open_queues))
        for queue in open_queues[: left // each]:
            more = min(each, lengths[queue] - counts[queue])
            counts[queue] += more
            left -= more
        open_queues = [queue for queue in open_queues if counts[queue] < lengths[queue]]
    return counts


# --- columns: those of `spark.read` (docs/spark.md), and two that are made from the body ---

BODY_TEXT, BODY_JSON = "body_text", "body_json"

_WORD = re.compile(r"\w+")


def named_columns(sql: str) -> list[str]:
    """The columns of a query's tables: the default columns, and others that the query names anywhere.

    With all columns `select *` would be unreadable and slow: properties alone halve the speed.
    """
    words = {word.lower() for word in _WORD.findall(sql)}
    return [name for name in COLUMNS if name in DEFAULT_COLUMNS or name.lower() in words]


def named_body_columns(sql: str) -> list[str]:
    words = {word.lower() for word in _WORD.findall(sql)}
    return [name for name in (BODY_TEXT, BODY_JSON) if name in words]


def cheapest_first(names: Iterable[str]) -> list[str]:
    """A number before texts: an engine that only counts rows reads the first column."""
    return sorted(names, key=lambda name: name != "queueOffset")
