"""The topic table of the broker, stored in `topics.json`: topics created by administrators, by sends and by the broker.

A change is active at once, with a new data version, by which nameservers detect a changed table. It is saved a few
seconds later, or when someone waits for `saved`: a response that promises a change, and the first send to a new topic,
do. All changes up to a save are saved together, by a thread, so any number of them costs the event loop the same.
Reducing the number of queues only hides the others: their files stay, and a larger number shows them again. Messages in
a hidden queue are not lost, but not consumed either: first lower the write queues, wait until consumers have caught up,
then lower the read queues.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec.structs import replace

from ariane.broker.json_table import Autosave, JsonTable
from ariane.broker.settings import BrokerSettings
from ariane.clock import Clock
from ariane.errors import RequestFailed, StoreCorrupt, WireError
from ariane.model.ids import RETRY_PREFIX, topic_name_problem
from ariane.model.system_topics import (
    BENCHMARK,
    OFFSET_MOVED_EVENT,
    SCHEDULE,
    SELF_TEST,
    is_system,
    own_names,
    parse_levels,
    reply_topic,
)
from ariane.model.topic import AUTO_CREATE_TEMPLATE, DataVersion, Permission, TopicConfig
from ariane.rpc.rate_limit import ConnectionRateLimit
from ariane.store.config.table_file import ACCEPT_COMMAND
from ariane.transport.connection import Connection
from ariane.wire.codes import ResponseCode
from ariane.wire.json.coerce import coerce
from ariane.wire.requests.topics import TopicTable

# --- built-in topics ---

_OPEN = int(Permission.READ_WRITE | Permission.INHERIT)
_BENCHMARK_QUEUES = 1024
_CLUSTER_QUEUES = 16


def builtin_topics(settings: BrokerSettings, existing: Mapping[str, TopicConfig]) -> Iterator[TopicConfig]:
    """The built-in topics that are missing in the table, and the auto-create template with its current permission."""
    for config in _all(settings):
        if config.topic_name not in existing and topic_name_problem(config.topic_name) is None:
            yield config
    template = existing.get(AUTO_CREATE_TEMPLATE)
    if template is not None:
        # The file may be from a time with the other setting of autoCreateTopicEnable: the current setting decides.
        perm = _OPEN if settings.auto_create_topics else int(Permission.READ_WRITE)
        yield replace(template, perm=perm)


def _all(settings: BrokerSettings) -> Iterator[TopicConfig]:
    yield _topic(SELF_TEST, 1)
    yield _topic(OFFSET_MOVED_EVENT, 1)
    if settings.auto_create_topics:
        yield _topic(AUTO_CREATE_TEMPLATE, settings.default_topic_queues, _OPEN)
    yield _topic(BENCHMARK, _BENCHMARK_QUEUES)
    yield _topic(settings.cluster, _CLUSTER_QUEUES, _OPEN if settings.cluster_topic else int(Permission.INHERIT))
    yield _topic(settings.name, 1, _OPEN if settings.broker_topic else int(Permission.INHERIT))
    yield _topic(SCHEDULE, len(parse_levels(settings.store.message_delay_levels)))
    if settings.trace_topic_enable:
        yield _topic(settings.trace_topic, 1)
    yield _topic(reply_topic(settings.cluster), 1)


def _topic(name: str, queues: int, perm: int = int(Permission.READ_WRITE)) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)


# --- table ---

log = logging.getLogger(__name__)

QUEUES_MAX = 1024
"""Per topic and broker: the number of queues of Apache's largest built-in topic (BenchmarkTest)."""

_PERMISSION_MAX = Permission.READ_WRITE | Permission.INHERIT | Permission.PRIORITY

_NAMES_SHOWN = 10

Listener = Callable[[TopicConfig | None], None]
T = TypeVar("T")


class CreationLimit:
    """How many topics and groups a connection may create by merely using them. One limit for both tables."""

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        self._settings = settings
        self._limit = ConnectionRateLimit(lambda: settings.auto_create_rate, clock)

    def admit(self, creator: Connection | None, name: str) -> None:
        """RequestFailed(SYSTEM_BUSY), which clients retry, when `creator` has made too many. None is the broker."""
        if creator is not None and not self._limit.take(creator):
            raise RequestFailed(
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD]{name} is not created now: one connection may create {self._settings.auto_create_rate:g} "
                "topics and groups a second by using them (broker.auto_create_rate); try again in a moment, or create "
                "them first (mqadmin updateTopic, updateSubGroup)",
            )


