"""Values as Apache's mqadmin prints them. Scripts search for these texts, so they must match exactly.

This includes the output of Java's `toString()`, such as `MessageQueue [topic=..., ...]`.
"""

import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

from ariane.client.admin.messages import Track, TrackState
from ariane.client.consumer.message import Received
from ariane.client.producer.result import SendResult
from ariane.errors import ClientError
from ariane.model.group import GroupConfig
from ariane.model.message import HostPort
from ariane.model.route import MessageQueue
from ariane.model.topic import Permission, TopicConfig

_FIRST_REGULAR = 232  # V4_1_0_SNAPSHOT: from here on two numbers for each patch, ten patches for each minor version
_FIRST_RELEASE = 410

_TRACKS = {
    TrackState.CONSUMED: "CONSUMED",
    TrackState.FILTERED: "CONSUMED_BUT_FILTERED",
    TrackState.WAITING: "NOT_CONSUME_YET",
    TrackState.BROADCASTING: "UNKNOWN",  # Apache 4.9 has no such state, and the broker does not know the offsets
    TrackState.UNKNOWN: "UNKNOWN",
}
_NOT_ONLINE = "NOT_ONLINE"


def version_name(number: int) -> str:
    """V4_7_1 for 355. Releases before 4.1 follow no numbering rule: returns the number."""
    if number < _FIRST_REGULAR:
        return str(number)
    step, is_release = divmod(number - _FIRST_REGULAR, 2)
    return f"V{'_'.join(str(_FIRST_RELEASE + step))}{'' if is_release else '_SNAPSHOT'}"


# --- times: local, as in Apache's tool; `-s 2026-01-01#10:00:00:000` is local, too ---


def day_and_second(ms: int) -> str:
    return _local(ms, "%Y-%m-%d %H:%M:%S")


def day_and_millisecond(ms: int) -> str:
    return _local(ms, "%Y-%m-%d %H:%M:%S,") + f"{ms % 1000:03d}"


def digits_only(ms: int) -> str:
    return _local(ms, "%Y%m%d%H%M%S") + f"{ms % 1000:03d}"


def _local(ms: int, pattern: str) -> str:
    """Returns the number itself if it is out of range: it may come from a peer."""
    try:
        return datetime.fromtimestamp(ms // 1000).strftime(pattern)
    except (OverflowError, ValueError, OSError):
        return str(ms)


# --- plain values ---


def java(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def java_map(pairs: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name}={value}" for name, value in pairs.items()) + "}"


def _fields(name: str, pairs: Iterable[tuple[str, object]]) -> str:
    return f"{name} [" + ", ".join(f"{key}={java(value)}" for key, value in pairs) + "]"


def permission(perm: int) -> str:
    """RW-, R--, -W-; X for the inherit bit."""
    letters = ((Permission.READ, "R"), (Permission.WRITE, "W"), (Permission.INHERIT, "X"))
    return "".join(letter if perm & bit else "-" for bit, letter in letters)


# --- `toString()` of Apache's classes ---


def queue_words(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def topic_words(config: TopicConfig) -> str:
    return _fields(
        "TopicConfig",
        [
            ("topicName", config.topic_name),
            ("readQueueNums", config.read_queue_nums),
            ("writeQueueNums", config.write_queue_nums),
            ("perm", permission(config.perm)),
            ("topicFilterType", "SINGLE_TAG"),
            ("topicSysFlag", config.topic_sys_flag),
            ("order", config.order),
        ],
    )


def group_words(config: GroupConfig) -> str:
    return _fields(
        "SubscriptionGroupConfig",
        [
            ("groupName", config.group_name),
            ("consumeEnable", config.consume_enable),
            ("consumeFromMinEnable", config.consume_from_min_enable),
            ("consumeBroadcastEnable", config.consume_broadcast_enable),
            ("retryQueueNums", config.retry_queue_nums),
            ("retryMaxTimes", config.retry_max_times),
            ("brokerId", config.broker_id),
            ("whichBrokerWhenConsumeSlowly", config.which_broker_when_consume_slowly),
            ("notifyConsumerIdsChangedEnable", config.notify_consumer_ids_changed_enable),
        ],
    )


def sent_words(sent: SendResult) -> str:
    return (
        f"SendResult [sendStatus={sent.status}, msgId={sent.message_id}, offsetMsgId={sent.offset_message_id}, "
        f"messageQueue={queue_words(sent.queue)}, queueOffset={sent.queue_offset}]"
    )


def track_words(track: Track) -> str:
    """NOT_ONLINE for an offline group, unless its offset shows more: Apache's tool ignores the offset."""
    is_open = track.state in (TrackState.WAITING, TrackState.UNKNOWN)
    word = _NOT_ONLINE if is_open and not track.is_online else _TRACKS[track.state]
    return f"MessageTrack [consumerGroup={track.group}, trackType={word}, exceptionDesc=null]"


def message_words(message: Received) -> str:
    """Without MIN_OFFSET and MAX_OFFSET, which Java's client adds to the message's own properties."""
    signed = ", ".join(str(byte - 256 if byte > 127 else byte) for byte in message.body)
    plain = (
        f"Message{{topic='{message.topic}', flag={message.flag}, properties={java_map(message.properties)}, "
        f"body=[{signed}], transactionId='{java(message.transaction_id)}'}}"
    )
    return _fields(
        "MessageExt",
        [
            ("brokerName", message.queue.broker_name),
            ("queueId", message.queue.queue_id),
            ("storeSize", message.stored_size),
            ("queueOffset", message.queue_offset),
            ("sysFlag", message.sys_flag),
            ("bornTimestamp", message.born_timestamp_ms),
            ("bornHost", _host(message.born_host)),
            ("storeTimestamp", message.store_timestamp_ms),
            ("storeHost", _host(message.store_host)),
            ("msgId", message.offset_message_id),
            ("commitLogOffset", message.physical_offset),
            ("bodyCRC", message.body_crc),
            ("reconsumeTimes", message.reconsume_times),
            ("preparedTransactionOffset", message.prepared_transaction_offset),
            ("toString()", plain),
        ],
    )


def _host(host: HostPort) -> str:
    return f"/{host}"


# --- body files: mqadmin's queries write each body where Apache's tool does, because scripts read it there ---

_PLAIN_NAME = re.compile(r"[0-9A-Za-z_-]{1,128}")


def write_body(message: Received) -> Path:
    """`rocketmq/msgbodys/ID` in the directory for temporary files.

    The id comes from the producer and must not point outside this directory. The directory is writable by everybody,
    so symbolic links are not followed.
    """
    is_plain = _PLAIN_NAME.fullmatch(message.message_id)
    name = message.message_id if is_plain else message.offset_message_id
    path = Path(tempfile.gettempdir()) / "rocketmq" / "msgbodys" / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(message.body)
    except OSError as error:
        hint = "set TMPDIR to a directory of your own"
        raise ClientError(f"cannot write the body to {path}: {error.strerror}; {hint}") from error
    return path
