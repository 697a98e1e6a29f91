"""Retries and dead letters: where a message goes that a consumer group failed to consume.

    consumer fails            %RETRY%group, after 3 + attempts levels of delay      attempts >= limit, or level < 0
    ─────────────────▶ send-back ───────────────────────────────▶ consumer ───────────────▶ %DLQ%group, no delay

The limit is the client's if it sends one, otherwise the group's (retryMaxTimes, 16). The delay of the last attempt is
removed from a dead letter: Apache up to 4.9.2 does not remove it, and stores the dead letter two hours later.
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
"""Retries skip the first two levels, 1 s and 5 s: a message that failed a second ago mostly fails again."""

_SCHEDULING = (Property.DELAY, Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS, Property.TIMER_DELIVER_MS)


class DeadLetter(NamedTuple):
    """The dead-letter topic and queue of a message, and its properties there."""

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
    """For a normal send to `%RETRY%group`: the dead-letter target if no attempts are left, None to store it as sent.

    A client sends the message itself when its send-back failed or its ordered consumer gave up. The attempts and their
    limit are in the header (`reconsumeTimes`, `maxReconsumeTimes`) or, with some clients, still in the properties
    (RECONSUME_TIME, MAX_RECONSUME_TIMES). Creates the dead-letter topic. RequestFailed if the group does not exist and
    cannot be created. `properties` is not changed.
    """
    if not topic.startswith(RETRY_PREFIX):
        return None
    group = groups.find(topic.removeprefix(RETRY_PREFIX))
    attempts = max(reconsume_times, _number(properties.get(Property.RECONSUME_TIME)) or 0)
    client_limit = (
        _number(properties.get(Property.MAX_RECONSUME_TIMES)) if max_reconsume_times is None else max_reconsume_times
    )
    if attempts < attempts_max(group, client_limit):
        return None
    target = dead_letter_topic(topics, group.group_name)
    return DeadLetter(target.topic_name, 0, without_schedule(properties))


def send_back_message(
    message: InboundMessage,
    original_id: str,
    group: GroupConfig,
    delay_level: int,
    attempts_allowed: int,
    topics: Topics,
) -> InboundMessage:
    """The message, as `inbound_message_of` read it, sent back to the group: to its retry topic or its dead letters."""
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


def attempts_max(group: GroupConfig, client_limit: int | None) -> int:
    """The client's limit, if it sends one; push consumers without a limit send -1."""
    return group.retry_max_times if client_limit is None or client_limit < 0 else client_limit


def retry_topic(topics: Topics, group: GroupConfig, *, unit_mode: bool = False) -> TopicConfig:
    """The group's retry topic, created if missing; RequestFailed if it is not writable."""
    flag = TopicSysFlag.UNIT_SUBSCRIPTION if unit_mode else 0
    return _writable(topics.ensure(RETRY_PREFIX + group.group_name, group.retry_queue_nums, sys_flag=int(flag)))


def dead_letter_topic(topics: Topics, group: str) -> TopicConfig:
    """The group's dead-letter topic. Created readable and writable, so that dead letters can be consumed.

    Apache before 4.9.3 creates it write-only. Such a topic stays as it is; an administrator can make it readable.
    """
    return _writable(topics.ensure(DEAD_LETTER_PREFIX + group, DEAD_LETTER_QUEUES, perm=int(Permission.READ_WRITE)))


def without_schedule(properties: dict[str, str]) -> dict[str, str]:
    """The properties without those that delay a message: they applied to its last delivery."""
    return {name: value for name, value in properties.items() if name not in _SCHEDULING}


def _writable(topic: TopicConfig) -> TopicConfig:
    if not topic.perm & Permission.WRITE:
        raise RequestFailed(
            ResponseCode.NO_PERMISSION,
            f"topic {topic.topic_name} is not writable (perm {topic.perm}): set perm 6 (updateTopicPerm)",
        )
    return topic


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