class Topics:
    """Use on the event loop only. Without a file, as in tests, topics exist as long as the process."""

    def __init__(
        self, settings: BrokerSettings, file: JsonTable | None, clock: Clock, creations: CreationLimit | None = None
    ) -> None:
        self._settings = settings
        self._creations = creations or CreationLimit(settings, clock)
        self._file = file
        self._autosave = Autosave(file, self.table, self._forget_saved)
        self._unsaved: dict[str, int] = {}  # the number of the last change, by topic
        self._clock = clock
        self._own_names = own_names(settings.cluster, settings.name)
        self._listeners: list[Listener] = []
        self._announce: Callable[[], Awaitable[None]] | None = None
        self._configs: dict[str, TopicConfig] = {}
        self.version = DataVersion(timestamp=clock.now_ms(), counter=0)
        self._has_file = False
        if file is not None:
            self._load(file)
        for config in builtin_topics(settings, self._configs):
            self._configs[config.topic_name] = config

    def _load(self, file: JsonTable) -> None:
        content = file.load()
        if content is None:
            return
        try:
            table = coerce(TopicTable, content)
        except WireError as error:
            raise StoreCorrupt(
                f"{file.path}: {error}; correct it and run `{ACCEPT_COMMAND} {file.path.parent.parent}`, or restore it"
            ) from error
        for config in table.topic_config_table.values():
            if (problem := topic_name_problem(config.topic_name)) is not None:
                log.warning("invalid topic ignored", extra={"file": str(file.path), "reason": problem})
            else:
                self._configs[config.topic_name] = config
        self.version = table.data_version
        self._has_file = True

    async def check_stored(self, stored: Iterable[str]) -> None:
        """`stored` are the topics that have queues. StoreCorrupt if there are some and the table is not there.

        A topic that is not in the table is not served, so its messages would be missing without a word. A new store
        gets its table before its first message, so that later it can be missed.
        """
        unknown = sorted(topic for topic in stored if topic not in self._configs and not self.is_system(topic))
        if self._file is None:
            return
        if not unknown:
            if not self._has_file:
                self._autosave.mark_changed()
                await self._autosave.save_if_changed()
            return
        names = ", ".join(unknown[:_NAMES_SHOWN]) + (" ..." if len(unknown) > _NAMES_SHOWN else "")
        if not self._has_file:
            path = self._file.path
            raise StoreCorrupt(
                f"{path} is missing, but the store has messages of {len(unknown)} topics ({names}): restore it from a "
                f"copy, or run `{ACCEPT_COMMAND} {path.parent.parent}` to write it from the queues that are there"
            )
        log.warning(
            "topics that are not in the table have queues: their messages are not served. Create them again, or remove "
            "their queues (mqadmin cleanUnusedTopic)",
            extra={"topics": names, "number": len(unknown)},
        )

    # --- looking up -------------------------------------------------------------------------------------------------

    def get(self, topic: str) -> TopicConfig | None:
        return self._configs.get(topic)

    def all(self) -> Mapping[str, TopicConfig]:
        return MappingProxyType(self._configs)

    def table(self) -> TopicTable:
        """A copy, so that a thread can encode it."""
        return TopicTable(data_version=self.version, topic_config_table=dict(self._configs))

    def is_system(self, topic: str) -> bool:
        return is_system(topic) or topic in self._own_names

    def system_topics(self) -> list[str]:
        return sorted(topic for topic in self._configs if self.is_system(topic))

    def on_change(self, listener: Listener) -> None:
        """Calls `listener` after each change: with the topic, or None if one was deleted or several changed."""
        self._listeners.append(listener)

    def announce_by(self, announced: Callable[[], Awaitable[None]]) -> None:
        """`announced` returns when the nameservers have the table as it is at the call."""
        self._announce = announced

    async def announced(self) -> None:
        """For changes by an administrator, who may ask for the route next: returns when the nameservers have them.

        Immediately if there is none. Sends and heartbeats that create a topic do not wait.
        """
        if self._announce is not None:
            await self._announce()

    # --- changing ---------------------------------------------------------------------------------------------------

    def put(self, config: TopicConfig) -> None:
        """Creates or replaces the topic. RequestFailed if the configuration is invalid."""
        _check(config)
        self._check_topic_limit(config.topic_name)
        self._configs[config.topic_name] = config
        self._changed((config.topic_name,), config)

    def delete(self, topic: str) -> bool:
        """Whether it existed. The handler removes its queues and offsets."""
        if self._configs.pop(topic, None) is None:
            return False
        self._changed((topic,), None)
        return True

    async def copy(self, table: TopicTable) -> None:
        """Takes over the master's table, at a slave, with its version, and saves it. Invalid topics are left out."""
        if table.data_version == self.version:
            return
        self._configs = {
            name: config for name, config in table.topic_config_table.items() if topic_name_problem(name) is None
        }
        self._changed((), None)
        self.version = table.data_version
        await self.saved()

    def for_send(
        self, topic: str, default_topic: str, queues_requested: int, creator: Connection | None = None
    ) -> TopicConfig:
        """The topic of a send. A missing topic is created if the template allows it; a retry topic always."""
        config = self._configs.get(topic)
        if config is not None:
            return config
        if topic.startswith(RETRY_PREFIX):
            self._creations.admit(creator, topic)
            return self.ensure(topic, 1)
        return self._make_from_template(topic, self._configs.get(default_topic), queues_requested, creator)

    def _make_from_template(
        self, topic: str, template: TopicConfig | None, queues_requested: int, creator: Connection | None
    ) -> TopicConfig:
        if template is None or not template.perm & Permission.INHERIT:
            raise RequestFailed(ResponseCode.TOPIC_NOT_EXIST, self._not_found_text(topic))
        self._creations.admit(creator, topic)
        queues = max(1, min(queues_requested, template.write_queue_nums, QUEUES_MAX))
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=template.perm & ~Permission.INHERIT,
            topic_filter_type=template.topic_filter_type,
            topic_sys_flag=template.topic_sys_flag,
        )
        self.put(config)
        log.info("topic created by a send", extra={"topic": topic, "queues": queues, "template": template.topic_name})
        return config

    def _not_found_text(self, topic: str) -> str:
        return (
            f"topic {topic[:255]} does not exist on broker {self._settings.name}: create it (mqadmin updateTopic -t "
            f"{topic[:255]}), or set autoCreateTopicEnable=true so that a send creates it ({AUTO_CREATE_TEMPLATE})"
        )

    def ensure(self, topic: str, queues: int, perm: int = int(Permission.READ_WRITE), sys_flag: int = 0) -> TopicConfig:
        """The topic, created if missing: for retry, dead-letter and system topics, which are not created manually."""
        config = self._configs.get(topic)
        if config is None:
            config = TopicConfig(
                topic_name=topic,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=perm,
                topic_sys_flag=sys_flag,
            )
            self.put(config)
        return config

    def apply_order_configs(self, ordered: Iterable[str]) -> None:
        """Applies the nameserver's ORDER_TOPIC_CONFIG: topics in it are ordered, all others are not."""
        ordered_topics = frozenset(ordered)
        changed = [config for name, config in self._configs.items() if config.order != (name in ordered_topics)]
        if not changed:
            return
        self._configs.update({config.topic_name: replace(config, order=not config.order) for config in changed})
        self._changed([config.topic_name for config in changed], None)
        for config in changed:
            log.info("order flag changed", extra={"topic": config.topic_name, "ordered": not config.order})

    def renew_version(self) -> None:
        """Call after a change of the broker's permission, which is part of every topic's registration."""
        self._changed((), None)

    def _check_topic_limit(self, topic: str) -> None:
        if topic not in self._configs and len(self._configs) >= self._settings.topics_max:
            raise RequestFailed(
                ResponseCode.SYSTEM_ERROR,
                f"broker {self._settings.name} has {len(self._configs)} topics, the limit of broker.topics_max: "
                "delete unused topics, or raise it",
            )

    def _changed(self, topics: Iterable[str], changed_topic: TopicConfig | None) -> None:
        self.version = DataVersion(timestamp=self._clock.now_ms(), counter=self.version.counter + 1)
        self._autosave.mark_changed()
        if not self._autosave.is_saved:
            self._unsaved.update(dict.fromkeys(topics, self._autosave.changes))
        for listener in self._listeners:
            listener(changed_topic)

    # --- the file ---------------------------------------------------------------------------------------------------

    def is_saved(self, topic: str) -> bool:
        """Whether the file has the topic as it is now: without it, a message would be out of reach after a crash."""
        return topic not in self._unsaved and not self._autosave.has_waiting

    async def saved(self) -> None:
        """Waits until all changes so far are durable. StoreError if the file cannot be written."""
        await self._autosave.saved()

    def when_saved(self, action: Callable[[], T]) -> Awaitable[T]:
        """The result of `action`, which is called then, in order, and also if nobody awaits it any more."""
        return self._autosave.when_saved(action)

    async def between_saves(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of `work()`, run to its end, while no change is saved and sends to new topics wait."""
        return await self._autosave.between_saves(work)

    @asynccontextmanager
    async def autosave(self, clock: Clock, interval_s: float) -> AsyncIterator[None]:
        """Saves what nobody waits for every `interval_s` while the body runs, and when it ends."""
        async with self._autosave.run(clock, interval_s):
            yield

    def _forget_saved(self) -> None:
        saved = self._autosave.saved_changes
        self._unsaved = {topic: change for topic, change in self._unsaved.items() if change > saved}


def _check(config: TopicConfig) -> None:
    problem = topic_name_problem(config.topic_name) or _queues_problem(config) or _permission_problem(config.perm)
    if problem is not None:
        raise RequestFailed(ResponseCode.SYSTEM_ERROR, problem)


def _queues_problem(config: TopicConfig) -> str | None:
    for kind, count in (("readQueueNums", config.read_queue_nums), ("writeQueueNums", config.write_queue_nums)):
        if not 1 <= count <= QUEUES_MAX:
            return (
                f"{kind} of topic {config.topic_name} is {count}, expected 1 to {QUEUES_MAX}; "
                "to stop writes or reads, change its perm"
            )
    return None


def _permission_problem(perm: int) -> str | None:
    if 0 <= perm <= _PERMISSION_MAX:
        return None
    return f"perm is {perm}, expected the sum of some of 2 (write), 4 (read), 1 (inherit) and 8 (priority)"
