"""Both ends of a connection, one behind the other, over a pipe that cuts bytes anywhere and breaks: log and tables of
the slave end as the master's, and never say more than the slave's log has."""

from hypothesis import given
from hypothesis import strategies as st

from ariane.replication.epochs import EpochMap
from ariane.replication.group import effects as do
from ariane.replication.group import events as on
from ariane.replication.group.link.follower_end import FollowerEnd
from ariane.replication.group.link.leader_end import LeaderEnd
from ariane.replication.group.link.outbox import StateOutbox
from ariane.replication.group.link.state import OffsetLine, StateChange
from tests.replication.group.link.ends import MASTER, SECRET, SLAVE, received_by
from tests.replication.group.link.test_state import applied, groups, topics

EPOCHS = EpochMap.of(((1, 0),))
PAIRS = ("a@g", "b@g")


class Connected:
    """A master and its slave. An offset that is committed is the end of the master's log then."""

    def __init__(self) -> None:
        self.master_log, self.slave_log = bytearray(b"epoch"), bytearray()
        self.dispatched = 0
        self.changes: list[StateChange] = []
        self.table: dict[str, dict[int, int]] = {}
        self.outbox = StateOutbox()
        self.now = 0.0
        self.acked = 0
        self.link = 0
        self.connect()

    def connect(self) -> None:
        """What was on the way is lost."""
        self.link += 1
        self.to_slave, self.to_master = b"", b""
        end = len(self.slave_log)
        connect = do.Connect(self.link, "", 1, 0, end, EPOCHS.truncate_to(end))
        self.leader = LeaderEnd(self.link, MASTER, SECRET)
        self.follower = FollowerEnd(connect, SLAVE, MASTER.incarnation, SECRET)
        self.to_master = self.follower.begin()

    def append(self, body: bytes) -> None:
        self.master_log += body
        self.pump()

    def pump(self) -> None:
        if self.leader.is_streaming:
            self.to_slave += self.leader.data(bytes(self.master_log[self.leader.sent_to :]), self.acked)

    def commit(self, pair: str, *, is_deletion: bool) -> None:
        line = OffsetLine(pair, None, 0) if is_deletion else OffsetLine(pair, 0, len(self.master_log))
        self.table = applied(StateChange(offsets=self.lines(), is_full=True), StateChange(offsets=(line,)))
        self.outbox.put_offset(line, len(self.master_log), self.now)

    def lines(self) -> tuple[OffsetLine, ...]:
        return tuple(OffsetLine(pair, *one) for pair, queues in self.table.items() for one in queues.items())

    def gather(self) -> None:
        self.now += 0.05
        batch = self.outbox.take(self.now)
        if batch is not None:
            self.to_slave += self.leader.state(batch, self.acked)

    def deliver(self, size: int) -> None:
        """A piece in each direction."""
        piece, self.to_master = self.to_master[:size], self.to_master[size:]
        received = self.leader.feed(piece)
        assert received.closed is None
        self.to_slave += received.send
        for event in received.events:
            match event:
                case on.HelloArrived():
                    effect = do.Welcome(self.link, 1, 0, len(self.master_log), EPOCHS, event.end)
                    everything = StateChange(topics("a", "b"), groups("g"), self.lines(), is_full=True)
                    self.to_slave += self.leader.welcome(effect)
                    self.to_slave += self.leader.state(self.outbox.full(everything, len(self.master_log)), self.acked)
                    self.pump()
                case on.Acked(_, _, end):
                    assert end <= len(self.slave_log)
                    self.acked = max(self.acked, end)
        piece, self.to_slave = self.to_slave[:size], self.to_slave[size:]
        arrivals, send, closed = received_by(self.follower, piece)
        assert closed is None
        self.to_master += send
        for event, body in arrivals:
            if isinstance(event, on.FrameArrived):
                self.slave_log += body
                self.to_master += self.follower.report(do.Report(self.link, 1, len(self.slave_log)), self.dispatched)

    def dispatch(self, size: int) -> None:
        self.dispatched = min(self.dispatched + size, len(self.slave_log))
        change = self.follower.inbox.take(self.dispatched)
        if change is not None:
            self.changes.append(change.change)
            assert all(line.offset <= self.dispatched for line in change.change.offsets), "it is in our log"
            self.to_master += self.follower.state_applied(change.number, self.dispatched)

    def finish(self) -> None:
        while self.to_master or self.to_slave or self.outbox.due_at is not None or self.follower.inbox:
            self.gather()
            self.deliver(1_000)
            self.dispatch(1_000)


sizes = st.integers(1, 400)
steps = st.lists(
    st.tuples(st.just("append"), st.binary(min_size=1, max_size=300))
    | st.tuples(st.just("commit"), st.sampled_from(PAIRS))
    | st.tuples(st.just("delete"), st.sampled_from(PAIRS))
    | st.tuples(st.just("deliver"), sizes)
    | st.tuples(st.just("dispatch"), sizes)
    | st.tuples(st.just("gather"), st.none())
    | st.tuples(st.just("break"), st.none()),
    max_size=60,
)


@given(steps)
def test_log_and_tables_of_the_slave_end_as_the_masters(steps: list[tuple[str, object]]) -> None:
    both = Connected()
    for step in steps:
        match step:
            case "append", bytes(body):
                both.append(body)
            case "commit" | "delete" as what, str(pair):
                both.commit(pair, is_deletion=what == "delete")
            case "deliver", int(size):
                both.deliver(size)
            case "dispatch", int(size):
                both.dispatch(size)
            case "gather", _:
                both.gather()
            case _:
                both.connect()
    both.finish()
    assert both.slave_log == both.master_log
    assert both.acked == len(both.master_log)
    assert applied(*both.changes) == both.table
    assert both.leader.states_applied == both.leader.states_sent > 0
