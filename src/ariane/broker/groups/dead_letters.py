"""What becomes of a message that a group could not consume: another attempt later, or a place among the dead letters.

    consumer fails            %RETRY%group, after 3 + attempts levels of delay      attempts >= limit, or level < 0
    ─────────────────▶ send-back ───────────────────────────────▶ consumer ───────────────▶ %DLQ%group, at once

The limit is the client's own when it names one, the group's (retryMaxTimes, 16) otherwise. A dead letter loses the
delay of its last attempt: Apache up to 4.9.2 forgets that, and files it two hours later.
"""

import secrets
from typing import NamedTuple

from ariane.broker.groups.configs import Groups
from ariane.broker.topics import Topics
from ariane.broker.writer import InboundMessage
from ariane.errors import RequestFailed
from ariane.model.group import GroupConfig
from ariane.model.ids import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ariane.model.message import Property
from ariane.model.topic import Permission, TopicConfig, TopicSysFlag
from ariane.wire.codes import ResponseCode

DEAD_LETTER_QUEUES = 1
FIRST_RETRY_LEVEL = 3
"""The first two levels, 1 s and 5 s, are left out: what failed a second ago mostly fails again."""

LEVEL_FOREVER = -1

_SCHEDULING = (Property.DELAY, Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS, Property.TIMER_DELIVER_MS)


class DeadLetter(NamedTuple):
    """Where a message goes instead, and the properties it goes with."""

    topic: str
    queue_id: int
    properties: dict[str, str]


def retry_target(
    topic: str,
    properties: dict[str, str],
    reconsume_times: int,
    groups: Groups,
    topics: Topics,
    *,
    max_reconsume_times: int | None = None,
) -> DeadLetter | None:
    """For an ordinary send: where a message to `%RETRY%group` goes when its attempts are spent; None: as it was asked.

    A client whose send-back failed, or whose ordered consumer gave up, sends the message itself, with the attempts and
    their limit in the header (`reconsumeTimes`, `maxReconsumeTimes`) or, from some clients, still in the properties
    (RECONSUME_TIME, MAX_RECONSUME_TIMES). The dead-letter topic is made here. RequestFailed when the group is unknown
    and may not be made. `properties` is not changed.
    """
    if not topic.startswith(RETRY_PREFIX):
        return None
    group = groups.find(topic.removeprefix(RETRY_PREFIX))
    attempts = max(reconsume_times, _number(properties.get(Property.RECONSUME_TIME)) or 0)
    named = (
        _number(properties.get(Property.MAX_RECONSUME_TIMES)) if max_reconsume_times is None else max_reconsume_times
    )
    if attempts < attempts_max(group, named):
        return None
    target = dead_letter_topic(topics, group.group_name)
    return DeadLetter(target.topic_name, 0, without_schedule(properties))


def sent_back(
    message: InboundMessage,
    original_id: str,
    group: GroupConfig,
    delay_level: int,
    attempts_allowed: int,
    topics: Topics,
) -> InboundMessage:
    """The message, as `incoming_of` read it, on its way back to the group: to its retry topic or its dead letters."""
    properties = dict(message.properties)
    properties.setdefault(Property.RETRY_TOPIC, message.topic)
    properties.setdefault(Property.ORIGIN_MESSAGE_ID, original_id)
    properties = without_schedule(properties)
    properties[Property.WAIT] = "false"
    if delay_level < 0 or message.reconsume_times >= attempts_allowed:
        target = dead_letter_topic(topics, group.group_name)
    else:
        target = retry_topic(topics, group)
        properties[Property.DELAY] = str(delay_level or FIRST_RETRY_LEVEL + message.reconsume_times)
    return InboundMessage(
        topic=target.topic_name,
        queue_id=secrets.randbelow(target.write_queue_nums),
        body=message.body,
        properties=properties,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times + 1,
    )


def attempts_max(group: GroupConfig, named: int | None) -> int:
    """The client's own limit, if it names one; -1 is a push consumer's way to say that it has none."""
    return group.retry_max_times if named is None or named < 0 else named


def retry_topic(topics: Topics, group: GroupConfig, *, unit_mode: bool = False) -> TopicConfig:
    """The group's retry topic, made if missing; RequestFailed when it may not be written."""
    flag = TopicSysFlag.UNIT_SUBSCRIPTION if unit_mode else 0
    return _writable(topics.ensure(RETRY_PREFIX + group.group_name, group.retry_queue_nums, sys_flag=int(flag)))


def dead_letter_topic(topics: Topics, group: str) -> TopicConfig:
    """Readable as well as writable: whoever looks after dead letters wants to consume them (trap 24).

    Apache before 4.9.3 makes it write-only, and such a topic stays as it is: reading it is then for an administrator
    to allow.
    """
    return _writable(topics.ensure(DEAD_LETTER_PREFIX + group, DEAD_LETTER_QUEUES, perm=int(Permission.READ_WRITE)))


def without_schedule(properties: dict[str, str]) -> dict[str, str]:
    """Without what would make a message wait: that was for its last delivery."""
    return {name: value for name, value in properties.items() if name not in _SCHEDULING}


def _writable(topic: TopicConfig) -> TopicConfig:
    if not topic.perm & Permission.WRITE:
        raise RequestFailed(
            ResponseCode.NO_PERMISSION,
            f"topic {topic.topic_name} may not be written (perm {topic.perm}): give it perm 6 (updateTopicPerm)",
        )
    return topic


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
