"""How much of what is there goes into the next micro-batch. Pure."""

from collections.abc import Mapping

from ariane.model.route import MessageQueue
from ariane.spark.offsets import Offsets


def limited(start: Mapping[MessageQueue, int], head: Mapping[MessageQueue, int], rows_max: float) -> Offsets:
    """`head`, or less of it: each queue gives in proportion to what it has, and at least one message if it has any.

    Without the one message a small queue beside a large one would wait until the large one is read.
    """
    waiting = {queue: max(0, end - start.get(queue, end)) for queue, end in head.items()}
    total = sum(waiting.values())
    if total <= rows_max:
        return {queue: max(end, start.get(queue, end)) for queue, end in head.items()}
    share = max(0.0, rows_max) / total
    return {
        queue: start.get(queue, head[queue]) + (max(1, int(count * share)) if count else 0)
        for queue, count in waiting.items()
    }


def rows_for_bytes(
    start: Mapping[MessageQueue, int],
    head: Mapping[MessageQueue, int],
    record_bytes: Mapping[MessageQueue, float],
    bytes_max: int,
) -> float:
    """How many rows make `bytes_max` when every queue gives in proportion; `record_bytes` are mean sizes."""
    waiting = {queue: max(0, end - start.get(queue, end)) for queue, end in head.items()}
    total = sum(waiting.values())
    if not total:
        return float("inf")
    mean = sum(count * record_bytes.get(queue, 0.0) for queue, count in waiting.items()) / total
    return bytes_max / mean if mean else float("inf")


class Minimum:
    """Waits until enough has gathered, or until the first of it has waited long enough."""

    def __init__(self, rows_min: int, delay_max_s: float) -> None:
        self._rows_min = rows_min
        self._delay_max_s = delay_max_s
        self._waiting_since: float | None = None

    def is_enough(self, rows: int, now_s: float) -> bool:
        if rows >= self._rows_min or (rows and self._is_overdue(now_s)):
            self._waiting_since = None
            return True
        if rows and self._waiting_since is None:
            self._waiting_since = now_s
        return False

    def _is_overdue(self, now_s: float) -> bool:
        return self._waiting_since is not None and now_s - self._waiting_since >= self._delay_max_s
