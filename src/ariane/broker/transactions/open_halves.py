"""Which half messages still wait for their outcome: the sum of the half queue and the op queue, in a few numbers.

    half queue   ... 40 41 42 43 44 45 46 47          op queue   ... 17 18 19
                        │  over     over │                           │
                     first_open          end                      first_op

Everything below `first_open` is over, and so is what is in a set. Both queues are on disk; this is only how far a walk
over them would come, kept up to date by whoever writes to them. It is made again from the two queues at start
(half_queue.py), from the two numbers `first_open` and `first_op` on, which are saved as consumer offsets.

A half message that is asked about is copied to the end of its queue. Copies of one message are one transaction, known
by the offset of the first: its outcome may come for any of them, and is taken once.

Pure, and without an idea of time.
"""

from collections import deque


class OpenHalves:
    def __init__(self, first_open: int = 0, first_op: int = 0) -> None:
        self.first_open = first_open
        """Half messages before this one are all over."""
        self._over: set[int] = set()  # not below first_open
        self._newest_copy: dict[int, int] = {}  # first offset of a transaction to the offset of its newest copy
        self._ops: deque[tuple[int, int]] = deque()  # op queue offset, and the last half message that it ends
        self._op_end = first_op

    def __len__(self) -> int:
        """How many numbers are kept: what a half message at the front, that nobody ends, costs."""
        return len(self._over) + len(self._ops) + len(self._newest_copy)

    # --- asking -----------------------------------------------------------------------------------------------------

    def is_open(self, offset: int) -> bool:
        return offset >= self.first_open and offset not in self._over

    def count(self, end: int) -> int:
        """How many wait in a half queue that ends at `end`."""
        return max(0, end - self.first_open - len(self._over))

    def newest(self, first: int) -> int | None:
        """Where the transaction that began at `first` waits now; None when it is over."""
        offset = self._newest_copy.get(first, first)
        return offset if self.is_open(offset) else None

    def next_open(self, offset: int, end: int) -> int | None:
        """The first that is open, from `offset` to before `end`."""
        offset = max(offset, self.first_open)
        while offset < end:
            if offset not in self._over:
                return offset
            offset += 1
        return None

    @property
    def first_op(self) -> int:
        """Op messages before this one say nothing that `first_open` does not say."""
        while self._ops and self._ops[0][1] < self.first_open:
            self._ops.popleft()
        return self._ops[0][0] if self._ops else self._op_end

    # --- telling ----------------------------------------------------------------------------------------------------

    def op_written(self, op_offset: int, offsets: list[int]) -> None:
        """An op message stands in its queue: these half messages are over."""
        self._op_end = op_offset + 1
        if offsets:
            self._ops.append((op_offset, max(offsets)))
        for offset in offsets:
            self.over(offset)

    def over(self, offset: int) -> None:
        """Nothing more will come of this half message: ended, given up, or replaced by a copy."""
        if offset >= self.first_open:
            self._over.add(offset)
            self._advance()

    def copied(self, first: int, copy: int) -> None:
        """The transaction that began at `first` waits at `copy` from now on."""
        old = self._newest_copy.get(first, first)
        if copy > old:
            self._newest_copy[first] = copy
            self.over(old)

    def ended(self, first: int) -> None:
        """The whole transaction is over, and so is each of its messages."""
        self.over(self._newest_copy.pop(first, first))

    def skip_to(self, offset: int) -> None:
        """The half queue begins here now: what was before has been deleted with its file."""
        if offset <= self.first_open:
            return
        self.first_open = offset
        self._over = {one for one in self._over if one >= offset}
        self._newest_copy = {first: copy for first, copy in self._newest_copy.items() if copy >= offset}
        self._advance()

    def _advance(self) -> None:
        while self.first_open in self._over:
            self._over.remove(self.first_open)
            self.first_open += 1
