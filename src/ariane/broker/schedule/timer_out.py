"""What happens to a message whose time is looked at: delivered if it is due, else put at the end of the timer topic.

The second keeps a message that is due in a week from retention, which deletes the log after three days: within the roll
window, well below that, each waiting message is written anew.
"""

import logging

from ariane.broker.incoming import Incoming, draft_of, incoming_of
from ariane.broker.intake import Intake
from ariane.broker.schedule.redelivery import TIMER_CANCELS, delivered, due_ms, rolled
from ariane.broker.system_topics import TIMER
from ariane.errors import MessageRefused, RecordError, SettingsError
from ariane.wire.record_view import RecordView, verify

log = logging.getLogger(__name__)

_HOUR_MS = 3_600_000
ROLL_WINDOW_MS_MAX = 48 * _HOUR_MS


def roll_window_ms(retention_hours: int) -> int:
    """After how long a message that still waits is written anew: two thirds of what retention promises, or two days."""
    if retention_hours < 1:
        raise SettingsError(
            "fileReservedTime = 0 keeps no message that waits: give it 1 or more, or no timerWheelEnable"
        )
    return min(ROLL_WINDOW_MS_MAX, retention_hours * _HOUR_MS * 2 // 3)


class TimerOut:
    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self.dropped = 0
        """Messages that could not be delivered: gone from the log, or without a place to go."""

    def read(self, record: bytes | memoryview | None, physical_offset: int) -> Incoming | None:
        """The waiting message; None, and told, when it is not there: a full disk may have cost it."""
        try:
            if record is None:
                raise RecordError("its record is gone from the commit log")
            _check(record, physical_offset)
            return incoming_of(memoryview(record))
        except RecordError as error:
            self._drop(physical_offset, error)
            return None

    def settle(self, message: Incoming, physical_offset: int, now_ms: int) -> None:
        """Puts the message where it belongs now; a StoreError when the store cannot take it: try again."""
        try:
            following = rolled(message) if due_ms(message.properties) > now_ms else _delivered(message)
            if following is not None:
                self._intake.take(draft_of(following))
                self._intake.counters.timer_deliveries += following.topic != TIMER
        except (MessageRefused, RecordError) as error:
            self._drop(physical_offset, error)

    def _drop(self, physical_offset: int, error: Exception) -> None:
        self.dropped += 1
        log.error("waiting message dropped", extra={"offset": physical_offset, "reason": str(error)})


def _check(record: bytes | memoryview, physical_offset: int) -> None:
    """With the body's checksum: a copy gets a new one, which would cover damage up."""
    view = verify(record)
    if not isinstance(view, RecordView):
        raise RecordError(f"no record any more: {getattr(view, 'reason', 'a blank one')}")
    if view.physical_offset != physical_offset or view.topic != TIMER:
        raise RecordError(f"a message of topic {view.topic} is there, stored at {view.physical_offset}")


def _delivered(message: Incoming) -> Incoming | None:
    return None if TIMER_CANCELS in message.properties else delivered(message)
