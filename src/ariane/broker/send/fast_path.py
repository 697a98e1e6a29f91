"""The straight line for sends: from the bytes of a chunk to drafts, for messages that are stored as they came.

    chunk ─► send_frames ─► checks of the topic ─► shape of the properties ─► Draft ─► staged for one append

What is not usual - a new topic, a batch, a delay, a transaction, a retry, an odd property text - ends the line before
that frame: the connection hands it to the general way (handlers/send.py), which also tells what is wrong with it, and
then comes back here. Both ways stage the same drafts, so only the CPU shows which one a message took
(docs/decisions/send-path.md has the figures of each step).

Nothing here is asked twice: flow control and the broker's own state once a chunk, a topic's configuration once until
any topic changes, the names of properties once a shape.
"""

import re
from collections.abc import Callable, Iterable
from sys import intern
from typing import NamedTuple

from ariane.broker.send.checks import SendChecks, accepts_sends, born_host, read_property_text
from ariane.broker.send.coalescer import SendCoalescer
from ariane.broker.send.flow_control import FlowControl
from ariane.broker.send.responses import Asked, is_plain
from ariane.broker.writer import DEFERRING, index_keys
from ariane.errors import MessageRefused
from ariane.model.ids import RETRY_PREFIX
from ariane.model.message import Property
from ariane.model.topic import TopicConfig, TopicFilterType
from ariane.store.append.draft import Draft
from ariane.transport.connection import Connection
from ariane.wire.fast_frames import begins_with_send, send_frames
from ariane.wire.frame import FrameLimits
from ariane.wire.hashes import tags_code
from ariane.wire.sys_flag import SysFlag

# --- property_shapes ---
#
# Property texts that look like the one before: the same names in the same order, and other values.
#
# A producer writes the same few properties with each message. After some texts with the same names these names become a
# pattern, which checks the next text and cuts out the four values that a broker looks at in one pass: 0.6 us, where a
# dict of all pairs takes 1.7. Only names that leave the message as it came get a pattern (see `plain` in send_lane.py),
# so a text that matches needs no further look: its separators alternate, no value is empty, no name comes twice, and
# the unique key is one that an answer can repeat without escapes.

VALUES = (Property.UNIQUE_KEY, Property.KEYS, Property.TAGS, Property.WAIT)
"""What a shape finds, in this order; None for what is not there."""

SEEN_BEFORE = 8
"""Texts with the same names, before these get a pattern: compiling one takes a quarter of a millisecond."""

_NAMES_MAX = 32
_SHAPES_MAX = 512
_SHARDING_KEY = Property.SHARDING_KEY


class PropertyPattern(NamedTuple):
    match: Callable[[str], "re.Match[str] | None"]
    groups: tuple[int, int, int, int]
    """The numbers of the pattern's groups that hold VALUES: `match(text).group(*groups)`."""
    is_ordered: bool
    """Whether there is a sharding key."""


NO_SHAPE = PropertyPattern(re.compile("(?!)").match, (0, 0, 0, 0), False)
"""Matches no text."""


class PropertyPatternCache:
    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], int] = {}
        self._shapes: dict[tuple[str, ...], PropertyPattern] = {}

    def of(self, names: Iterable[str]) -> PropertyPattern:
        """The shape of texts with these names; NO_SHAPE as long as they are new, or too many."""
        key = tuple(names)
        shape = self._shapes.get(key)
        if shape is not None:
            return shape
        if len(self._seen) >= _SHAPES_MAX:  # somebody makes names up: forget them all, and the honest are soon back
            self._seen.clear()
            self._shapes.clear()
        times = self._seen[key] = self._seen.get(key, 0) + 1
        if times < SEEN_BEFORE or len(key) > _NAMES_MAX:
            return NO_SHAPE
        shape = self._shapes[key] = property_pattern_of(key)
        return shape


def property_pattern_of(names: tuple[str, ...]) -> PropertyPattern:
    """The last 0x02 may be missing. Possessive (`++`): a text that does not match is given up at once."""
    wanted = [name for name in names if name in VALUES]
    pairs = [f"{re.escape(name)}\x01{_PATTERNS.get(name, _VALUE)}" for name in names]
    compiled = re.compile("\x02".join(pairs) + (_END if names else "") + _NEVER)
    unique_key, keys, tags, wait = (wanted.index(name) + 1 if name in wanted else len(wanted) + 1 for name in VALUES)
    return PropertyPattern(compiled.fullmatch, (unique_key, keys, tags, wait), _SHARDING_KEY in names)


_VALUE = "[^\x01\x02]++"
# A unique key of letters and digits can stand in an answer as it is: matched here, it need not be looked at again,
# which would take 0.2 us.
_PATTERNS = dict.fromkeys(VALUES, f"({_VALUE})") | {Property.UNIQUE_KEY: "([0-9A-Za-z]++)"}
_END = "\x02?"
_NEVER = "(?:(?!)(.))?"  # a last group that holds nothing, for values that are not there


# ---

