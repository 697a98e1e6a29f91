"""System topics and delay levels: their names, and which system topics clients may write to.

    topic                          queues        made     clients may send
    TBW102                         8             at start yes, it is the template of automatically created topics
    SELF_TEST_TOPIC                1             at start no
    OFFSET_MOVED_EVENT             1             at start no
    BenchmarkTest                  1024          at start yes
    <cluster>, <broker>            16, 1         at start yes: tools measure a broker by sending to its name
    <cluster>_REPLY_TOPIC          1             at start yes, by replying
    RMQ_SYS_TRACE_TOPIC            1             at start yes: clients report what they sent and consumed
    SCHEDULE_TOPIC_XXXX            one a level   at start no
    RMQ_SYS_TRANS_HALF_TOPIC       1             when first used  no
    RMQ_SYS_TRANS_OP_HALF_TOPIC    1             when first used  no
    TRANS_CHECK_MAX_TIME_TOPIC     1             when first used  no
    rmq_sys_...                                  when first used  no
    ARIANE_SYS_EPOCH               1             when first used  no (replication/epochs.py)

The broker trusts what it reads from the last kind of topic, so clients must not write there: they could forge a half
message that no producer sent, or a delayed message for a topic that they may not write to.
"""

from ariane.errors import SettingsError
from ariane.model.topic import AUTO_CREATE_TEMPLATE

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
TRANS_HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE = "RMQ_SYS_TRACE_TOPIC"
TIMER = "rmq_sys_wheel_timer"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
SELF_TEST = "SELF_TEST_TOPIC"
BENCHMARK = "BenchmarkTest"
EPOCH = "ARIANE_SYS_EPOCH"

SYSTEM_PREFIX = "rmq_sys_"

_READ_ONLY = frozenset({SCHEDULE, TRANS_HALF, TRANS_OP, TRANS_CHECK_MAX, TIMER, OFFSET_MOVED_EVENT, SELF_TEST, EPOCH})
_WRITABLE = frozenset({AUTO_CREATE_TEMPLATE, BENCHMARK, TRACE})


_REPLY_TOPIC_ENDING = "_REPLY_TOPIC"


def reply_topic(cluster: str) -> str:
    return cluster + _REPLY_TOPIC_ENDING


_CLOSED_GROUP_PREFIX = "CID_RMQ_SYS_"


def is_closed_topic(topic: str) -> bool:
    """Whether messages of all tenants are in this topic, so that access control grants it by name only."""
    return (
        topic in _READ_ONLY or topic == TRACE or topic.startswith(SYSTEM_PREFIX) or topic.endswith(_REPLY_TOPIC_ENDING)
    )


def is_closed_group(group: str) -> bool:
    """Whether the broker keeps its own progress as the offsets of this group."""
    return group.startswith(_CLOSED_GROUP_PREFIX)


def own_names(cluster: str, broker: str) -> frozenset[str]:
    """The system topics that are named after this broker or its cluster."""
    return frozenset({cluster, broker, reply_topic(cluster)})


def is_system(topic: str) -> bool:
    """Whether this is a system topic on every broker; those named after the broker itself are in `own_names`."""
    return topic in _READ_ONLY or topic in _WRITABLE or topic.startswith(SYSTEM_PREFIX)


def is_writable_by_clients(topic: str) -> bool:
    return topic not in _READ_ONLY and not topic.startswith(SYSTEM_PREFIX)


# --- delay levels: `1s 5s 10s ...`, counted from 1 ---

DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_levels(text: str) -> tuple[int, ...]:
    """The delay of each level in ms, level 1 first."""
    try:
        levels = tuple(int(word[:-1]) * _UNITS_MS[word[-1]] for word in text.split())
    except (KeyError, ValueError, IndexError):
        raise SettingsError(f"messageDelayLevel: delays like 1s, 5m or 2h expected, got {text!r}") from None
    if not levels:
        raise SettingsError("messageDelayLevel is empty: name at least one delay, for example 1s")
    return levels


def delivery_time_ms(levels: tuple[int, ...], level: int, stored_ms: int) -> int:
    """When a message of this level is due. Levels beyond the table mean one second, as in Apache's recovery."""
    return stored_ms + (levels[level - 1] if 0 < level <= len(levels) else 1_000)
