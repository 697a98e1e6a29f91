"""One part of a log that one task reads: small, and it can be pickled."""

from dataclasses import dataclass
from enum import StrEnum

from ariane.arrow.filter import Selection


class ScanStrategy(StrEnum):
    """How the records of a split are found."""

    SCAN = "scan"
    """One after the other: when most of them are wanted, or nothing tells where they are."""
    QUEUES = "queues"
    """By the entries of the wanted queues."""
    OFFSETS = "offsets"
    """At places that the index has told."""


@dataclass(frozen=True, slots=True)
class LogSplit:
    """The wanted records that begin from physical offset `begin` on and before `end`. No two splits share one."""

    store_root: str
    commit_log: str
    begin: int
    end: int
    limit: int
    """Where the log ended when the split was made: nothing from there on is looked at."""
    way: ScanStrategy
    selection: Selection
    is_aligned: bool = True
    """Whether a record is known to begin at `begin`. If not, the first one behind it is searched for."""
    by_queues: bool = False
    """Whether only records that a queue shows are given: not those of a topic that was deleted since."""
    offsets: tuple[int, ...] = ()
    bytes_estimate: int = 0
    """Of the records that will be read."""
