"""The system topics that a broker has from its start, whether its file knows them or not. Pure."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from ariane.broker.settings import BrokerSettings
from ariane.broker.system_topics import BENCHMARK, OFFSET_MOVED_EVENT, SCHEDULE, SELF_TEST, reply_topic
from ariane.model.ids import topic_fault
from ariane.model.topic import AUTO_CREATE_TEMPLATE, Permission, TopicConfig
from ariane.store.delay_levels import parse_levels

_OPEN = int(Permission.READ_WRITE | Permission.INHERIT)
_BENCHMARK_QUEUES = 1024
_CLUSTER_QUEUES = 16


def topics_at_start(settings: BrokerSettings, known: Mapping[str, TopicConfig]) -> Iterator[TopicConfig]:
    """Those to put into the table: missing ones, and the template when its inherit bit must go."""
    for config in _all(settings):
        if config.topic_name not in known and topic_fault(config.topic_name) is None:
            yield config
    template = known.get(AUTO_CREATE_TEMPLATE)
    if template is not None:
        # The file is of a time when topics were made by sending, or were not: the setting decides now.
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
