"""Decides whether the event loop may sync the commit log itself: durations of syncs in, the decision out.

A sync by the flush thread costs a wake-up of the thread, one of the loop, and the waits of both for the interpreter
lock: more than a short sync. But while the loop syncs it does nothing else. So it does only while syncs are short, and
only little at a time (docs/decisions/flush.md has the figures):

    by the thread ── after a pause, the shortest of the last few was short ──► on the loop
                  ◄── one was long, or their average is not short any more ──

Durations by the thread contain its wait for the interpreter lock, so the shortest of several is what the disk takes. A
disk that is fast now and then would come back soon, and hold the loop each time: so the pause doubles each time that
the loop was held soon after the last pause.
"""

from collections import deque

SHORT_S = 0.0003
"""The shortest of the last syncs by the thread took no longer, when the loop begins to sync."""
AVERAGE_MAX_S = 0.0005
"""With a longer average the thread takes over."""
LONG_S = 0.005
"""One that takes longer ends it at once. As long as the loop is kept by other work in slices (lifecycle.py)."""
BYTES_MAX = 64 * 1024
"""With more to sync it takes longer, and the loop has the next messages to handle meanwhile."""
SYNCS_MIN = 8
PAUSE_MIN_S, PAUSE_MAX_S = 1.0, 60.0
_WEIGHT = 1 / 128


class SyncPolicy:
    """Time is an argument. One caller at a time: the one that synced."""

    def __init__(self) -> None:
        self.on_loop = False
        self.loop_syncs = 0
        self.loop_sync_s = 0.0
        self.thread_syncs = 0
        self.thread_sync_s = 0.0
        self._recent: deque[float] = deque(maxlen=SYNCS_MIN)
        self._average_s = 0.0
        self._pause_s = 0.0
        self._changed_at = 0.0

    def allows(self, size: int) -> bool:
        """Whether the loop may sync this many bytes."""
        return self.on_loop and size <= BYTES_MAX

    def synced_by_thread(self, seconds: float, now: float) -> None:
        self.thread_syncs += 1
        self.thread_sync_s += seconds
        recent = self._recent
        recent.append(seconds)
        if len(recent) < SYNCS_MIN:
            return
        shortest = min(recent)
        if self.on_loop:  # what was too much for the loop, or while others synced
            if shortest > LONG_S:
                self._leave(now)
        elif shortest <= SHORT_S and now >= self._changed_at + self._pause_s:
            self.on_loop = True
            self._average_s = shortest
            self._changed_at = now

    def synced_on_loop(self, seconds: float, now: float) -> None:
        self.loop_syncs += 1
        self.loop_sync_s += seconds
        self._average_s += (seconds - self._average_s) * _WEIGHT
        if seconds > LONG_S or self._average_s > AVERAGE_MAX_S:
            self._leave(now)

    def _leave(self, now: float) -> None:
        was_soon = now - self._changed_at < 8 * self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S) if was_soon else PAUSE_MIN_S
        self.on_loop = False
        self._changed_at = now
        self._recent.clear()
