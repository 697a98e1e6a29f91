"""The fast path for outcomes of transactions: from the bytes of a chunk to what is enqueued for two appends.

    chunk ─► OutcomeDecoder ─► half message, from memory or the mapped log ─► judged ─► enqueued for two appends

It stops before the first uncommon frame - an outcome that is repeated, is "unknown" or does not fit its half message, a
half message that was sent long ago - and the general path (handler.py) judges that one again and responds. Both enqueue
the same outcomes, so the only difference is the CPU time (docs/decisions/send-path.md).
"""

from ariane.broker.transactions.outcomes import OutcomeSink, PendingOutcome, Transactions
from ariane.errors import RecordError, RequestFailed, StoreError
from ariane.transport.connection import Connection
from ariane.wire.fast.decoders import OutcomeDecoder, begins_with_outcome
from ariane.wire.fast.fields import FrameCheck, OutcomeFrames
from ariane.wire.frame import FrameLimits


class OutcomeFastPath:
    def __init__(
        self,
        transactions: Transactions,
        outcomes: OutcomeSink,
        limits: FrameLimits,
        frames: OutcomeFrames | None = None,
    ) -> None:
        """`frames` decodes a chunk."""
        self._recent = transactions.recent
        self._queue = transactions.queue
        self._outcomes = outcomes
        self._limits = limits
        self._frames = frames or OutcomeDecoder().frames

    def take(self, connection: Connection, data: bytes, position: int, check: FrameCheck | None = None) -> int:
        """Enqueues the outcomes in `data` from `position` on; returns where the first frame begins that it leaves.

        With access control it leaves all: an account needs the right to publish to the half message's own topic.
        """
        if check is not None or not begins_with_outcome(data, position):
            return position
        pending: list[PendingOutcome] = []
        for end, opaque, request, _ in self._frames(data, position, self._limits):
            offset = request.tran_state_table_offset
            try:
                half = self._recent.take(offset) or self._queue.fresh_at(offset)
                outcome = None if half is None else self._outcomes.first(request, half)
            except (RequestFailed, RecordError, StoreError, OSError):
                break
            if outcome is None:
                break
            pending.append(PendingOutcome(outcome, request, opaque))
            position = end
        self._outcomes.enqueue_all(connection, pending)
        return position
