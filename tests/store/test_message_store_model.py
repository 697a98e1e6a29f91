"""A store against a list, through appends, syncs, rolls, deletions, crashes of the process and cuts of the power."""

import random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ariane.store.append.draft import Appended
from ariane.testing import FakeClock
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.block_checksums import check_block_checksums, is_covered
from tests.store.stores import bodies, draft, entries, opened, put, records

TOPICS = ("orders", "payments")
QUEUES = (0, 1)


class StoreMachine(RuleBasedStateMachine):
    """`written` is what was appended, in order; `durable` how many of them were acknowledged as durable."""

    @initialize()
    def begin(self) -> None:
        self.clock = FakeClock()
        self.disk = SimulatedDisk(self.clock)
        self.store = opened(self.disk, self.clock)
        self.written: list[tuple[Appended, str, int, bytes, str]] = []
        self.durable = 0
        self.dropped_below = 0
        self.boot = 1
        self.number = 0

    def _drafts(self, sizes: list[int], topic: str, queue_id: int) -> list[tuple[bytes, str]]:
        made = []
        for size in sizes:
            self.number += 1
            made.append((f"{self.number}:".encode() + bytes(size), f"key{self.number}"))
        return made

    @rule(
        sizes=st.lists(st.integers(0, 1500), min_size=1, max_size=6),
        topic=st.sampled_from(TOPICS),
        queue_id=st.sampled_from(QUEUES),
        together=st.booleans(),
    )
    def append(self, sizes: list[int], topic: str, queue_id: int, together: bool) -> None:
        made = self._drafts(sizes, topic, queue_id)
        drafts = [draft(body, topic, queue_id, key=key) for body, key in made]
        outcomes = self.store.append_together(drafts) if together else self.store.append(drafts)
        if together and not all(isinstance(outcome, Appended) for outcome in outcomes):
            assert sum(sizes) > 6000  # a batch larger than a file is refused as a whole
            return
        for outcome, (body, key) in zip(outcomes, made, strict=True):
            assert isinstance(outcome, Appended)
            self.written.append((outcome, topic, queue_id, body, key))

    @rule(seconds=st.floats(0, 5))
    def time_passes(self, seconds: float) -> None:
        self.clock._elapsed_s += seconds

    @rule()
    def sync_log(self) -> None:
        flusher = self.store.flusher
        flusher.flushed(flusher.sync_now())
        self.durable = len(self.written)

    @rule()
    def write_derived(self) -> None:
        self.store.derived.write()

    @rule()
    def checkpoint(self) -> None:
        self.store.make_durable()
        self.durable = len(self.written)

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.durable = len(self.written)
        assert is_covered(self.disk, self.store.components.commit_log.max_offset)
        self._reopen(self.disk)
        assert self._survivors() == len(self.written)

    @rule()
    def kill_the_process(self) -> None:
        self._reopen(self.disk.crash_process())
        assert self._survivors() == len(self.written)
        self.durable = len(self.written)

    @rule(seed=st.integers(0, 2**32))
    def cut_the_power(self, seed: int) -> None:
        self.boot += 1
        self._reopen(self.disk.cut_power(random.Random(seed)))
        survivors = self._survivors()
        assert survivors >= self.durable, "an acknowledged message is lost"
        del self.written[survivors:]
        self.durable = survivors

    @precondition(lambda self: len(self.store.components.commit_log.segments) > 2)
    @rule()
    def delete_the_oldest_file(self) -> None:
        self.clock._elapsed_s += 73 * 3600
        cleaned = self.store.clean(manual=True)
        self.dropped_below = cleaned.min_offset

    def _reopen(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.store = opened(disk, self.clock, boot=f"boot-{self.boot}")

    def _survivors(self) -> int:
        end = self.store.components.commit_log.max_offset
        return sum(1 for appended, *_ in self.written if appended.end <= end)

    def _alive(self) -> list[tuple[Appended, str, int, bytes, str]]:
        return [item for item in self.written if item[0].physical_offset >= self.dropped_below]

    @invariant()
    def the_log_holds_what_was_written_and_nothing_else(self) -> None:
        alive = self._alive()
        found = [(view.physical_offset, view.queue_offset, view.size) for view in records(self.store)]
        assert found == [(item[0].physical_offset, item[0].queue_offset, item[0].size) for item in alive]

    @invariant()
    def queues_are_what_a_rebuild_would_give(self) -> None:
        for topic in TOPICS:
            for queue_id in QUEUES:
                mine = [item for item in self._alive() if item[1:3] == (topic, queue_id)]
                queue = self.store.components.queues.get(topic, queue_id)
                if queue is None:
                    assert not mine
                    continue
                places = [(entry[0], entry[1]) for entry in entries(queue)]
                assert places == [(item[0].physical_offset, item[0].size) for item in mine]
                assert [item[0].queue_offset for item in mine] == list(range(queue.min_offset, queue.max_offset))
                assert bodies(self.store, topic, queue_id) == [item[3] for item in mine]

    @invariant()
    def every_message_is_found_by_its_key_its_place_and_its_time(self) -> None:
        self.store.components.dispatcher.write_index()
        for appended, topic, queue_id, _, key in self._alive()[-5:]:
            (record,) = self.store.lookup.by_key(topic, key, 10, 0, 2**62)
            assert bytes(record) == bytes(self.store.lookup.record_at(appended.physical_offset) or b"")
            found = self.store.lookup.offset_by_time(topic, queue_id, appended.store_timestamp_ms)
            assert found <= appended.queue_offset

    @rule()
    def sum_whole_blocks(self) -> None:
        self.store.extend_checksums(self.store.flusher.flushed_to)

    @invariant()
    def every_block_sum_is_right(self) -> None:
        assert check_block_checksums(self.disk).faults == []

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=150, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_a_message_outlives_its_process() -> None:
    disk = SimulatedDisk()
    (appended,) = put(opened(disk), draft(b"hello", key="k"))
    again = opened(disk.crash_process())
    assert bodies(again, "orders", 0) == [b"hello"]
    assert again.components.commit_log.max_offset == appended.end
