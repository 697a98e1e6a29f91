"""A simulated group: the real state machine of each member, on a simulated network, clock, disk and metadata store.

One seed decides everything. A log is a list of units; a record has one to three of them, so that frames, crashes and
reports can end inside of a record. After every event the invariants are checked (`Watcher`):

    I1  an epoch has one master, and epochs rise
    I2  a unit follows the same unit in every log: logs that have it are the same below it
    I3  every member that could be elected has everything that was confirmed
    I4  what was confirmed at an offset never changes; an acknowledged send is what stands there
    I5  what a master has confirmed never goes back
    I7  after quiet, all logs are the same and all members are in sync (I6 is the store's)
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from ariane.errors import MetaError, MetaLeaseGone
from ariane.replication.epochs import EpochMap
from ariane.replication.group import effects as do
from ariane.replication.group import events as on
from ariane.replication.group.machine import Group
from ariane.replication.group.rules import ALL_RULES, GroupSettings, Rules
from ariane.replication.group.snapshots import snapshot_of
from ariane.replication.group.state import State
from ariane.replication.meta import Lease, Put, Transaction
from ariane.replication.meta.memory import MemoryStore
from ariane.replication.progress import AckWaiters
from ariane.replication.record import GroupKeys, GroupRecord, MemberRecord, Order

KEYS = GroupKeys("sim", "group")
CALL_S = 0.8


class Breach(AssertionError):
    """An invariant does not hold."""


class Unit(NamedTuple):
    epoch: int
    number: int
    """Of the record; 0 is the first record of the epoch."""
    part: int
    parts: int


@dataclass
class Odds:
    """Of a run: how often what happens, per second. A seed switches most of them off: mixes find more than averages."""

    kill: float = 0.0
    power: float = 0.0
    pause: float = 0.0
    cut: float = 0.0
    cut_meta: float = 0.0
    break_link: float = 0.0
    forge: float = 0.0
    meta_leader: float = 0.0
    switch: float = 0.0
    lose_call: float = 0.0
    """A part of the calls to the metadata store: request or answer."""
    late_call: float = 0.0
    after_swap: float = 0.0
    """How often a change of the record is followed at once by a fault: the moments that matter are rare otherwise."""
    slow: float = 0.002
    """Most seconds that a message takes."""
    writes: float = 20.0

    @classmethod
    def swarm(cls, rng: random.Random) -> "Odds":
        def maybe(most: float) -> float:
            return rng.random() * most if rng.random() < 0.5 else 0.0

        return cls(
            kill=maybe(1.0),
            power=maybe(1.0),
            pause=maybe(0.5),
            cut=maybe(0.8),
            cut_meta=maybe(0.5),
            break_link=maybe(1.0),
            forge=maybe(3.0),
            meta_leader=maybe(0.1),
            switch=maybe(0.3),
            lose_call=maybe(0.4),
            late_call=maybe(0.8),
            after_swap=maybe(0.8),
            slow=rng.choice((0.002, 0.02, 0.2, 0.6)),
            writes=rng.choice((5.0, 20.0, 40.0)),
        )


class Disk:
    """What a machine keeps of a member: units, how many of them are durable, marks."""

    def __init__(self, store_id: str) -> None:
        self.store_id = store_id
        self.units: list[Unit] = []
        self.synced = 0
        self.boot = 0
        self.opened_in_boot = 0
        self.mark = False
        self.truncate_to: int | None = None
        self.agrees_to = 0
        """How much of it is equal to what was confirmed; kept by the watcher."""

    def cut(self, end: int) -> None:
        del self.units[end:]
        self.synced = min(self.synced, end)
        self.agrees_to = min(self.agrees_to, end)

    def whole_end(self, end: int | None = None) -> int:
        """The last boundary of records at or before `end`."""
        end = len(self.units) if end is None else end
        while end and self.units[end - 1].part + 1 < self.units[end - 1].parts:
            end -= 1
        return end

    def epochs(self) -> EpochMap:
        return EpochMap.of((unit.epoch, at) for at, unit in enumerate(self.units) if unit.number == 0)

    def open(self, *, sync_flush: bool) -> on.Opened:
        """As a start of the store: finishes a truncation, cuts what is no whole record, sees what may be lost."""
        if self.truncate_to is not None:
            self.cut(self.truncate_to)
            self.truncate_to = None
        self.cut(self.whole_end())
        if self.boot != self.opened_in_boot and not sync_flush:
            self.mark = True
        self.opened_in_boot = self.boot
        if self.boot_is_durable:
            self.synced = len(self.units)
        return on.Opened(0, len(self.units), self.synced, self.epochs(), not self.mark)

    boot_is_durable = True
    """Recovery ends with a sync, as the store's does."""

    def cut_power(self, rng: random.Random) -> None:
        keep = rng.choice((self.synced, rng.randint(self.synced, len(self.units)), len(self.units)))
        self.cut(keep)
        self.boot += 1


