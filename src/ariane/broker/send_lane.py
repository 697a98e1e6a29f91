"""The straight line for sends: from the bytes of a chunk to drafts, for messages that are stored as they came.

    chunk ─► send_frames ─► checks of the topic ─► shape of the properties ─► Draft ─► staged for one append

What is not usual - a new topic, a batch, a delay, a transaction, a retry, an odd property text - ends the line before
that frame: the connection hands it to the general way (handlers/send.py), which also tells what is wrong with it, and
then comes back here. Both ways stage the same drafts, so only the CPU shows which one a message took
(docs/decisions/send-path.md has the figures of each step).

Nothing here is asked twice: flow control and the broker's own state once a chunk, a topic's configuration once until
any topic changes, the names of properties once a shape.
"""

from sys import intern

from ariane.broker.delay_rewrite import DEFERRING
from ariane.broker.flow_control import FlowControl
from ariane.broker.incoming import index_keys
from ariane.broker.property_shapes import NO_SHAPE, Shape, Shapes
from ariane.broker.property_text import read_property_text
from ariane.broker.send_answers import Asked, is_plain
from ariane.broker.send_checks import SendChecks, are_taken, born_host
from ariane.broker.staged_sends import SendStage
from ariane.errors import MessageRefused
from ariane.model.ids import RETRY_PREFIX
from ariane.model.message import Property
from ariane.model.topic import TopicConfig, TopicFilterType
from ariane.store.draft import Draft
from ariane.transport.connection import Connection
from ariane.wire.frame import FrameLimits
from ariane.wire.java_hash import tags_code
from ariane.wire.send_frames import begins_with_send, send_frames
from ariane.wire.sys_flag import SysFlag

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

    def take(self, shape: Shape) -> None:
        """The shape of its last message: most likely also that of the next."""
        self.match, self.groups, self.is_ordered = shape

    def hashed(self, tags: str | None) -> int:
        """The code of other tags than last time."""
        self.tags, self.tags_code = tags, tags_code(tags)
        return self.tags_code


class SendLane:
    def __init__(
        self, checks: SendChecks, flow: FlowControl, stage: SendStage, marks_text: str, limits: FrameLimits
    ) -> None:
        """`marks_text` is what the broker adds to the properties of each message."""
        self._checks = checks
        self._flow = flow
        self._stage = stage
        self._marks, self._end_and_marks = marks_text, "\x02" + marks_text
        self._limits = limits
        self._places: dict[str, _Place] = {}
        self._shapes = Shapes()
        checks.on_change(self._places.clear)

    def take(self, connection: Connection, data: bytes, position: int) -> int:
        """Stages the sends in `data` from `position` on; where the first frame begins that it leaves to others."""
        if not begins_with_send(data, position) or not are_taken(self._flow, self._checks):
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
