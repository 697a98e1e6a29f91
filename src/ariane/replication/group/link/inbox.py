"""Changes of what a master has beside its log, at a slave, until its own log has come so far. No I/O.

They are applied in their order. A topic's table rests on the log as much as progress does: the table may delete what
older messages still use. Of one connection: what is held when it ends is sent again on the next one.
"""

from ariane.replication.group.link.held import Held
from ariane.replication.group.link.state import Change, StateDecoder


def _merged(older: Change, newer: Change) -> Change:
    return Change(newer.number, newer.end, older.change.then(newer.change))


class StateInbox:
    def __init__(self) -> None:
        self._decoder = StateDecoder()
        self._held = Held[Change](_merged)
        self._end = 0

    def __len__(self) -> int:
        """How many changes are held; later ones count as one."""
        return len(self._held)

    def put(self, body: bytes | memoryview) -> None:
        """The body of a state frame. FrameError when it is none that can follow."""
        change = self._decoder.feed(body)
        if change is not None:
            self._end = max(self._end, change.end)  # none overtakes another
            self._held.put(self._end, change._replace(end=self._end))

    def is_reached(self, dispatched_to: int) -> bool:
        return self._held.is_reached(dispatched_to)

    def take(self, dispatched_to: int) -> Change | None:
        """What can be applied now, as one change; when it is applied, report its number."""
        return self._held.take(dispatched_to)
