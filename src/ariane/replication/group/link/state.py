"""What a master has beside its log - tables, offsets, progress - as changes, and as bodies of state frames. No I/O.

    {"number": 7, "end": 912384, "offsets": [["orders@billing", 0, 126], ["orders@old", null, 0]]}

A change has a number, and the end of the log on which it rests: a slave applies it when it has dispatched its log so
far. A large one is split, and `more` says that it goes on in the next frame. The first change on a connection has
everything (`full`): pairs of topic and group that it does not name have no offsets.

What comes from a peer is checked before it is used: types, ranges, lengths of names. Raises only FrameError.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from ariane.errors import FrameError
from ariane.model.group import GroupConfig
from ariane.model.topic import DataVersion, TopicConfig
from ariane.replication.frames import NATIVE_BODY_BYTES_MAX, OFFSET_MAX
from ariane.replication.record import LogOffset
from ariane.wire.requests.groups import GroupTable
from ariane.wire.requests.topics import TopicTable

NAME_MAX = 512
"""Of a topic, or a group; a pair has both."""
CHANGE_BYTES_MAX = 64 * 1024 * 1024
"""Of all frames of one change."""
INT32_MAX = 2**31 - 1
_ESCAPED_BYTES = 6
"""A character of a name has so many bytes in JSON at most."""
_ENTRY_BYTES = 512
"""More than a topic or a group has beside its names."""
_LINE_BYTES = 64
"""More than numbers and punctuation of a line have."""
_ROOM = NATIVE_BODY_BYTES_MAX - 1024

QueueNumber = Annotated[int, Meta(ge=0, le=INT32_MAX)]
PairName = Annotated[str, Meta(min_length=1, max_length=2 * NAME_MAX)]


class OffsetLine(NamedTuple):
    """A line of the journal of offsets."""

    pair: PairName
    """topic@group"""
    queue: QueueNumber | None
    """None: the pair was deleted."""
    offset: LogOffset


class TimerState(NamedTuple):
    """Messages of the timer's topic before `known_below` are delivered, or stored again."""

    known_below: LogOffset
    known_ms: LogOffset
    window_ms: LogOffset


class OffsetLines:
    """Lines of the journal, of which only those are kept that still matter; in their order."""

    def __init__(self, lines: Iterable[OffsetLine] = ()) -> None:
        self._by_pair: dict[str, dict[int | None, int]] = {}
        for line in lines:
            self.add(line)

    def add(self, line: OffsetLine) -> None:
        if line.queue is None:
            self._by_pair[line.pair] = {None: 0}
        else:
            self._by_pair.setdefault(line.pair, {})[line.queue] = line.offset

    def __iter__(self) -> Iterator[OffsetLine]:
        """A deletion before what was committed after it."""
        for pair, queues in self._by_pair.items():
            for queue, offset in queues.items():
                yield OffsetLine(pair, queue, offset)

    def __bool__(self) -> bool:
        return bool(self._by_pair)


@dataclass(frozen=True, slots=True)
class StateChange:
    """None: has not changed."""

    topics: TopicTable | None = None
    groups: GroupTable | None = None
    offsets: tuple[OffsetLine, ...] = ()
    delays: dict[int, int] | None = None
    """By delay level: up to which offset its queue was delivered."""
    timer: TimerState | None = None
    is_full: bool = False
    """Whether this is everything: a pair that is not among the offsets has none."""

    def __bool__(self) -> bool:
        return self != _NO_CHANGE

    def then(self, newer: "StateChange") -> "StateChange":
        """Both as one."""
        if newer.is_full:
            return newer
        return StateChange(
            newer.topics or self.topics,
            newer.groups or self.groups,
            tuple(OffsetLines((*self.offsets, *newer.offsets))) if newer.offsets else self.offsets,
            self.delays if newer.delays is None else {**(self.delays or {}), **newer.delays},
            newer.timer or self.timer,
            self.is_full,
        )


_NO_CHANGE = StateChange()


# --- frames -----------------------------------------------------------------------------------------------------------


