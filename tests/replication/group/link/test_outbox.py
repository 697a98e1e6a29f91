"""What changed beside the log is gathered for a moment, and numbered."""

from ariane.replication.group.link.outbox import GATHER_S, StateBatch, StateOutbox
from ariane.replication.group.link.state import Change, OffsetLine, StateChange, StateDecoder, TimerState
from tests.replication.group.link.test_state import EVERYTHING, groups, topics


class Slave:
    def __init__(self) -> None:
        self._decoder = StateDecoder()

    def takes(self, batch: StateBatch | None) -> Change:
        assert batch is not None
        changes = [self._decoder.feed(body) for body in batch.bodies]
        assert changes[-1] is not None
        assert changes[-1].number == batch.number
        return changes[-1]


def test_offsets_wait_for_more_and_only_the_newest_of_a_queue_is_sent() -> None:
    outbox, slave = StateOutbox(), Slave()
    assert slave.takes(outbox.full(EVERYTHING, 100)) == Change(1, 100, EVERYTHING)
    assert outbox.due_at is None
    assert outbox.take(50.0) is None, "nothing has changed"
    for number in range(1_000):
        outbox.put_offset(OffsetLine("orders@billing", number % 2, number), 200 + number, 50.0 + number / 100_000)
    assert outbox.due_at == 50.0 + GATHER_S
    assert outbox.take(50.0 + GATHER_S / 2) is None
    lines = (OffsetLine("orders@billing", 0, 998), OffsetLine("orders@billing", 1, 999))
    assert slave.takes(outbox.take(50.0 + GATHER_S)) == Change(2, 1_199, StateChange(offsets=lines))
    assert outbox.due_at is None


def test_a_table_is_due_at_once_and_takes_along_what_was_gathered() -> None:
    outbox, slave = StateOutbox(), Slave()
    slave.takes(outbox.full(EVERYTHING, 0))
    outbox.put_delays({3: 9}, 500, 1.0)
    outbox.put_timer(TimerState(1, 2, 3), 400, 1.0)
    assert outbox.put_topics(topics("a"), 100, 1.01) == 2
    assert outbox.put_groups(groups("g"), 100, 1.01) == 2
    assert outbox.due_at == 1.01
    expected = StateChange(topics("a"), groups("g"), delays={3: 9}, timer=TimerState(1, 2, 3))
    assert slave.takes(outbox.take(1.01)) == Change(2, 500, expected)


def test_a_slave_that_has_a_number_has_what_was_put_before() -> None:
    """A new slave gets everything in between: that has the change already."""
    outbox, old, new = StateOutbox(), Slave(), Slave()
    old.takes(outbox.full(EVERYTHING, 0))
    number = outbox.put_topics(topics("a"), 0, 1.0)
    with_it = EVERYTHING.then(StateChange(topics("a")))
    first = new.takes(outbox.full(with_it, 0))
    assert first.number >= number
    assert first.change.topics == topics("a")
    batch = outbox.take(1.0)
    for slave in (old, new):
        change = slave.takes(batch)
        assert change.number >= number
        assert change.change.topics == topics("a")
