"""Checks a history of sends, deliveries and offsets across broker crashes against the delivery guarantees.

Producers, the consumers of one group, an observer of its committed offsets and the test that kills brokers write events
in the order in which they learned of them. Every rule below is a function from the history to its violations, so that a
test can show for each rule a history that breaks it, and nothing else. Times are seconds of one clock.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

Queue = tuple[str, str, int]
"""Topic, broker name, queue id."""


@dataclass(frozen=True, slots=True)
class Attempted:
    """A producer began to send: from here on the message may exist."""

    message: str
    due_s: float = 0.0
    """For a delayed message: it must not be delivered before."""


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The producer decided against its transaction: the message must never be seen."""

    message: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A broker said that it has the message, and where."""

    message: str
    queue: Queue
    offset: int
    producer: str


@dataclass(frozen=True, slots=True)
class Began:
    """A member of the group gave the message to its handler."""

    member: str
    queue: Queue
    offset: int


@dataclass(frozen=True, slots=True)
class Ended:
    """That handler returned, or was cancelled."""

    member: str
    queue: Queue
    offset: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """A consumer of the group got it, perhaps not for the first time."""

    message: str
    queue: Queue
    offset: int
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Committed:
    """A broker returned the group's offset of a queue: everything below it is consumed."""

    queue: Queue
    offset: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A broker was killed, and served again. Written at its end."""

    began_s: float
    ended_s: float


Event = Attempted | RolledBack | Acknowledged | Began | Ended | Delivered | Committed | Fault
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


def overlapped(history: History) -> list[str]:
    """A queue that is consumed in order has one handler at a time, in the whole group."""
    at_work: dict[Queue, Began] = {}
    violations = []
    for event in history:
        if isinstance(event, Began):
            before = at_work.get(event.queue)
            if before is not None:
                violations.append(f"{event.member} began {_place(event)} while {before.member} had {_place(before)}")
            at_work[event.queue] = event
        elif isinstance(event, Ended):
            before = at_work.get(event.queue)
            if before is not None and (before.member, before.offset) == (event.member, event.offset):
                del at_work[event.queue]
    return violations


COMMIT_S = 6.0
"""Consumers commit every 5 s: a message that was delivered longer before a fault is not repeated by it."""
SETTLED_S = 15.0
"""After the end of a fault: until then members have their queues again, and its repetitions have come."""


def repeated_outside_faults(history: History) -> list[str]:
    """A message comes again only because of a fault: it came shortly before or during it, and again soon after it.

    Faults that follow each other so closely that nothing may have been committed between them count as one.
    """
    events = list(history)
    windows = _fault_windows(event for event in events if isinstance(event, Fault))
    last: dict[str, Delivered] = {}
    violations = []
    for event in events:
        if not isinstance(event, Delivered):
            continue
        before = last.get(event.message)
        if before is not None and not any(
            window.began_s - COMMIT_S <= before.at_s and window.began_s <= event.at_s <= window.ended_s + SETTLED_S
            for window in windows
        ):
            violations.append(f"{event.message} came at {before.at_s:.3f} s and again at {event.at_s:.3f} s")
        last[event.message] = event
    return violations


def _fault_windows(faults: Iterable[Fault]) -> list[Fault]:
    windows: list[Fault] = []
    for fault in faults:
        if windows and fault.began_s - COMMIT_S <= windows[-1].ended_s + SETTLED_S:
            windows[-1] = Fault(windows[-1].began_s, fault.ended_s)
        else:
            windows.append(fault)
    return windows


def early(history: History) -> list[str]:
    """A delayed message is not delivered before its time."""
    due: dict[str, float] = {}
    violations = []
    for event in history:
        if isinstance(event, Attempted):
            due[event.message] = event.due_s
        elif isinstance(event, Delivered) and event.at_s < due.get(event.message, 0.0):
            violations.append(f"{event.message} was due at {due[event.message]:.3f} s and came at {event.at_s:.3f} s")
    return violations


def shown_though_rolled_back(history: History) -> list[str]:
    """A message whose transaction was rolled back is never delivered."""
    events = list(history)
    rolled_back = {event.message for event in events if isinstance(event, RolledBack)}
    return [
        f"{event.message} was rolled back and delivered from {_place(event)}"
        for event in events
        if isinstance(event, Delivered) and event.message in rolled_back
    ]


Rule = Callable[[History], list[str]]

RULES: tuple[Rule, ...] = (
    lost,
    invented,
    moved,
    disordered,
    jumped,
    repeated_after_commit,
    went_back,
    overlapped,
    repeated_outside_faults,
    early,
    shown_though_rolled_back,
)
RULES_OF_ANY_ORDER: tuple[Rule, ...] = (
    lost,
    invented,
    moved,
    went_back,
    repeated_outside_faults,
    early,
    shown_though_rolled_back,
)
"""For a group that handles the messages of a queue concurrently."""


def violations(history: History, rules: tuple[Rule, ...] = RULES) -> dict[str, list[str]]:
    """By rule, what broke it; empty when all was as it must be."""
    events = list(history)
    found = {rule.__name__: rule(events) for rule in rules}
    return {name: faults for name, faults in found.items() if faults}


def _place(event: Acknowledged | Began | Delivered) -> str:
    topic, broker, queue_id = event.queue
    return f"{topic}/{broker}/{queue_id}@{event.offset}"