class _Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    number: Annotated[int, Meta(ge=1, le=OFFSET_MAX)]
    end: LogOffset
    more: bool = False
    full: bool = False
    topics: TopicTable | None = None
    groups: GroupTable | None = None
    offsets: tuple[OffsetLine, ...] = ()
    delays: dict[QueueNumber, LogOffset] | None = None
    timer: TimerState | None = None


@dataclass(slots=True)
class _Part:
    """Of a change: as much as fits into a frame."""

    topics: dict[str, TopicConfig] = field(default_factory=dict)
    deleted: dict[str, int] = field(default_factory=dict)
    groups: dict[str, GroupConfig] = field(default_factory=dict)
    offsets: dict[OffsetLine, None] = field(default_factory=dict)
    delays: dict[int, int] = field(default_factory=dict)


def state_bodies(number: int, end: int, change: StateChange) -> tuple[bytes, ...]:
    """Bodies of one frame or more, each within the limit of a frame. FrameError for what a slave would refuse."""
    _check(change)
    parts = list(_parts(change))
    bodies = []
    for index, part in enumerate(parts):
        frame = _Frame(
            number=number,
            end=end,
            more=index + 1 < len(parts),
            full=change.is_full,
            topics=_topics(change.topics, part),
            groups=None if change.groups is None else _group_table(change.groups.data_version, part.groups),
            offsets=tuple(part.offsets),
            delays=None if change.delays is None else part.delays,
            timer=change.timer,
        )
        body = msgspec.json.encode(frame)
        if len(body) > NATIVE_BODY_BYTES_MAX:
            raise FrameError(f"a state frame of {len(body)} bytes, at most {NATIVE_BODY_BYTES_MAX} are taken")
        bodies.append(body)
    if sum(map(len, bodies)) > CHANGE_BYTES_MAX:
        raise FrameError(f"tables and offsets have more than {CHANGE_BYTES_MAX} bytes: delete topics or groups")
    return tuple(bodies)


def _topics(table: TopicTable | None, part: _Part) -> TopicTable | None:
    if table is None:
        return None
    deleted = None if table.deleted_topics is None else part.deleted
    return TopicTable(data_version=table.data_version, topic_config_table=part.topics, deleted_topics=deleted)


def _group_table(version: DataVersion, groups: dict[str, GroupConfig]) -> GroupTable:
    return GroupTable(data_version=version, subscription_group_table=groups)


def _parts(change: StateChange) -> Iterator[_Part]:
    """At least one, also of nothing. By the largest size that an entry may have in JSON."""
    part, room = _Part(), _ROOM
    for kind, name, value, size in _entries(change):
        room -= size
        if room < 0:
            yield part
            part, room = _Part(), _ROOM - size
        getattr(part, kind)[name] = value
    yield part


def _entries(change: StateChange) -> Iterator[tuple[str, Hashable, object, int]]:
    """Field of the part, key and value there, and bytes in JSON at most."""
    if change.topics is not None:
        for name, topic in change.topics.topic_config_table.items():
            yield "topics", name, topic, 2 * len(name) * _ESCAPED_BYTES + _ENTRY_BYTES
        for name, end in (change.topics.deleted_topics or {}).items():
            yield "deleted", name, end, len(name) * _ESCAPED_BYTES + _LINE_BYTES
    if change.groups is not None:
        for name, group in change.groups.subscription_group_table.items():
            yield "groups", name, group, 2 * len(name) * _ESCAPED_BYTES + _ENTRY_BYTES
    for line in OffsetLines(change.offsets):
        yield "offsets", line, None, len(line.pair) * _ESCAPED_BYTES + _LINE_BYTES
    for level, offset in (change.delays or {}).items():
        yield "delays", level, offset, _LINE_BYTES


class Change(NamedTuple):
    number: int
    end: int
    change: StateChange


