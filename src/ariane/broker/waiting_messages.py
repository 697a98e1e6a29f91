"""Where in the log the oldest message is that nobody has seen yet: what a nearly full disk must not cost.

Messages of delay levels and half messages wait in queues, in order, so the next one to come tells. Those of the timer
wheel do not: `TimerDelivery.oldest_waiting` looks for them.
"""

from ariane.broker.schedule.levels import DelayedDelivery
from ariane.broker.system_topics import SCHEDULE, TRANS_HALF
from ariane.broker.transactions import Transactions
from ariane.broker.transactions.half_record import HALF_QUEUE
from ariane.store.message_store import MessageStore
from ariane.store.steps import Steps


def oldest_waiting(store: MessageStore, delayed: DelayedDelivery, transactions: Transactions) -> Steps[int | None]:
    """The physical offset of the oldest delayed or half message; None when none waits."""
    queues = store.parts.queues
    heads = [(queues.get(SCHEDULE, level - 1), offset) for level, (offset, _) in delayed.progress().items()]
    heads.append((queues.get(TRANS_HALF, HALF_QUEUE), transactions.open.first_open))
    places = []
    for queue, offset in heads:
        if queue is not None:
            places.append((yield from queue.finding_physical(max(offset, queue.min_offset))))
    return min((place for place in places if place is not None), default=None)