@dataclass
class Link:
    """A connection: one number at each end."""

    slave: "Node"
    master: "Node"
    slave_link: int
    master_link: int
    slave_run: str
    master_run: str
    last: dict[bool, float] = field(default_factory=lambda: {True: 0.0, False: 0.0})
    is_open: bool = True
    stream_from: int | None = None
    sent: int = 0


class Node:
    """A machine with a member on it, and the process if it runs."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.number = number
        self.disk = Disk(f"disk-{number}")
        self.runs = 0
        self.group: Group | None = None
        self.paused_until = 0.0
        self.links: dict[int, Link] = {}
        self.slave_link: Link | None = None
        self.can_write = False
        self.waiters: AckWaiters[tuple[int, Unit]] = AckWaiters()
        self.kept: list[tuple[on.Event, str]] = []
        self.generation = 0

    @property
    def run(self) -> str:
        return f"{self.number}-{self.runs}"

    @property
    def is_up(self) -> bool:
        return self.group is not None

    @property
    def is_paused(self) -> bool:
        return self.world.now < self.paused_until

    # --- the process ---

    def start(self) -> None:
        world = self.world
        self.runs += 1
        self.generation += 1
        record = MemberRecord(
            id=self.number,
            incarnation=self.run,
            store_id=self.disk.store_id,
            address=f"n{self.number}:1",
            ha=f"n{self.number}:2",
        )
        self.group = Group(record, KEYS, world.settings, world.rules)
        self.paused_until = 0.0
        self.can_write = False
        self.waiters = AckWaiters()
        self.feed(self.disk.open(sync_flush=world.settings.sync_flush))
        self._tick(self.run)

    def crash(self, *, power: bool = False) -> None:
        self.group = None
        self.generation += 1
        self.can_write = False
        self.slave_link = None
        self.waiters = AckWaiters()
        if power:
            self.disk.cut_power(self.world.rng)
        self.world.links_end(self)

    def _tick(self, run: str) -> None:
        if self.is_up and self.run == run:
            self.world.later(0.1, lambda: self._tick(run))
            self.feed(on.Tick())

    def feed(self, event: on.Event, run: str | None = None) -> None:
        """Gives the machine an event, unless its process is another one by now; after a pause, if it is paused."""
        if self.group is None or (run is not None and run != self.run):
            return
        if self.is_paused:
            this = self.run
            if not isinstance(event, on.Tick):
                self.world.at(self.paused_until, lambda: self.feed(event, this))
            return
        if not isinstance(event, on.Tick) and self.world.trace is not None:
            self.world.trace.append(f"{self.world.now:8.3f} {self.run} <- {event}")
        before = self.group.confirmed if self.group.leader is not None else -1
        for effect in self.group.handle(event, self.world.now):
            if self.world.trace is not None:
                self.world.trace.append(f"{self.world.now:8.3f} {self.run} -> {effect}")
            self._do(effect)
            if self.world.after_effect is not None:
                self.world.after_effect(self, effect)
                if self.group is None:
                    return
        if self.group is not None and self.group.leader is not None and before >= 0 and self.group.confirmed < before:
            raise Breach(f"I5: member {self.number} had confirmed {before}, now {self.group.confirmed}")

    # --- effects ---

    def _do(self, effect: do.Effect) -> None:
        world, group, run = self.world, self.group, self.run
        assert group is not None
        match effect:
            case do.Read():
                world.read(self)
            case do.Grant(ttl_s):
                sent_at = world.now

                def granted(lease: Lease) -> on.Event:
                    return on.LeaseGranted(lease.id, lease.ttl_s, sent_at)

                world.call(self, lambda: granted(world.meta.grant(ttl_s, world.now)))
            case do.KeepAlive(lease):
                world.call(self, lambda sent_at=world.now: world.keep_alive(lease, sent_at))  # type: ignore[misc]
            case do.Revoke(lease):
                world.call(self, lambda: world.meta.revoke(lease))
            case do.Swap(token, transaction):
                world.swap(self, token, transaction)
            case do.Connect():
                world.connect(self, effect)
            case do.Close(number, _):
                world.close(self, number)
            case do.Welcome():
                world.welcome(self, effect)
            case do.Refuse(number, _):
                world.close(self, number)
            case do.Append(_, offset, size):
                units = world.body
                assert len(units) == size
                assert offset == len(self.disk.units)
                self.append(units)
            case do.Report(number, epoch, end):
                if self.slave_link is not None and self.slave_link.slave_link == number:
                    link = self.slave_link
                    world.send(link, to_master=True, event=on.Acked(link.master_link, epoch, end))
            case do.Truncate(to):
                self._truncate(to)
            case do.Wipe(_):
                self.disk.cut(0)
                self._reopen()
            case do.Reopen():
                self._reopen()
            case do.RegistrationDone():
                self.disk.mark = False
            case do.BecomeMaster(epoch):
                world.later(world.rng.random() * 0.1, lambda: self._write_epoch(epoch, run))
            case do.Confirm(epoch, to):
                world.watcher.confirmed(self, to)
                for end, unit in self.waiters.acknowledged(to):
                    world.watcher.acknowledged(self, end, unit, epoch)
            case do.FailWaiters(_):
                self.waiters.all()
            case do.AllowWrites():
                self.can_write = True
            case do.RefuseWrites(_) | do.HoldWrites():
                self.can_write = False
            case do.Register(_) | do.Note(_, _):
                pass

    def append(self, units: list[Unit]) -> None:
        """Writes to the log, and tells the machine of epochs in it."""
        disk = self.disk
        for unit in units:
            disk.units.append(unit)
            self.world.watcher.appended(disk)
        if self.world.settings.sync_flush or self.world.rng.random() < 0.2:
            end, generation = len(disk.units), self.generation
            self.world.later(self.world.rng.random() * 0.02, lambda: self._flush(end, generation))
        for at, unit in enumerate(units, len(disk.units) - len(units)):
            if unit.number == 0 and self.group is not None and self.group.leader is None:
                self.group.handle(on.EpochSeen(unit.epoch, at), self.world.now)

    def _flush(self, end: int, generation: int) -> None:
        if self.generation == generation and len(self.disk.units) >= end:
            self.disk.synced = max(self.disk.synced, end)
            self.feed(on.Flushed(end))

    def _truncate(self, to: int) -> None:
        """In steps, each a moment in which a crash may come."""
        disk, generation, world = self.disk, self.generation, self.world
        self.generation += 1
        generation = self.generation
        old_end = len(disk.units)

        def step(action: Callable[[], None]) -> Callable[[], None]:
            return lambda: action() if self.generation == generation else None

        def mark() -> None:
            disk.truncate_to = to

        def done() -> None:
            disk.truncate_to = None
            self._reopen()

        steps = (mark, lambda: disk.cut((to + old_end) // 2), lambda: disk.cut(to), done)
        for number, action in enumerate(steps, start=1):
            world.later(0.01 * number, step(action))
            if world.after_step is not None:
                world.later(0.01 * number + 0.001, lambda n=number: world.after_step(self, n))  # type: ignore[misc]

    def _reopen(self) -> None:
        self.generation += 1
        generation = self.generation

        def open_() -> None:
            if self.generation == generation:
                self.feed(self.disk.open(sync_flush=self.world.settings.sync_flush))

        self.world.later(0.02, open_)

    def _write_epoch(self, epoch: int, run: str) -> None:
        group = self.group
        if group is None or self.run != run or group.state is not State.PROMOTING or group.epoch != epoch:
            return
        if self.is_paused:
            self.world.at(self.paused_until, lambda: self._write_epoch(epoch, run))
            return
        self.disk.cut(self.disk.whole_end())
        start = len(self.disk.units)
        self.world.watcher.begins(epoch, run)
        self.append([Unit(epoch, 0, 0, 1)])
        self.feed(on.EpochWritten(epoch, start, start + 1))
        self.world.stream(self)

    def write(self, number: int) -> None:
        """A producer's send."""
        group = self.group
        if group is None or not self.can_write or self.is_paused or group.leader is None:
            return
        parts = self.world.rng.choice((1, 1, 2, 3))
        units = [Unit(group.leader.epoch, number, part, parts) for part in range(parts)]
        self.append(units)
        end = len(self.disk.units)
        self.waiters.add((end, units[-1]), end, self.world.now + 3)
        self.feed(on.Appended(end))
        self.world.stream(self)


