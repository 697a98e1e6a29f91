"""A message that waited, as it goes on: to the topic it was sent to, looking as if it had been sent just now."""

from msgspec.structs import replace

from ariane.broker.delay_rewrite import TIMER_OUT_MS
from ariane.broker.incoming import Incoming
from ariane.broker.system_topics import TIMER, TRANS_HALF
from ariane.errors import RecordError
from ariane.model.message import Property

TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_CANCELS = "TIMER_DEL_UNIQKEY"

# What made the message wait, and the way back, are done with. Apache leaves DELAY, REAL_TOPIC and REAL_QID behind on
# messages of a delay level; no client reads them there, and a DELAY that is left makes a copy of the message wait too.
_DONE_WITH = (
    Property.DELAY,
    Property.TIMER_DELAY_SEC,
    Property.TIMER_DELAY_MS,
    Property.REAL_TOPIC,
    Property.REAL_QUEUE_ID,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
)
_TRIGGERS = (Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS, Property.TIMER_DELIVER_MS)


def delivered(message: Incoming) -> Incoming | None:
    """The message for its real topic; None when it may not go there. RecordError when it does not say where."""
    topic = message.properties.get(Property.REAL_TOPIC, "")
    if topic == TRANS_HALF:  # it would be a half message that no producer prepared
        return None
    queue_id = message.properties.get(Property.REAL_QUEUE_ID, "")
    if not topic or not (queue_id.isascii() and queue_id.isdigit()):
        raise RecordError(f"REAL_TOPIC is {topic[:127]!r} and REAL_QID {queue_id[:20]!r}: no place to deliver to")
    properties = {name: value for name, value in message.properties.items() if name not in _DONE_WITH}
    if due := message.properties.get(TIMER_OUT_MS):
        properties[Property.TIMER_DELIVER_MS] = due  # in the past now: what consumers show as the delivery time
    properties[Property.WAIT] = "false"
    return replace(message, topic=topic, queue_id=int(queue_id), properties=properties)


def rolled(message: Incoming) -> Incoming:
    """The message for the end of the timer topic, so that retention does not reach it before its time."""
    properties = {name: value for name, value in message.properties.items() if name not in _TRIGGERS}
    times = properties.get(TIMER_ROLL_TIMES, "")
    properties[TIMER_ROLL_TIMES] = str(int(times) + 1 if times.isascii() and times.isdigit() else 1)
    properties[Property.WAIT] = "false"
    return replace(message, topic=TIMER, queue_id=0, properties=properties)


def due_ms(properties: dict[str, str]) -> int:
    """When a message of the timer topic is due. One that does not say is due now: nothing is gained by keeping it."""
    text = properties.get(TIMER_OUT_MS, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def cancelled_by(message: Incoming) -> tuple[str, str]:
    """What another message must name to call this one off: its unique key, alone or behind the topic as 5.3 has it."""
    key = message.properties.get(Property.UNIQUE_KEY, "")
    return key, f"{message.properties.get(Property.REAL_TOPIC)}_{key}"
