"""A split: the part of a commit log that one task reads. Small, and it can be pickled."""

from dataclasses import dataclass
from enum import StrEnum

from ariane.arrow.filter import Selection


class ScanStrategy(StrEnum):
    """How a task finds the records of a split."""

    SCAN = "scan"
    """One after the other: if most of them are selected, or no queue or index has their offsets."""
    QUEUES = "queues"
    """By the entries of the selected consume queues."""
    OFFSETS = "offsets"
    """At offsets from the index."""


@dataclass(frozen=True, slots=True)
class LogSplit:
    """The selected records that begin at physical offsets `begin <= offset < end`. Splits do not overlap."""

    store_root: str
    commit_log: str
    begin: int
    end: int
    limit: int
    """Where the log ended when the split was made: nothing from there on is read."""
    strategy: ScanStrategy
    selection: Selection
    is_aligned: bool = True
    """Whether a record is known to begin at `begin`. If not, the reader searches for the first one after it."""
    by_queues: bool = False
    """Whether to return only records that a consume queue shows: not those of a topic that was deleted since."""
    offsets: tuple[int, ...] = ()
    bytes_estimate: int = 0
    """Size of the records that will be read."""
