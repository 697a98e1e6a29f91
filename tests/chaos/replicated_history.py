"""What was sent to a master and seen at it and its slaves, and the rules that it must keep when one slave is left.

The promise of a SYNC_MASTER: SEND_OK means that a slave has the message. Which slave is not said. The logs of slaves
are all the same, as far as they reach, so the message is

    one slave         at that slave
    several           at the one whose log reaches furthest: it alone has everything, the others a part

as long as no slave loses its disk. One that was emptied counts again from the first SEND_OK of a message sent after
that: an acknowledgement means all of the log up to there.

Every rule is a function from the history to its violations, most of them those of `tests.simulation.delivery_history`.
"""

import zlib
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ariane.wire.record.layout import BLANK_MAGIC, SIZE_AND_MAGIC
from tests.simulation.delivery_history import (
    Acknowledged,
    Delivered,
    Event,
    Queue,
    disordered,
    invented,
    jumped,
    lost,
    moved,
    went_back,
)

SYNC_S = 10.0 + 4 * 3.0
"""A slave copies offsets every 10 s, after three other requests that may each take 3 s."""

_PADDING_MAX = 3000


def body_of(message: str) -> bytes:
    """What a message with this name contains, so that a reader sees any other byte."""
    seed = zlib.crc32(message.encode())
    return b"%s|%s" % (message.encode(), (b"%08x" % seed) * (seed % (_PADDING_MAX // 8)))


def message_in(body: bytes) -> str:
    """Its name. One that is not as it was sent gets a name that was never sent."""
    message = body.partition(b"|")[0].decode("utf-8", "replace")
    return message if body == body_of(message) else f"altered {message}"


class Commit(NamedTuple):
    """The group's offset of a queue, as the master had it at that time."""

    at_s: float
    queue: Queue
    offset: int


@dataclass
class ReplicatedHistory:
    sends: list[Event] = field(default_factory=list)
    """Attempted and Acknowledged, with any status: where the master has stored it."""
    safe: set[str] = field(default_factory=set)
    """Those with SEND_OK."""
    statuses: Counter[str] = field(default_factory=Counter)
    readers: defaultdict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    """By broker, what its consumer got, and the group's offsets as the broker had them."""
    commits: list[Commit] = field(default_factory=list)
    """At the master."""
    master_ended_s: float = 0.0
    """When it was gone for good."""
    quiet_since_s: float = 0.0
    """When the last fault before that was over."""
    alone: list[Delivered] = field(default_factory=list)
    """What a client of the project read from the slave that is left, in the order of queues and offsets."""
    committed_alone: dict[Queue, int] = field(default_factory=dict)
    """The group's offsets there."""
    promoted: list[Delivered] = field(default_factory=list)
    """The same when the slave has become a master, with what was sent to it since."""
    sent_to_promoted: list[Event] = field(default_factory=list)
    problems: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """What was seen otherwise: processes that ended, logs that differ, slaves that did not catch up."""


Rule = Callable[[ReplicatedHistory], list[str]]


def missing(history: ReplicatedHistory) -> list[str]:
    """Every message with SEND_OK is at the slave."""
    safe = [event for event in history.sends if isinstance(event, Acknowledged) and event.message in history.safe]
    return lost([*safe, *history.alone])


def never_sent(history: ReplicatedHistory) -> list[str]:
    """No broker has a message that was not sent, or not as it was sent."""
    reads = [event for events in history.readers.values() for event in events]
    return invented([*history.sends, *reads, *history.alone])


def changed(history: ReplicatedHistory) -> list[str]:
    """A queue offset holds one message for ever, at the master and at all slaves, and at the one that is left."""
    reads = [event for events in history.readers.values() for event in events]
    return moved([*history.sends, *reads, *history.alone])


def out_of_order(history: ReplicatedHistory) -> list[str]:
    """What one producer sent to one queue stands there in that order."""
    return disordered(history.sends)


def skipped(history: ReplicatedHistory) -> list[str]:
    """No consumer of any broker was led past an offset."""
    return [f"{name}: {fault}" for name, events in history.readers.items() for fault in jumped(events)]


def moved_back(history: ReplicatedHistory) -> list[str]:
    """At no broker does a group's offset go back."""
    return [f"{name}: {fault}" for name, events in history.readers.items() for fault in went_back(events)]


def sparse(history: ReplicatedHistory) -> list[str]:
    """The queues of the slave begin at 0 and have every offset once."""
    return _gaps(history.alone)


def stored_twice(history: ReplicatedHistory) -> list[str]:
    """Every message was sent once, so it is stored once."""
    return _duplicates(history.alone)


def behind_the_sync(history: ReplicatedHistory) -> list[str]:
    """The slave has the group's offsets as they were at the master before the last copy of them that it must have."""
    must_have_s = history.master_ended_s - SYNC_S
    if must_have_s < history.quiet_since_s:
        return []
    due: dict[Queue, int] = {}
    for commit in history.commits:
        if commit.at_s <= must_have_s:
            due[commit.queue] = commit.offset
    committed = history.committed_alone
    return [
        f"the slave has {committed.get(queue, -1)} of {queue}, the master had {offset} in time for a copy"
        for queue, offset in due.items()
        if committed.get(queue, -1) < offset
    ]


def lost_by_promotion(history: ReplicatedHistory) -> list[str]:
    """A slave that becomes a master has what it had, goes on behind it, and has what it acknowledges."""
    sent = [event for event in history.sent_to_promoted if isinstance(event, Acknowledged)]
    first = {(event.queue, event.offset): event.message for event in history.alone}
    second = {(event.queue, event.offset): event.message for event in history.promoted}
    changes = [
        f"{place} held {message}, and {second.get(place, 'nothing')} after the promotion"
        for place, message in first.items()
        if second.get(place) != message
    ]
    allowed = first.keys() | {(event.queue, event.offset) for event in sent}
    strangers = [f"{place} holds {message}" for place, message in second.items() if place not in allowed]
    repeated = [*_gaps(history.promoted), *_duplicates(history.promoted)]
    return [*changes, *strangers, *lost([*sent, *history.promoted]), *moved([*sent, *history.promoted]), *repeated]


RULES: tuple[Rule, ...] = (
    missing,
    never_sent,
    changed,
    out_of_order,
    skipped,
    moved_back,
    sparse,
    stored_twice,
    behind_the_sync,
    lost_by_promotion,
)


def violations(history: ReplicatedHistory) -> dict[str, list[str]]:
    """By rule, what broke it; empty when all was as it must be."""
    found = {rule.__name__: rule(history) for rule in RULES}
    return {name: faults for name, faults in {**found, **history.problems}.items() if faults}


def _gaps(reads: list[Delivered]) -> list[str]:
    following: dict[Queue, int] = {}
    faults = []
    for event in sorted(reads, key=lambda event: (event.queue, event.offset)):
        expected = following.get(event.queue, 0)
        if event.offset > expected:
            faults.append(f"{event.queue} has nothing from {expected} to {event.offset - 1}")
        following[event.queue] = event.offset + 1
    return faults


def _duplicates(reads: list[Delivered]) -> list[str]:
    places: defaultdict[str, set[tuple[Queue, int]]] = defaultdict(set)
    for event in reads:
        places[event.message].add((event.queue, event.offset))
    return [f"{message} is at {sorted(found)}" for message, found in places.items() if len(found) > 1]


# --- logs -------------------------------------------------------------------------------------------------------------


def records_below(log: Path, end: int) -> int:
    """How many whole records the files of a log have below `end`, by their sizes; no blank ones."""
    count = 0
    for path in sorted(path for path in log.iterdir() if path.name.isdigit()):
        base, data, at = int(path.name), path.read_bytes(), 0
        while at + SIZE_AND_MAGIC.size <= len(data):
            size, magic = SIZE_AND_MAGIC.unpack_from(data, at)
            if magic == BLANK_MAGIC or size <= 0 or base + at + size > end:
                break
            count, at = count + 1, at + size
    return count


def log_differences(master: Path, slave: Path, end: int) -> list[str]:
    """Where the files of a slave's log differ from the master's, up to the slave's end. Both are directories."""
    files = sorted(path for path in slave.iterdir() if path.name.isdigit())
    faults = [] if files or not end else [f"{slave} has no file, and the slave's log ends at {end}"]
    for path in files:
        base, mine = int(path.name), path.read_bytes()
        size = min(len(mine), end - base)
        twin = master / path.name
        theirs = twin.read_bytes() if twin.exists() else b""
        if size > 0 and mine[:size] != theirs[:size]:
            at = next((n for n, pair in enumerate(zip(mine[:size], theirs, strict=False)) if len(set(pair)) > 1), None)
            faults.append(f"{path} and {twin} differ at {base + (len(theirs) if at is None else at)}")
    if files and int(files[-1].name) + files[-1].stat().st_size < end:
        faults.append(f"{slave} ends at {int(files[-1].name) + files[-1].stat().st_size}, the slave said {end}")
    return faults
