"""From the fields of a send to its draft: the part of the send handler that both decoders share.

    fast path      frame ─► decoders of wire/fast ─► Send ─► TopicEntry ─► property pattern ───┐
                                                                                               ├─► build_draft ─► append
    general path   frame ─► Command, dispatcher ───► Send ─► SendChecks ─► read_property_text ─┘

Either decoder yields a `Send` (wire/requests/send.py), so another one, for example a compiled one, can take the place
of a fast one without a change here.
"""

from collections.abc import Callable
from sys import intern

from ariane.broker.send.checks import SendChecks
from ariane.broker.writer import DEFERRING
from ariane.model.ids import RETRY_PREFIX
from ariane.model.message import Property
from ariane.model.topic import TopicConfig, TopicFilterType
from ariane.store.append.draft import Appended, Draft
from ariane.wire.fast.fields import Opaque
from ariane.wire.frame import Command
from ariane.wire.hashes import tags_code
from ariane.wire.properties import NO_PATTERN, PropertyPattern, index_keys
from ariane.wire.requests.send import Send
from ariane.wire.sys_flag import SysFlag

TRANSACTION_BITS = int(SysFlag.TRANSACTION_TYPE)
_MULTI_TAGS = int(SysFlag.MULTI_TAGS)

NOT_PLAIN = DEFERRING | {Property.TRANSACTION_PREPARED, Property.CLUSTER, Property.MSG_REGION}
"""A message with one of these properties is not stored as it came."""

WhenStored = Callable[[Draft, Appended], None]
"""Something to be done once a message is stored."""

PendingSend = tuple[Opaque | Command, str | None, str | None, int, Draft, WhenStored | None]
"""A send that waits for its append: the request, by its opaque number if the response template fits it (`requester`
in responses.py); the message's unique key and WAIT, if any; the queue that was requested, which is not where a half
message is stored; the draft; what else is to be done. A plain tuple: any class costs 0.1 us more to make."""


class TopicEntry:
    """What sends to one topic need to know; the topic has passed its checks."""

    __slots__ = (
        "delay_group",
        "groups",
        "is_half",
        "is_ordered",
        "match",
        "queues",
        "sys_flag",
        "tags",
        "tags_code",
        "topic",
    )

    def __init__(self, config: TopicConfig) -> None:
        self.topic = intern(config.topic_name)
        """The same object that is the key of other tables: they need not compare it, nor load theirs from memory, of
        which thousands of topics take more than a CPU's cache holds."""
        self.queues = max(config.write_queue_nums, config.read_queue_nums)
        self.sys_flag = 0 if config.topic_filter_type is TopicFilterType.SINGLE_TAG else _MULTI_TAGS
        self.tags: str | None = None
        self.tags_code = 0
        self.use(NO_PATTERN)

    def use(self, pattern: PropertyPattern) -> None:
        """The pattern of its last message: most likely also that of the next."""
        self.match, self.groups, self.is_ordered, self.is_half, self.delay_group = pattern

    def hash_tags(self, tags: str | None) -> int:
        """The code of other tags than last time."""
        self.tags, self.tags_code = tags, tags_code(tags)
        return self.tags_code


class TopicCache:
    """Entries of the topics that sends came to, until any topic changes."""

    def __init__(self, checks: SendChecks) -> None:
        self.entries: dict[str, TopicEntry] = {}
        """Without retry topics, whose messages may become dead letters: the fast path takes only topics in here."""
        checks.on_change(self.entries.clear)

    def of(self, config: TopicConfig) -> TopicEntry:
        """The entry of a topic that has just passed its checks."""
        entry = self.entries.get(config.topic_name)
        if entry is None:
            entry = TopicEntry(config)
            if not entry.topic.startswith(RETRY_PREFIX):
                self.entries[entry.topic] = entry
        return entry


def build_draft(
    fields: Send,
    entry: TopicEntry,
    queue_id: int,
    body: bytes,
    properties: bytes,
    born_host: bytes,
    unique_key: str | None,
    keys: str | None,
    tags: str | None,
) -> Draft:
    """The draft of a message that is stored as it came. The last three are values of its properties."""
    return Draft(
        topic=entry.topic,
        queue_id=queue_id,
        body=body,
        properties=properties,
        born_timestamp_ms=fields.born_timestamp,
        born_host=born_host,
        flag=fields.flag,
        sys_flag=fields.sys_flag | entry.sys_flag,
        reconsume_times=fields.reconsume_times or 0,
        tags_code=entry.tags_code if tags == entry.tags else entry.hash_tags(tags),
        keys=(unique_key, keys) if keys and unique_key and " " not in keys else index_keys(unique_key, keys),
    )
