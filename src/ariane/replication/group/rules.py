"""The rules that make a group safe, each with a switch, and its times. Only tests switch a rule off, to prove that they
would notice (docs/decisions/fail-over.md)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    union_of_sets: bool = True
    """Until a proposed change of the in-sync set is decided, members of both sets have to acknowledge."""
    keep_proposal: bool = True
    """A proposal without an answer stays proposed: it may be done later."""
    compare_revision: bool = True
    """Every change of the record is made to the revision that was read."""
    incarnations: bool = True
    """The in-sync set names runs of processes, and a run joins only while it is the one that is alive."""
    current_epoch: bool = True
    """A slave takes frames, and a master introductions, of its current epoch only."""
    truncate_first: bool = True
    """A slave cuts its log to the consistent point before it follows."""
    join_past_start: bool = True
    """A slave joins only when it has the first record of the epoch, and so everything before it."""
    elect_in_sync: bool = True
    """Nobody else stands for election."""
    unclean_leaves: bool = True
    """A member that may have lost something leaves the in-sync set when it registers."""
    keep_mark: bool = True
    """The mark of a possible loss stays until the group knows of it."""
    step_down_first: bool = True
    """A master that reads a higher epoch steps down before anything else."""
    grant_to_run: bool = True
    """A master's process that starts again is no master any more."""
    ack_of_epoch: bool = True
    """A report of another epoch counts nothing."""
    ack_of_connection: bool = True
    """A report on a connection that was replaced or closed counts nothing."""
    ack_of_known: bool = True
    """A report before the introduction counts nothing."""
    ack_bounded: bool = True
    """A report beyond the master's own end counts nothing."""
    fail_waiters: bool = True
    """When a role ends, everything that waits ends as unknown."""
    keep_minimum: bool = True
    """The in-sync set does not shrink below minInSync."""


ALL_RULES = Rules()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    min_in_sync: int = 2
    lease_s: int = 3
    sync_flush: bool = False
    adopt: bool = False
    """Found a group on a store that has messages."""
    allow_wipe: bool = False
    """Whether a log that shares no history with the group's is removed. An empty one always may be."""
    keep_alive_s: float = 1.0
    read_s: float = 1.0
    silence_s: float = 1.0
    """A master whose frames arrive is not replaced, whatever its lease says."""
    link_silence_s: float = 3.0
    """A connection on which nothing arrives for this long is closed: both ends send something every half second."""
    rank_wait_s: float = 0.1
    not_caught_up_s: float = 15.0
    drain_s: float = 1.0
    retry_s: float = 1.0
    reconnect_s: float = 0.2
    start_s: float = 2.0
    """No refused connection counts so soon after the own start: the network may not be there yet."""
    pause_s: float = 1.0
    """A tick that is later than that means that this process stood still."""
