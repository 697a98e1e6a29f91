"""What still waits, as numbers: compared with a list that remembers everything, and made again from the queues."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ariane.broker.transactions.half_messages import ended_offsets, op_message
from ariane.broker.transactions.pending import PendingHalfMessages
from ariane.model.system_topics import TRANS_OP
from ariane.wire.properties import decode_properties, encode_properties
from ariane.wire.record.layout import pack_record
from ariane.wire.record.read import RecordView, verify
from tests.store.stores import HOST


@dataclass
class Entry:
    """A half message in its queue."""

    first: int
    is_open: bool = True


@dataclass
class Queues:
    pending: list[Entry] = field(default_factory=list)
    ops: list[int] = field(default_factory=list)

    def open(self) -> list[int]:
        return [offset for offset, entry in enumerate(self.pending) if entry.is_open]

    def rebuilt(self, first_open: int, first_op: int) -> PendingHalfMessages:
        """As a broker makes it at its start, from progress that may be old."""
        made = PendingHalfMessages(first_open, first_op)
        for op_offset, half_offset in list(enumerate(self.ops))[first_op:]:
            made.op_written(op_offset, [half_offset])
        for offset, entry in list(enumerate(self.pending))[first_open:]:
            if entry.first != offset:
                was_open = made.is_open(offset)
                made.copied(entry.first, offset)
                if not was_open:
                    made.ended(entry.first)
        return made


class Waiting(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queues = Queues()
        self.live = PendingHalfMessages()
        self.saved = [(0, 0)]

    @rule()
    def send(self) -> None:
        self.queues.pending.append(Entry(len(self.queues.pending)))

    @precondition(lambda self: self.queues.open())
    @rule(data=st.data())
    def copy(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(self.queues.open()))
        entry = self.queues.pending[offset]
        entry.is_open = False
        self.queues.pending.append(Entry(entry.first))
        self.live.copied(entry.first, len(self.queues.pending) - 1)

    @precondition(lambda self: self.queues.open())
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(self.queues.open()))
        entry = self.queues.pending[offset]
        assert self.live.newest(entry.first) == offset
        entry.is_open = False
        self.queues.ops.append(offset)
        self.live.op_written(len(self.queues.ops) - 1, [offset])
        self.live.ended(entry.first)

    @rule()
    def save(self) -> None:
        self.saved.append((self.live.first_open, self.live.first_op))

    @invariant()
    def agrees_with_the_queues(self) -> None:
        pending = self.queues.pending
        assert [offset for offset in range(len(pending)) if self.live.is_open(offset)] == self.queues.open()
        for entry in pending:
            copies = [at for at, other in enumerate(pending) if other.first == entry.first and other.is_open]
            assert self.live.newest(entry.first) == (copies[0] if copies else None)

    @invariant()
    def is_the_same_after_a_restart_from_any_saved_progress(self) -> None:
        end = len(self.queues.pending)
        for first_open, first_op in self.saved:
            made = self.queues.rebuilt(first_open, first_op)
            assert [offset for offset in range(end) if made.is_open(offset)] == self.queues.open()

    @invariant()
    def keeps_nothing_of_what_is_over_at_the_front(self) -> None:
        if not self.queues.open():
            assert self.live.first_open == len(self.queues.pending)
            assert self.live.first_op == len(self.queues.ops)
            assert len(self.live) == 0

    @invariant()
    def walks_from_open_to_open(self) -> None:
        found, offset = [], self.live.next_open(0, len(self.queues.pending))
        while offset is not None:
            found.append(offset)
            offset = self.live.next_open(offset + 1, len(self.queues.pending))
        assert found == self.queues.open()


TestWaiting = Waiting.TestCase
TestWaiting.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_what_was_deleted_with_its_file_waits_no_more() -> None:
    waiting = PendingHalfMessages()
    waiting.copied(first=0, copy=4)
    waiting.copied(first=1, copy=7)
    waiting.over(5)
    waiting.skip_to(5)
    assert waiting.first_open == 6
    assert waiting.newest(0) is None
    assert waiting.newest(1) == 7
    waiting.skip_to(2)
    assert waiting.first_open == 6


# --- op messages


def _stored(body: bytes, tags: str = "d") -> tuple[RecordView, memoryview]:
    record = pack_record(
        topic=TRANS_OP.encode(),
        body=body,
        properties=encode_properties({"TAGS": tags}),
        queue_id=0,
        flag=0,
        queue_offset=0,
        physical_offset=0,
        sys_flag=0,
        born_timestamp_ms=0,
        born_host=HOST,
        store_timestamp_ms=0,
        store_host=HOST,
    )
    view = verify(record)
    assert isinstance(view, RecordView)
    return view, memoryview(record)


def test_our_op_message_reads_as_apaches() -> None:
    message = op_message(4711, now_ms=5, own_host=HOST)
    assert (message.topic, message.queue_id, message.body) == (TRANS_OP, 0, b"4711")
    assert decode_properties(message.properties) == {"TAGS": "d"}
    assert ended_offsets(*_stored(message.body)) == [4711]


def test_op_messages_of_a_5x_broker_end_several() -> None:
    assert ended_offsets(*_stored(b"1,2,30,")) == [1, 2, 30]


def test_an_op_message_that_says_nothing_ends_nothing() -> None:
    for body in (b"", b"x", b"-1", b"1" * 40, b"\xff,,"):
        assert ended_offsets(*_stored(body)) == []
    assert ended_offsets(*_stored(b"1", tags="other")) == []
