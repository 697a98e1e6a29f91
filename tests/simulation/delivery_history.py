"""Checks a history of sends, deliveries and offsets across broker crashes against the delivery guarantees.

Producers, the consumers of one group that consumes in order, and an observer of its committed offsets write events in
the order in which they learned of them. Every rule below is a function from the history to its violations, so that a
test can show for each rule a history that breaks it, and nothing else.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

Queue = tuple[str, str, int]
"""Topic, broker name, queue id."""


@dataclass(frozen=True, slots=True)
class Attempted:
    """A producer began to send: from here on the message may exist."""

    message: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A broker said that it has the message, and where."""

    message: str
    queue: Queue
    offset: int
    producer: str


@dataclass(frozen=True, slots=True)
class Delivered:
    """A consumer of the group got it, perhaps not for the first time."""

    message: str
    queue: Queue
    offset: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A broker returned the group's offset of a queue: everything below it is consumed."""

    queue: Queue
    offset: int


Event = Attempted | Acknowledged | Delivered | Committed
History = Iterable[Event]


def lost(history: History) -> list[str]:
    """Every acknowledged message is delivered at least once."""
    events = list(history)
    delivered = {event.message for event in events if isinstance(event, Delivered)}
    return [
        f"{event.message} was acknowledged at {_place(event)} and never delivered"
        for event in events
        if isinstance(event, Acknowledged) and event.message not in delivered
    ]


def invented(history: History) -> list[str]:
    """Nothing is delivered that was not sent."""
    attempted: set[str] = set()
    violations = []
    for event in history:
        if isinstance(event, Attempted):
            attempted.add(event.message)
        elif isinstance(event, Delivered) and event.message not in attempted:
            violations.append(f"{event.message} was delivered from {_place(event)} but was never sent")
    return violations


def moved(history: History) -> list[str]:
    """A queue offset holds one message for ever: no acknowledgement and no delivery names another one there."""
    held: dict[tuple[Queue, int], str] = {}
    violations = []
    for event in history:
        if isinstance(event, Acknowledged | Delivered):
            first = held.setdefault((event.queue, event.offset), event.message)
            if first != event.message:
                violations.append(f"{_place(event)} held {first} and then {event.message}")
    return violations


def disordered(history: History) -> list[str]:
    """What one producer sent to one queue one after the other stands there in that order."""
    last: dict[tuple[str, Queue], Acknowledged] = {}
    violations = []
    for event in history:
        if not isinstance(event, Acknowledged):
            continue
        before = last.get((event.producer, event.queue))
        if before is not None and event.offset <= before.offset:
            violations.append(f"{event.message} at {_place(event)} was sent after {before.message} at {_place(before)}")
        last[event.producer, event.queue] = event
    return violations


def jumped(history: History) -> list[str]:
    """A queue's messages come in order and without a gap from its beginning on; what came before may come again."""
    following: dict[Queue, int] = {}
    violations = []
    for event in history:
        if isinstance(event, Delivered):
            expected = following.get(event.queue, 0)
            if event.offset > expected:
                violations.append(f"{_place(event)} came where offset {expected} was due")
            following[event.queue] = max(expected, event.offset + 1)
    return violations


def repeated_after_commit(history: History) -> list[str]:
    """Nothing below the committed offset comes again."""
    committed: dict[Queue, int] = {}
    violations = []
    for event in history:
        if isinstance(event, Committed):
            committed[event.queue] = max(event.offset, committed.get(event.queue, 0))
        elif isinstance(event, Delivered) and event.offset < committed.get(event.queue, 0):
            violations.append(f"{_place(event)} came again, though the group had committed {committed[event.queue]}")
    return violations


def went_back(history: History) -> list[str]:
    """A committed offset never becomes smaller."""
    committed: dict[Queue, int] = {}
    violations = []
    for event in history:
        if isinstance(event, Committed):
            before = committed.get(event.queue, 0)
            if event.offset < before:
                violations.append(f"the offset of {event.queue} went back from {before} to {event.offset}")
            committed[event.queue] = event.offset
    return violations


Rule = Callable[[History], list[str]]

RULES: tuple[Rule, ...] = (lost, invented, moved, disordered, jumped, repeated_after_commit, went_back)
RULES_OF_SHARED_QUEUES: tuple[Rule, ...] = (lost, invented, moved, disordered, jumped)
"""For a group of several members: when a broker that knew their shares dies, two may hold a queue for a moment, and
what one has committed the other may still have in hand."""


def violations(history: History, rules: tuple[Rule, ...] = RULES) -> dict[str, list[str]]:
    """By rule, what broke it; empty when all was as it must be."""
    events = list(history)
    found = {rule.__name__: rule(events) for rule in rules}
    return {name: faults for name, faults in found.items() if faults}


def _place(event: Acknowledged | Delivered) -> str:
    topic, broker, queue_id = event.queue
    return f"{topic}/{broker}/{queue_id}@{event.offset}"