class StateDecoder:
    """Bodies of state frames to whole changes. What is not whole yet is bounded."""

    def __init__(self) -> None:
        self._begun: list[_Frame] = []
        self._bytes = 0
        self._number = 0

    def feed(self, body: bytes | memoryview) -> Change | None:
        """The change, when this was its last frame."""
        try:
            frame = msgspec.json.decode(body, type=_Frame)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise FrameError(f"not a state frame: {error}") from None
        self._bytes += len(body)
        if self._bytes > CHANGE_BYTES_MAX:
            raise FrameError(f"a change of tables and offsets of more than {CHANGE_BYTES_MAX} bytes")
        if self._begun:
            first = self._begun[0]
            if (frame.number, frame.end, frame.full) != (first.number, first.end, first.full):
                raise FrameError(f"change {frame.number} begins before change {first.number} is whole")
        elif frame.number <= self._number:
            raise FrameError(f"change {frame.number} after change {self._number}")
        elif self._number == 0 and not frame.full:
            raise FrameError("the first change on a connection has everything, and this one has not")
        self._begun.append(frame)
        if frame.more:
            return None
        change = _whole(self._begun)
        _check(change)
        self._begun, self._bytes, self._number = [], 0, frame.number
        return Change(frame.number, frame.end, change)


def _whole(frames: list[_Frame]) -> StateChange:
    topics: dict[str, TopicConfig] = {}
    deleted: dict[str, int] = {}
    groups: dict[str, GroupConfig] = {}
    delays: dict[int, int] = {}
    lines: list[OffsetLine] = []
    for frame in frames:
        if frame.topics is not None:
            topics.update(frame.topics.topic_config_table)
            deleted.update(frame.topics.deleted_topics or {})
        if frame.groups is not None:
            groups.update(frame.groups.subscription_group_table)
        delays.update(frame.delays or {})
        lines += frame.offsets
    last = frames[-1]
    table = last.topics
    if table is not None:
        gone = None if table.deleted_topics is None else deleted
        table = TopicTable(data_version=table.data_version, topic_config_table=topics, deleted_topics=gone)
    return StateChange(
        table,
        None if last.groups is None else _group_table(last.groups.data_version, groups),
        tuple(OffsetLines(lines)),
        None if last.delays is None else delays,
        last.timer,
        last.full,
    )


# --- checks -----------------------------------------------------------------------------------------------------------


def _check(change: StateChange) -> None:
    """What the types of the tables leave open: they are those of requests, where the handlers check."""
    if change.is_full and (change.topics is None or change.groups is None):
        raise FrameError("a change that should have everything lacks topics or groups")
    if change.topics is not None:
        _check_version(change.topics.data_version)
        for name, topic in change.topics.topic_config_table.items():
            _check_name("topic", name, topic.topic_name)
            _check_int32(name, topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.topic_sys_flag)
        for name, end in (change.topics.deleted_topics or {}).items():
            _check_name("topic", name, name)
            _check_offset(name, end)
    if change.groups is not None:
        _check_version(change.groups.data_version)
        for name, group in change.groups.subscription_group_table.items():
            _check_name("group", name, group.group_name)
            _check_int32(
                name,
                group.retry_queue_nums,
                max(group.retry_max_times, 0),  # -1 is usual: Apache's default of some releases
                max(group.broker_id, 0),
                max(group.which_broker_when_consume_slowly, 0),
            )
    for line in change.offsets:
        topic_name, at, group_name = line.pair.partition("@")
        if not (topic_name and at and group_name) or len(line.pair) > 2 * NAME_MAX:
            raise FrameError(f"offsets of {line.pair[:NAME_MAX]!r}: not topic@group")
        _check_int32(line.pair, line.queue or 0)
        _check_offset(line.pair, line.offset)


def _check_name(what: str, key: str, name: str) -> None:
    if key != name or not 0 < len(key) <= NAME_MAX:
        raise FrameError(f"a {what} {name[:NAME_MAX]!r} under the name {key[:NAME_MAX]!r}")


def _check_version(version: DataVersion) -> None:
    if not all(abs(number) <= OFFSET_MAX for number in (version.timestamp, version.counter)):
        raise FrameError("a version of a table beyond 64 bits")


def _check_int32(name: str, *numbers: int) -> None:
    if not all(0 <= number <= INT32_MAX for number in numbers):
        raise FrameError(f"a number of {name[:NAME_MAX]!r} that is not one of 31 bits")


def _check_offset(name: str, offset: int) -> None:
    if not 0 <= offset <= OFFSET_MAX:
        raise FrameError(f"offset {offset} of {name[:NAME_MAX]!r}")
