"""Messages for later: which of them are put aside, where, and until when.

    property               a number of     put aside in                          queue entry carries
    DELAY                  the level       SCHEDULE_TOPIC_XXXX, queue level - 1  the delivery time
    TIMER_DELAY_SEC        seconds         rmq_sys_wheel_timer, queue 0,         the tags code; the time
    TIMER_DELAY_MS         milliseconds      with TIMER_OUT_MS = delivery time     is in TIMER_OUT_MS
    TIMER_DELIVER_MS       ms since 1970

The first that is there counts, in this order. Either way REAL_TOPIC and REAL_QID say where the message belongs. The two
kinds of half messages that no queue takes, prepared and rolled back, are never put aside.
"""

from typing import NamedTuple

from msgspec.structs import replace

from ariane.broker.incoming import Incoming
from ariane.broker.system_topics import SCHEDULE, TIMER
from ariane.errors import MessageRefused
from ariane.model.message import Property

TIMER_OUT_MS = "TIMER_OUT_MS"
"""When a message in the timer's topic is due, in ms since 1970."""

_DELAY = Property.DELAY
_TIMERS = (Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS, Property.TIMER_DELIVER_MS)
DEFERRING = frozenset({_DELAY, *_TIMERS})
"""A message without any of these properties is for now."""

_NOT_QUEUED = 0x4  # the bit that prepared (4) and rolled back (12) share
_NUMBER_LENGTH_MAX = 20


class DelayRules(NamedTuple):
    levels_ms: tuple[int, ...]
    timer_enable: bool
    timer_delay_max_s: int


class Deferred(NamedTuple):
    message: Incoming
    delay_ms: int
    """Of a delay level, whose queue entry carries the delivery time in place of the tags code; 0 for the timer's."""


def deferred(message: Incoming, rules: DelayRules, now_ms: int) -> Deferred | None:
    """The message as it is put aside; None when it is for now. MessageRefused when its delay cannot be."""
    if message.sys_flag & _NOT_QUEUED or DEFERRING.isdisjoint(message.properties):
        return None
    level = _number(message.properties, _DELAY)
    if level is not None and level > 0:
        return _by_level(message, min(level, len(rules.levels_ms)), rules.levels_ms)
    due_ms = _due_ms(message.properties, now_ms)
    if due_ms is None or due_ms <= now_ms:
        return None
    return _by_timer(message, due_ms, rules, now_ms)


def _by_level(message: Incoming, level: int, levels_ms: tuple[int, ...]) -> Deferred:
    properties = {name: value for name, value in message.properties.items() if name not in _TIMERS}
    properties[_DELAY] = str(level)
    return Deferred(_aside(message, SCHEDULE, level - 1, properties), levels_ms[level - 1])


def _by_timer(message: Incoming, due_ms: int, rules: DelayRules, now_ms: int) -> Deferred:
    if not rules.timer_enable:
        raise MessageRefused(
            "the message has a delivery time and timerWheelEnable is false: turn it on or use DELAY levels"
        )
    if due_ms - now_ms > rules.timer_delay_max_s * 1000:
        raise MessageRefused(
            f"the message is due in {(due_ms - now_ms) // 1000} s, more than timerMaxDelaySec = "
            f"{rules.timer_delay_max_s}: deliver it sooner or raise the limit"
        )
    return Deferred(_aside(message, TIMER, 0, {**message.properties, TIMER_OUT_MS: str(due_ms)}), 0)


def _aside(message: Incoming, topic: str, queue_id: int, properties: dict[str, str]) -> Incoming:
    properties[Property.REAL_TOPIC] = message.topic
    properties[Property.REAL_QUEUE_ID] = str(message.queue_id)
    return replace(message, topic=topic, queue_id=queue_id, properties=properties)


def _due_ms(properties: dict[str, str], now_ms: int) -> int | None:
    seconds, milliseconds, at_ms = (_number(properties, name) for name in _TIMERS)
    if seconds is not None:
        return now_ms + seconds * 1000
    return now_ms + milliseconds if milliseconds is not None else at_ms


def _number(properties: dict[str, str], name: str) -> int | None:
    text = properties.get(name)
    if text is None:
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _NUMBER_LENGTH_MAX:
        raise MessageRefused(f"property {name} must be a whole number, got {text[:40]!r}")
    return int(text)
