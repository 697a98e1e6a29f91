"""Real state machines that talk through both ends of their connections, in bytes, under random faults: it ends with
equal logs, and no invariant of the group is broken. On the simulated world of tests/simulation."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import pytest

from ariane.replication.frames import Report, classic_report, native_report
from ariane.replication.group import effects as do
from ariane.replication.group import events as on
from ariane.replication.group.link.follower_end import FollowerEnd
from ariane.replication.group.link.introduction import GroupMember
from ariane.replication.group.link.leader_end import LeaderEnd
from ariane.replication.group.link.outbox import StateOutbox
from tests.replication.group.link.ends import SECRET
from tests.replication.group.link.test_state import EVERYTHING
from tests.simulation.group_world import Link, Node, Odds, Result, Unit, World, run

FILE_SIZE = 7
"""Small: so frames are cut at the ends of files."""


def as_bytes(units: list[Unit]) -> bytes:
    """A unit is a byte of the log. Which unit it is travels beside (`Wire.units`)."""
    return bytes(crc32(repr(unit).encode()) & 0xFF for unit in units)


@dataclass
class Wire:
    """Both ends of a connection, and the bytes on the way: in order, and lost only when it breaks."""

    leader: LeaderEnd
    follower: FollowerEnd
    outbox: StateOutbox = field(default_factory=StateOutbox)
    units: deque[Unit] = field(default_factory=deque)
    queues: dict[bool, deque[tuple[float, bytes]]] = field(default_factory=lambda: {True: deque(), False: deque()})
    closed: list[str] = field(default_factory=list)


class WireWorld(World):
    """The events between members are bytes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.wires: dict[int, Wire] = {}
        """By the master's number of the connection."""

    def _member(self, node: Node) -> GroupMember:
        return GroupMember(
            cluster="c",
            group="b",
            file_size=FILE_SIZE,
            member=node.number,
            incarnation=node.run,
            store_id=node.disk.store_id,
            sync_flush=self.settings.sync_flush,
        )

    def send(self, link: Link, *, to_master: bool, event: on.Event, body: list[Unit] | None = None) -> None:
        match event:
            case on.HelloArrived():
                self._introduce(link, event)
            case on.Acked(_, epoch, end):
                wire = self.wires[link.master_link]
                self._put(link, to_master=True, data=wire.follower.report(do.Report(link.slave_link, epoch, end), 0))
            case on.FrameArrived():
                assert body is not None
                wire = self.wires[link.master_link]
                wire.units.extend(body)
                frames = wire.leader.data(as_bytes(body), event.confirmed)
                self._put(link, to_master=False, data=frames or wire.leader.heartbeat(event.confirmed))
            case _:
                raise AssertionError(f"{event} does not travel")

    def _introduce(self, link: Link, event: on.HelloArrived) -> None:
        slave = link.slave.group
        assert slave is not None
        assert slave.record is not None
        connect = do.Connect(link.slave_link, "", event.epoch, event.begin, event.end, event.epochs)
        follower = FollowerEnd(connect, self._member(link.slave), slave.record.master.incarnation, SECRET)
        wire = Wire(LeaderEnd(link.master_link, self._member(link.master), SECRET), follower)
        self.wires[link.master_link] = wire
        self._put(link, to_master=True, data=follower.begin())

    def welcome(self, master: Node, effect: do.Welcome) -> None:
        link = master.links.get(effect.link)
        if link is None:
            return
        wire = self.wires[link.master_link]
        data = wire.leader.welcome(effect)
        if effect.stream_from is not None:
            link.stream_from = link.sent = effect.stream_from
            data += wire.leader.state(wire.outbox.full(EVERYTHING, effect.stream_from), 0)
        self._put(link, to_master=False, data=data)
        if effect.stream_from is not None:
            self.later(0, lambda: self.stream(master))
            self._heartbeat(link)

    def _put(self, link: Link, *, to_master: bool, data: bytes) -> None:
        """In pieces, each after a moment."""
        if not link.is_open:
            return
        while data:
            size = self.rng.choice((1, 7, 24, 100, 100_000))
            moment = link.last[to_master] = max(link.last[to_master], self.now + self.delay())
            self.wires[link.master_link].queues[to_master].append((moment, data[:size]))
            data = data[size:]
        self.at(link.last[to_master], lambda: self._arrive(link, to_master))

    def _arrive(self, link: Link, to_master: bool) -> None:
        sender, receiver = (link.slave, link.master) if to_master else (link.master, link.slave)
        run = link.master_run if to_master else link.slave_run
        if self.is_cut(sender, receiver) or not receiver.is_up or receiver.run != run:
            return  # after a cut it arrives with what follows
        if receiver.is_paused:
            self.at(receiver.paused_until, lambda: self._arrive(link, to_master))
            return
        queue = self.wires[link.master_link].queues[to_master]
        while queue and queue[0][0] <= self.now:
            _, piece = queue.popleft()
            if to_master:
                self._to_master(link, piece)
            elif link.is_open:  # a master may still find a report in its buffer
                self._to_slave(link, piece)

    def _to_master(self, link: Link, piece: bytes) -> None:
        wire = self.wires[link.master_link]
        received = wire.leader.feed(piece)
        self._put(link, to_master=False, data=received.send)
        for event in received.events:
            link.master.feed(event, link.master_run)
        self._closed(link, received.closed)

    def _to_slave(self, link: Link, piece: bytes) -> None:
        wire = self.wires[link.master_link]
        while piece:
            room = wire.follower.get_buffer()
            count = min(len(room), len(piece))
            room[:count], piece = piece[:count], piece[count:]
            arrivals, send, closed = wire.follower.buffer_updated(count)
            self._put(link, to_master=True, data=send)
            for event, body in arrivals:
                self.body = [wire.units.popleft() for _ in body]
                assert as_bytes(self.body) == body
                link.slave.feed(event, link.slave_run)
            change = wire.follower.inbox.take(len(link.slave.disk.units))
            if change is not None:
                assert change.change == EVERYTHING
                self._put(link, to_master=True, data=wire.follower.state_applied(change.number, 0))
            if closed is not None:
                self._closed(link, closed)
                return

    def _closed(self, link: Link, why: str | None) -> None:
        if why is not None:
            self.wires[link.master_link].closed.append(why)
            self.end(link)

    def _forge(self) -> None:
        """A stranger on the replication port: its end of the connection answers and acknowledges nothing."""
        node = self._victim()
        end = len(node.disk.units)
        for data in (classic_report(end), native_report(Report(end, end, 1)), bytes(24)):
            number = next(self._links)
            received = LeaderEnd(number, self._member(node), SECRET).feed(data)
            assert received.closed is not None
            assert (received.events, received.send) == ([on.LinkClosed(number)], b"")
            for event in received.events:
                node.feed(event)


def results_of(seeds: range, members: int = 3) -> list[Result]:
    return [run(seed, members=members, kind=WireWorld) for seed in seeds]


@pytest.mark.parametrize("part", range(4))
def test_a_group_that_talks_in_bytes_keeps_every_invariant_and_ends_with_equal_logs(part: int) -> None:
    results = results_of(range(part, 60, 4))
    assert sum(result.acks for result in results) > 100 * len(results)
    assert sum(result.elections for result in results) > len(results)
    assert sum(result.goes_on for result in results) > len(results) / 2


def test_a_group_of_two_does_so_too() -> None:
    assert sum(result.acks for result in results_of(range(10), members=2)) > 1_000


def test_a_group_without_faults_never_closes_a_connection_and_applies_what_is_beside_the_log() -> None:
    world = WireWorld(1, odds=Odds())
    world.start()
    world.run_until(10)
    world.has_producers = False
    world.run_until(12)
    assert world.check_quiet()
    wires = [wire for wire in world.wires.values() if wire.leader.is_streaming]
    assert len(wires) == 2
    for wire in wires:
        assert wire.closed == []
        assert wire.leader.states_applied == wire.leader.states_sent == 1