TRANSACTION_BITS = int(SysFlag.TRANSACTION_TYPE)
MULTI_TAGS = int(SysFlag.MULTI_TAGS)
_TAGS, _KEYS, _UNIQUE_KEY, _WAIT = Property.TAGS, Property.KEYS, Property.UNIQUE_KEY, Property.WAIT

NOT_PLAIN = DEFERRING | {Property.TRANSACTION_PREPARED, Property.CLUSTER, Property.MSG_REGION}
"""A message with one of these properties is not stored as it came."""


class _Place:
    """What a send to one topic needs to know."""

    __slots__ = ("groups", "is_ordered", "match", "queues", "sys_flag", "tags", "tags_code", "topic")

    def __init__(self, config: TopicConfig) -> None:
        self.topic = intern(config.topic_name)
        """The very text that is the key of other tables: those that come behind need not compare it, nor load theirs
        from memory, of which thousands of topics take more than a CPU's cache holds."""
        self.queues = max(config.write_queue_nums, config.read_queue_nums)
        self.sys_flag = 0 if config.topic_filter_type is TopicFilterType.SINGLE_TAG else MULTI_TAGS
        self.tags: str | None = None
        self.tags_code = 0
        self.take(NO_SHAPE)

    def take(self, shape: PropertyPattern) -> None:
        """The shape of its last message: most likely also that of the next."""
        self.match, self.groups, self.is_ordered = shape

    def hashed(self, tags: str | None) -> int:
        """The code of other tags than last time."""
        self.tags, self.tags_code = tags, tags_code(tags)
        return self.tags_code


class SendFastPath:
    def __init__(
        self, checks: SendChecks, flow: FlowControl, stage: SendCoalescer, marks_text: str, limits: FrameLimits
    ) -> None:
        """`marks_text` is what the broker adds to the properties of each message."""
        self._checks = checks
        self._flow = flow
        self._stage = stage
        self._marks, self._end_and_marks = marks_text, "\x02" + marks_text
        self._limits = limits
        self._places: dict[str, _Place] = {}
        self._shapes = PropertyPatternCache()
        checks.on_change(self._places.clear)

    def take(self, connection: Connection, data: bytes, position: int) -> int:
        """Stages the sends in `data` from `position` on; where the first frame begins that it leaves to others."""
        if not begins_with_send(data, position) or not accepts_sends(self._flow, self._checks):
            return position
        places, began = self._places, position
        host = born_host(connection.peer)
        drafts: list[Draft] = []
        asked: list[Asked] = []
        ordered: list[int] = []
        for end, opaque, fields, body_at in send_frames(data, position, self._limits):
            topic, queue_id, sys_flag = fields.topic, fields.queue_id, fields.sys_flag
            place = places.get(topic) or self._place(topic)
            if (
                place is None
                or not 0 <= queue_id < place.queues
                or sys_flag & TRANSACTION_BITS
                or fields.batch is True
                or body_at == end
            ):
                break
            text = fields.properties or ""
            found = place.match(text)
            if found is not None:
                unique_key, keys, tags, wait = found.group(*place.groups)
            elif (properties := self._read(place, text)) is not None:
                unique_key, keys = properties.get(_UNIQUE_KEY), properties.get(_KEYS)
                tags, wait = properties.get(_TAGS), properties.get(_WAIT)
                if not is_plain(unique_key):
                    break
            else:
                break
            try:
                encoded = (text + (self._marks if not text or text[-1] == "\x02" else self._end_and_marks)).encode()
            except UnicodeEncodeError:
                break
            if place.is_ordered:
                ordered.append(len(drafts))
            drafts.append(
                Draft(
                    topic=place.topic,
                    queue_id=queue_id,
                    body=data[body_at:end],
                    properties=encoded,
                    born_timestamp_ms=fields.born_timestamp,
                    born_host=host,
                    flag=fields.flag,
                    sys_flag=sys_flag | place.sys_flag,
                    reconsume_times=fields.reconsume_times or 0,
                    tags_code=place.tags_code if tags == place.tags else place.hashed(tags),
                    keys=(unique_key, keys)
                    if keys and unique_key and " " not in keys
                    else index_keys(unique_key, keys),
                )
            )
            asked.append((opaque, unique_key, wait, queue_id))
            position = end
        if drafts:
            self._stage.add(connection, drafts, asked, ordered, position - began)
        return position

    def _place(self, topic: str) -> _Place | None:
        """None for a topic that has not passed its checks yet, and for retries, which may become dead letters."""
        config = self._checks.passed(topic)
        if config is None or topic.startswith(RETRY_PREFIX):
            return None
        place = _Place(config)
        self._places[place.topic] = place
        return place

    def _read(self, place: _Place, text: str) -> dict[str, str] | None:
        """The properties of a text of another shape; None when the message cannot be stored as it came."""
        try:
            properties, kept = read_property_text(text)
        except MessageRefused:
            return None
        if not NOT_PLAIN.isdisjoint(properties) or kept.rstrip("\x02") != text.rstrip("\x02"):
            return None
        place.take(self._shapes.of(properties))
        place.is_ordered = Property.SHARDING_KEY in properties
        return properties
