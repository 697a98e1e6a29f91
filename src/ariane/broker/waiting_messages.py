"""Where in the log the oldest message is that nobody has seen yet: what a nearly full disk must not cost.

Messages of delay levels and half messages wait in queues, in order, so the next one to come tells. Those of the timer
wheel do not; they are not looked for here.
"""

from ariane.broker.schedule.levels import DelayedDelivery
from ariane.broker.system_topics import SCHEDULE, TRANS_HALF
from ariane.broker.transactions import Transactions
from ariane.broker.transactions.half_record import HALF_QUEUE
from ariane.store.consume_queue import ConsumeQueue
from ariane.store.message_store import MessageStore
from ariane.store.queue_entry import ENTRY


def oldest_waiting(store: MessageStore, delayed: DelayedDelivery, transactions: Transactions) -> int | None:
    """The physical offset of the oldest delayed or half message; None when none waits."""
    queues = store.parts.queues
    places = [_physical(queues.get(SCHEDULE, level - 1), offset) for level, (offset, _) in delayed.progress().items()]
    half = _physical(queues.get(TRANS_HALF, HALF_QUEUE), transactions.open.first_open)
    return min((place for place in [*places, half] if place is not None), default=None)


def _physical(queue: ConsumeQueue | None, offset: int) -> int | None:
    entry = b"" if queue is None else queue.entries(max(offset, queue.min_offset), 1)
    return int(ENTRY.unpack(entry)[0]) if entry else None
