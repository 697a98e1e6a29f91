"""One queue against a list, over any sequence of what a broker does to it.

The model keeps every entry that is not dropped in a plain list and knows no files, no tail and no fillers. Records are
numbered through all queues of a log, so that their physical offsets leave gaps in this one.
"""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ariane.store.consume_queue.entry import ENTRY
from ariane.store.consume_queue.queues import ConsumeQueues
from tests.store.queues import PER_FILE, Entry, close_queues, file_names, open_queues

sizes = st.integers(1, 400)
skips = st.sampled_from([0, 0, 0, 250])
tags = st.integers(-(2**31), 2**31 - 1)


class QueueMachine(RuleBasedStateMachine):
    @initialize(start=st.sampled_from([0, 0, 3, 10, 47]))
    def begin(self, start: int) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self.root = Path(self._directory.name)
        self.queues: ConsumeQueues
        self.log_end = self.log_min = 0
        self.first = start  # the queue offset of model[0]
        self.model: list[Entry] = []
        self.reopen()
        if start:
            entry = self._next(100, 0, 5)
            assert self.queue.append_at(start, *entry)
            self.model.append(entry)

    def reopen(self) -> None:
        self.queues = open_queues(self.root, open_files_max=2)
        self.queue = self.queues.get_or_create("orders", 0)

    def _next(self, size: int, skip: int, tags_code: int) -> Entry:
        """The next record of the log for this queue; `skip` bytes of others come before it."""
        entry = self.log_end + skip, size, tags_code
        self.log_end += skip + size
        return entry

    @property
    def end(self) -> int:
        return self.first + len(self.model)

    @rule(size=sizes, skip=skips, tags_code=tags)
    def append(self, size: int, skip: int, tags_code: int) -> None:
        entry = self._next(size, skip, tags_code)
        assert self.queue.append(*entry) == self.end
        self.model.append(entry)

    @rule(size=sizes, skip=skips, count=st.integers(1, 35))
    def append_batch(self, size: int, skip: int, count: int) -> None:
        batch = [self._next(size, skip, number) for number in range(count)]
        packed = b"".join(ENTRY.pack(*entry) for entry in batch)
        assert self.queue.append_packed(packed, count) == self.end
        self.model += batch

    @rule(size=sizes, skip=skips)
    def append_from_log(self, size: int, skip: int) -> None:
        entry = self._next(size, skip, 9)
        assert self.queue.append_at(self.end, *entry)
        self.model.append(entry)

    @rule()
    def dispatch_again(self) -> None:
        for number, entry in enumerate(self.model):
            if entry[0] >= self.log_min:
                assert not self.queue.append_at(self.first + number, *entry)

    @rule()
    def write(self) -> None:
        self.queues.write_dirty()

    @rule()
    def restart(self) -> None:
        self.write()
        self.queues.close()
        self.reopen()
        self.queue.drop_before(self.log_min)

    @rule()
    def crash_and_dispatch_again(self) -> None:
        self.queues.close()
        self.reopen()
        for number, entry in enumerate(self.model):
            if entry[0] >= self.log_min:
                self.queue.append_at(self.first + number, *entry)
        self.queue.drop_before(self.log_min)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        low = max(self.log_min, self.model[0][0] + self.model[0][1])  # the queue's first record stays
        self.log_end = data.draw(st.integers(low, max(low, self.log_end)))
        self.queue.truncate(self.log_end)
        self.model = [entry for entry in self.model if entry[0] + entry[1] <= self.log_end]

    @rule(data=st.data())
    def drop_before(self, data: st.DataObject) -> None:
        """A file of the log goes, which is older than what a tick has not written yet."""
        begins = [physical for physical, _, _ in self.model if physical > self.log_min]
        self.log_min = data.draw(st.sampled_from([self.log_min, *begins, self.log_end]))
        self.write()
        self.queue.drop_before(self.log_min)
        assert all(base + PER_FILE > self.queue.min_offset for base in file_names(self.root)[:-1])

    @invariant()
    def the_same_is_there(self) -> None:
        dropped = sum(physical < self.log_min for physical, _, _ in self.model)
        assert self.queue.max_offset == self.end
        assert self.queue.min_offset == self.first + dropped
        if dropped < len(self.model):
            assert self.queue.max_physical == sum(self.model[-1][:2])
        found = ENTRY.iter_unpack(self.queue.entries(self.queue.min_offset, len(self.model) + 5))
        assert list(found) == self.model[dropped:]

    @invariant()
    def files_follow_each_other_up_to_the_end(self) -> None:
        bases = file_names(self.root)
        assert bases == list(range(bases[0], bases[-1] + 1, PER_FILE)) if bases else True
        assert all(base < self.queue.max_offset for base in bases[1:])

    def teardown(self) -> None:
        close_queues()
        self._directory.cleanup()


QueueMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
test_any_sequence_of_steps_agrees_with_a_list = QueueMachine.TestCase