class Watcher:
    """Checks the invariants."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.committed: list[Unit] = []
        self.masters: dict[int, str] = {}
        self.before: dict[tuple[int, Unit], Unit | None] = {}
        self.acks = self.elections = 0
        self.epoch = 0

    def begins(self, epoch: int, run: str) -> None:
        if self.masters.setdefault(epoch, run) != run:
            raise Breach(f"I1: epoch {epoch} has two masters: {self.masters[epoch]} and {run}")

    def appended(self, disk: Disk) -> None:
        at = len(disk.units) - 1
        unit, previous = disk.units[at], disk.units[at - 1] if at else None
        if self.before.setdefault((at, unit), previous) != previous:
            raise Breach(f"I2: {unit} at {at} follows {previous} here and {self.before[at, unit]} elsewhere")
        self._advance(disk)

    def _advance(self, disk: Disk) -> None:
        at, most = disk.agrees_to, min(len(disk.units), len(self.committed))
        while at < most and disk.units[at] == self.committed[at]:
            at += 1
        disk.agrees_to = at

    def confirmed(self, node: Node, to: int) -> None:
        disk = node.disk
        if disk.agrees_to < min(to, len(self.committed)):
            raise Breach(f"I4: at {disk.agrees_to} member {node.number} confirms something else than was confirmed")
        if to > len(self.committed):
            self.committed.extend(disk.units[len(self.committed) : disk.whole_end(to)])
            for other in self.world.nodes:
                self._advance(other.disk)

    def acknowledged(self, node: Node, end: int, unit: Unit, epoch: int) -> None:
        if end > len(self.committed) or self.committed[end - 1] != unit:
            raise Breach(f"I4: an acknowledged message is not at {end - 1}: {unit} in epoch {epoch}")
        self.acks += 1

    def check(self) -> None:
        record = self.world.record
        if record is None:
            return
        if record.epoch < self.epoch:
            raise Breach(f"I1: epoch {record.epoch} after {self.epoch}")
        self.elections += record.epoch - self.epoch
        self.epoch = record.epoch
        for member, run in record.in_sync.items():
            node = self.world.nodes[member - 1]
            is_electable = node.is_up and (node.run == run or not self.world.rules.incarnations)
            if is_electable and node.disk.agrees_to < len(self.committed):
                at = node.disk.agrees_to
                raise Breach(f"I3: member {member} could be elected and lacks what was confirmed at {at}")


class World:
    def __init__(
        self,
        seed: int,
        rules: Rules = ALL_RULES,
        *,
        odds: Odds | None = None,
        settings: GroupSettings | None = None,
        members: int = 3,
        trace: bool = False,
    ) -> None:
        self.rng = random.Random(seed)
        self.odds = Odds.swarm(self.rng) if odds is None else odds
        self.rules = rules
        if settings is None:
            sync = self.rng.random() < 0.4
            least = self.rng.choice((1, 2, 2))
            settings = GroupSettings(min_in_sync=least, sync_flush=sync, lease_s=self.rng.choice((2, 3)))
            self.odds.power *= 1.0 if sync else 0.1  # without syncs most of these end with a frozen group
        self.settings = settings
        self.now = 0.0
        self.events = 0
        self._order = count()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self.meta = MemoryStore()
        self.record: GroupRecord | None = None
        self.meta.on_change = lambda _: self._meta_changed()
        self._links = count(1_000_000)
        self._cuts: set[tuple[int, int]] = set()
        self.body: list[Unit] = []
        self.trace: list[str] | None = [] if trace else None
        self.after_effect: Callable[[Node, do.Effect], None] | None = None
        self.after_step: Callable[[Node, int], None] | None = None
        """Of a truncation."""
        self.nodes = [Node(self, number) for number in range(1, members + 1)]
        self.watcher = Watcher(self)
        self.all_links: list[Link] = []
        self.numbers = count(1)
        self.has_producers = True
        self.unheard: set[int] = set()
        """Members that get no answer from the metadata store, which does what they ask."""

    # --- time ---

    def at(self, moment: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (moment, next(self._order), action))

    def later(self, delay: float, action: Callable[[], None]) -> None:
        self.at(self.now + delay, action)

    def run_until(self, end: float) -> None:
        heap = self._heap
        while heap and heap[0][0] <= end:
            self.now, _, action = heapq.heappop(heap)
            action()
            self.events += 1
            self.watcher.check()
        self.now = end

    def delay(self) -> float:
        return self.rng.random() * self.odds.slow

    # --- the metadata store ---

    def _meta_changed(self) -> None:
        reading = self.meta.read(KEYS.state)
        self.record = GroupRecord.from_bytes(reading.keys[0].value) if reading.keys else None
        for node in self.nodes:
            if self.rng.random() < 0.8:  # else the watch hangs
                self.later(self.delay(), lambda node=node: self.read(node) if node.is_up else None)  # type: ignore[misc]

    def _expire(self) -> None:
        self.meta.expire(self.now)
        self.later(0.5, self._expire)

    def reaches_meta(self, node: Node) -> bool:
        return (0, node.number) not in self._cuts

    def hears_meta(self, node: Node) -> bool:
        return self.reaches_meta(node) and node.number not in self.unheard

    def call(self, node: Node, action: Callable[[], on.Event | None]) -> None:
        """A call that may fail before or after it is done; its event, if there is one, goes to the same process."""
        run, odds, rng = node.run, self.odds, self.rng
        if not self.reaches_meta(node) or rng.random() < odds.lose_call / 2:
            return
        lost = rng.random() < odds.lose_call / 2

        def arrive() -> None:
            try:
                event = action()
            except MetaError:
                return
            if event is not None and not lost and self.hears_meta(node):
                self.later(self.delay(), lambda: node.feed(event, run))

        self.later(self.delay(), arrive)

    def keep_alive(self, lease: int, sent_at: float) -> on.Event:
        try:
            return on.LeaseRenewed(lease, self.meta.keep_alive(lease, self.now), sent_at)
        except MetaLeaseGone:
            return on.LeaseLost(lease)

    def read(self, node: Node) -> None:
        self.call(node, lambda: snapshot_of(self.meta.read(KEYS.prefix), KEYS))

    def swap(self, node: Node, token: int, transaction: Transaction) -> None:
        """Its answer comes once: done or not, or nothing within the time limit, whatever happens later."""
        run, rng, odds = node.run, self.rng, self.odds
        answered = False

        def answer(done: bool | None, revision: int = 0) -> None:
            nonlocal answered
            if not answered:
                answered = True
                node.feed(on.Swapped(token, done, revision), run)

        def arrive() -> None:
            try:
                done, revision = self.meta.transact(transaction)
            except MetaError:
                return
            if self.hears_meta(node) and rng.random() >= odds.lose_call / 2:
                self.later(self.delay(), lambda: answer(done, revision))

        if rng.random() < odds.after_swap:
            fault = rng.choice((lambda: self._kill(node), self._break_link, self._pause, lambda: self._part(node)))
            self.later(self.delay(), fault)
        self.later(CALL_S, lambda: answer(None))
        if self.reaches_meta(node) and rng.random() >= odds.lose_call / 2:
            late = rng.random() * 8 if rng.random() < odds.late_call else 0.0
            self.later(self.delay() + late, arrive)

    # --- connections ---

    def is_cut(self, one: Node, two: Node) -> bool:
        return (one.number, two.number) in self._cuts

    def connect(self, slave: Node, effect: do.Connect) -> None:
        master = self.nodes[int(effect.address[1]) - 1]
        run = slave.run

        def lost(*, refused: bool) -> None:
            slave.feed(on.LinkLost(effect.link, refused), run)

        if self.is_cut(slave, master) or self.is_cut(master, slave):
            self.later(1.0, lambda: lost(refused=False))
            return
        if not master.is_up:
            self.later(self.delay(), lambda: lost(refused=True))
            return
        link = Link(slave, master, effect.link, next(self._links), run, master.run)
        slave.slave_link = link
        master.links[link.master_link] = link
        self.all_links.append(link)
        hello = on.HelloArrived(
            link.master_link, slave.number, slave.run, effect.epoch, effect.begin, effect.end, effect.epochs
        )
        self.send(link, to_master=True, event=hello)

    def send(self, link: Link, *, to_master: bool, event: on.Event, body: list[Unit] | None = None) -> None:
        """In order within a connection; what was sent before it closed may still arrive."""
        sender, receiver = (link.slave, link.master) if to_master else (link.master, link.slave)
        if not link.is_open or self.is_cut(sender, receiver):
            return
        moment = link.last[to_master] = max(link.last[to_master], self.now + self.delay())
        run = link.master_run if to_master else link.slave_run

        def arrive() -> None:
            if self.is_cut(sender, receiver):
                return
            if receiver.is_paused:
                self.at(receiver.paused_until, arrive)
                return
            if body is not None:
                self.body = body
            if link.is_open or to_master:  # a master may still find a report in its buffer
                receiver.feed(event, run)

        self.at(moment, arrive)

    def welcome(self, master: Node, effect: do.Welcome) -> None:
        link = master.links.get(effect.link)
        if link is None:
            return
        event = on.Welcomed(link.slave_link, effect.epoch, effect.begin, effect.end, effect.epochs)
        self.send(link, to_master=False, event=event)
        if effect.stream_from is not None:
            link.stream_from = link.sent = effect.stream_from
            self.later(0, lambda: self.stream(master))
            self._heartbeat(link)

    def _heartbeat(self, link: Link) -> None:
        if link.is_open and link.master.is_up and link.master.run == link.master_run:
            self.later(0.4, lambda: self._heartbeat(link))
            if not link.master.is_paused:
                self._frame(link, [])

    def stream(self, master: Node) -> None:
        """What each slave has not got yet, cut anywhere."""
        if master.group is None or master.group.leader is None or master.is_paused:
            return
        for link in [link for link in master.links.values() if link.is_open and link.stream_from is not None]:
            units = master.disk.units
            while link.sent < len(units):
                size = self.rng.randint(1, 8)
                self._frame(link, units[link.sent : link.sent + size])

    def _frame(self, link: Link, body: list[Unit]) -> None:
        group = link.master.group
        if group is None or group.leader is None:
            return
        frame = on.FrameArrived(link.slave_link, group.leader.epoch, link.sent, len(body), group.confirmed)
        link.sent += len(body)
        self.send(link, to_master=False, event=frame, body=body)

    def close(self, node: Node, number: int) -> None:
        link = node.links.pop(number, None)
        if link is None and node.slave_link is not None and node.slave_link.slave_link == number:
            link, node.slave_link = node.slave_link, None
        if link is not None:
            self.end(link)

    def end(self, link: Link) -> None:
        """Both ends learn of it: at once, or after a while when they cannot reach each other."""
        if not link.is_open:
            return
        link.is_open = False
        reachable = not self.is_cut(link.slave, link.master) and not self.is_cut(link.master, link.slave)
        delay = self.delay() if reachable else 1 + self.rng.random() * 2
        refused = reachable and not link.master.is_up
        slave, master = link.slave, link.master

        def at_master() -> None:
            master.links.pop(link.master_link, None)
            master.feed(on.LinkClosed(link.master_link), link.master_run)

        self.later(delay, lambda: slave.feed(on.LinkLost(link.slave_link, refused), link.slave_run))
        self.later(delay, at_master)

    def links_end(self, node: Node) -> None:
        for link in self.all_links:
            if link.is_open and node in (link.slave, link.master):
                self.end(link)
        node.links.clear()
        self.all_links = [link for link in self.all_links if link.is_open]

    # --- faults ---

    def start(self) -> None:
        self._expire()
        for node in self.nodes:
            self.later(self.rng.random() * 0.2, node.start)
        self._write()

    def _write(self) -> None:
        self.later(self.rng.random() * 2 / self.odds.writes, self._write)
        for node in self.nodes if self.has_producers else ():
            if node.can_write and self.rng.random() < 0.9:
                node.write(next(self.numbers))

    def faults(self, until: float) -> None:
        """Plans the next fault of each kind."""
        kinds: tuple[tuple[float, Callable[[], None]], ...] = (
            (self.odds.kill, self._kill),
            (self.odds.power, lambda: self._kill(power=True)),
            (self.odds.pause, self._pause),
            (self.odds.cut, self._cut),
            (self.odds.cut_meta, self._cut_meta),
            (self.odds.break_link, self._break_link),
            (self.odds.forge, self._forge),
            (self.odds.meta_leader, lambda: self.meta.renew_all(self.now)),
            (self.odds.switch, self._switch),
        )
        for rate, action in kinds:
            if rate:
                self._repeat(rate, action, until)

    def _repeat(self, rate: float, action: Callable[[], None], until: float) -> None:
        moment = self.now + self.rng.expovariate(rate)
        if moment < until:

            def happen() -> None:
                action()
                self._repeat(rate, action, until)

            self.at(moment, happen)

    def _victim(self) -> Node:
        """Masters more often than others."""
        leaders = [node for node in self.nodes if node.group is not None and node.group.leader is not None]
        return self.rng.choice(leaders if leaders and self.rng.random() < 0.5 else self.nodes)

    def _kill(self, victim: Node | None = None, *, power: bool = False) -> None:
        all_at_once = victim is None and self.rng.random() < 0.05
        for node in self.nodes if all_at_once else [victim or self._victim()]:
            if node.is_up:
                node.crash(power=power)
                generation = node.generation
                self.later(self.rng.choice((0.05, 0.5, 2.0, 5.0)), lambda n=node, g=generation: self._start(n, g))  # type: ignore[misc]

    def _start(self, node: Node, generation: int) -> None:
        if not node.is_up and node.generation == generation:
            node.start()

    def _pause(self) -> None:
        node = self._victim()
        node.paused_until = max(node.paused_until, self.now + self.rng.choice((0.3, 2.0, 6.0)))

    def _cut(self) -> None:
        one, two = self.rng.sample(self.nodes, 2)
        pairs = {(one.number, two.number)}
        if self.rng.random() < 0.7:
            pairs.add((two.number, one.number))
        if self.rng.random() < 0.3:  # alone
            pairs |= {pair for node in self.nodes if node is not one for pair in self._both(one, node)}
        self._cut_for(pairs)
        for link in self.all_links:
            if link.is_open and (link.slave.number, link.master.number) in pairs:
                self.later(self.rng.random() * 3, lambda link=link: self.end(link))  # type: ignore[misc]

    def _part(self, node: Node) -> None:
        """This member and one other lose each other, and notice soon."""
        other = self.rng.choice([other for other in self.nodes if other is not node])
        pairs = self._both(node, other)
        self._cut_for(pairs)
        for link in self.all_links:
            if link.is_open and (link.slave.number, link.master.number) in pairs:
                self.later(self.rng.random() * 0.3, lambda link=link: self.end(link))  # type: ignore[misc]

    def _both(self, one: Node, two: Node) -> set[tuple[int, int]]:
        return {(one.number, two.number), (two.number, one.number)}

    def _cut_meta(self) -> None:
        nodes = self.nodes if self.rng.random() < 0.2 else [self._victim()]
        self._cut_for({(0, node.number) for node in nodes})

    def _cut_for(self, pairs: set[tuple[int, int]]) -> None:
        self._cuts |= pairs
        self.later(self.rng.choice((0.5, 2.0, 6.0)), lambda: self._cuts.difference_update(pairs))

    def _break_link(self) -> None:
        links = [link for link in self.all_links if link.is_open]
        if links:
            self.end(self.rng.choice(links))

    def _forge(self) -> None:
        """Bytes on a replication port that no slave sent: before an introduction, or beyond the log."""
        node = self._victim()
        if node.group is None or node.group.leader is None:
            return
        end = len(node.disk.units)
        if node.links and self.rng.random() < 0.5:
            number = self.rng.choice(list(node.links))
            node.feed(on.Acked(number, node.group.epoch, end + self.rng.randint(1, 1000)))
        else:
            node.feed(on.Acked(next(self._links), node.group.epoch, end))

    def _switch(self) -> None:
        record = self.record
        if record is None:
            return
        nonce = f"o{next(self.numbers)}"
        self.order(Order(do="switch", nonce=nonce, member=self.rng.choice(self.nodes).number, epoch=record.epoch))

    def order(self, order: Order) -> None:
        """As an operator gives it."""
        lease = self.meta.grant(15, self.now).id
        self.meta.transact(Transaction((), (Put(KEYS.order, order.to_bytes(), lease),)))

    # --- a whole run ---

    def heal(self) -> None:
        self.restore()
        self.odds = Odds(writes=self.odds.writes)
        for node in self.nodes:
            node.paused_until = min(node.paused_until, self.now)
            if not node.is_up:
                node.start()

    def cut_off(self, one: Node, others: list[Node] | None = None, *, meta: bool = False) -> None:
        """Until `heal`, or `restore`."""
        for other in self.nodes if others is None else others:
            if other is not one:
                self._cuts |= self._both(one, other)
        if meta:
            self._cuts.add((0, one.number))
        for link in self.all_links:
            if link.is_open and (link.slave.number, link.master.number) in self._cuts:
                self.later(0.5, lambda link=link: self.end(link))  # type: ignore[misc]

    def cut_one_way(self, sender: Node, receiver: Node) -> None:
        self._cuts.add((sender.number, receiver.number))

    def cut_meta(self, *nodes: Node) -> None:
        self._cuts |= {(0, node.number) for node in nodes}

    def restore(self) -> None:
        self._cuts.clear()
        self.unheard.clear()

    @property
    def leader(self) -> Node | None:
        """The one that takes writes."""
        return next((node for node in self.nodes if node.can_write), None)

    def run_until_true(self, holds: Callable[[], bool], limit: float = 60.0) -> float:
        """How long it took."""
        began = self.now
        while not holds():
            if self.now > began + limit:
                raise Breach(f"not so within {limit} s of simulated time")
            self.now, _, action = heapq.heappop(self._heap)
            action()
            self.events += 1
            self.watcher.check()
        return self.now - began

    def check_quiet(self) -> bool:
        """I7; whether the group goes on. A frozen one waits for an operator."""
        record = self.record
        assert record is not None
        if record.frozen is not None:
            return False
        leaders = [node for node in self.nodes if node.group is not None and node.group.leader is not None]
        if len(leaders) != 1 or not leaders[0].can_write:
            states = {node.number: node.group.state.value if node.group else "down" for node in self.nodes}
            raise Breach(f"I7: after quiet there are {len(leaders)} masters that take writes: {states}")
        if len(record.in_sync) < len(self.nodes):
            raise Breach(f"I7: after quiet only {sorted(record.in_sync)} are in sync")
        units = leaders[0].disk.units
        for node in self.nodes:
            if node.disk.units != units:
                raise Breach(f"I7: after quiet the logs of {leaders[0].number} and {node.number} differ")
        if leaders[0].group is not None and leaders[0].group.confirmed != len(units):
            raise Breach("I7: after quiet not everything is confirmed")
        return True


class Result(NamedTuple):
    acks: int
    elections: int
    events: int
    goes_on: bool


def run(
    seed: int,
    rules: Rules = ALL_RULES,
    *,
    seconds: float = 16.0,
    members: int = 3,
    trace: bool = False,
    kind: type[World] = World,
) -> Result:
    """A run with faults, then quiet. Breach names the seed; run it again with trace=True."""
    world = kind(seed, rules, members=members, trace=trace)
    try:
        world.start()
        world.faults(seconds)
        world.run_until(seconds)
        world.heal()
        world.run_until(seconds + 15)
        world.has_producers = False
        world.run_until(seconds + 17)
        goes_on = world.check_quiet()
    except Exception as error:
        if world.trace is not None:
            print("\n".join(world.trace[-200:]))
        raise Breach(f"seed {seed} at {world.now:.3f}: {error}") from error
    return Result(world.watcher.acks, world.watcher.elections, world.events, goes_on)
