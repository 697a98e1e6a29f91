"""Faults of a SYNC_MASTER, its slaves and their links under load; then the master is gone and a slave is read alone.

    python -m tests.chaos.replication [FAULTS] [SEED]          as root

Faults come in rounds of ten, each with a new master, by turns with one slave and with two. At the end of a round the
master is killed for good in the midst of the traffic. Our client reads the slave that is left: of two, the one whose
log reaches furthest. Then that slave is made the master by hand, read again, and written to. What must hold then, and
all the time before, are the rules of replicated_history.py. The exit status is 1 if one was broken, 3 where namespaces
or mounts are not allowed.
"""

import asyncio
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ariane.client.admin import Admin
from ariane.client.consumer.message import Received
from ariane.client.consumer.push import PushConsumer
from ariane.client.producer.producer import Producer
from ariane.errors import ArianeError
from ariane.model.ids import QueueOffset
from ariane.rpc.caller import Caller
from ariane.wire.codes import ResponseCode
from ariane.wire.record.read import decode_all
from ariane.wire.requests.offsets import GetConsumerOffset, GetMaxOffset, UpdateConsumerOffset
from ariane.wire.requests.pull import PullMessage
from ariane.wire.requests.topics import GetRoute
from tests.chaos.network import Namespaces
from tests.chaos.power_cut import NOT_ALLOWED, NotAllowed
from tests.chaos.replicas import BROKER, CALL_S, CATCH_UP_S, Member, Network, Replicas, last_lines
from tests.chaos.replicated_history import (
    SYNC_S,
    Commit,
    ReplicatedHistory,
    body_of,
    log_differences,
    message_in,
    records_below,
    violations,
)
from tests.chaos.replication_faults import ENDINGS, Ending, Fault, end_master, end_master_while_isolated, plan
from tests.chaos.traffic import FAST_POLLING, place
from tests.simulation.delivery_history import Acknowledged, Attempted, Committed, Delivered, Queue

FAULTS = 100
ROUND = 10
TOPIC = "orders"
QUEUES = 4
PRODUCERS = 6
GROUP = "readers"
FIRST_SAFE = 100
BETWEEN_SENDS_S = 0.004
AFTER_FAILURE_S = 0.05
SEND_TIMEOUT_S = 3.0
AFTER_PROMOTION = 200
READ_ALONE_S = 60.0
PATIENCE_S = 60.0
"""For calls to a broker that nothing disturbs: the machine may be busy, and one that fails ends the round."""


# --- traffic ----------------------------------------------------------------------------------------------------------


@dataclass
class Traffic:
    history: ReplicatedHistory
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    last_ok_s: float = 0.0
    """When the last message was sent, on the monotonic clock, that got SEND_OK."""

    async def is_safe(self) -> bool:
        """Whether enough messages got SEND_OK for a judgement."""
        return len(self.history.safe) >= FIRST_SAFE

    async def produce(self, name: str, nameserver: str) -> None:
        """One message after the other, each once, so that order and outcome are known."""
        async with _producer(nameserver) as producer:
            number = 0
            while not self.stopped.is_set():
                await self._send(producer, f"{name}:{number}")
                number += 1
                await asyncio.sleep(BETWEEN_SENDS_S)

    async def _send(self, producer: Producer, message: str) -> None:
        history, began = self.history, time.monotonic()
        history.sends.append(Attempted(message))
        try:
            result = await producer.send(TOPIC, body_of(message))
        except ArianeError:  # it may exist or not
            history.statuses["unknown"] += 1
            await asyncio.sleep(AFTER_FAILURE_S)
            return
        history.statuses[result.status.value] += 1
        producer_name = message.rpartition(":")[0]
        history.sends.append(Acknowledged(message, place(result.queue), result.queue_offset, producer_name))
        if result.is_ok:
            history.safe.add(message)
            self.last_ok_s = max(self.last_ok_s, began)


def _producer(nameserver: str, timeout_s: float = SEND_TIMEOUT_S) -> Producer:
    return Producer(nameserver, group="producers", retries=0, send_timeout_s=timeout_s, settings=FAST_POLLING)


def _queue(number: int) -> Queue:
    return TOPIC, BROKER, number


@dataclass
class Reader:
    """Reads all queues of one broker as a consumer of `GROUP` that is not a member of it."""

    caller: Caller
    member: Member
    history: ReplicatedHistory
    commits: bool = False
    call_s: float = CALL_S
    following: list[int] = field(default_factory=lambda: [0] * QUEUES)
    emptied: int = 0

    async def follow(self, stopped: asyncio.Event) -> None:
        while not stopped.is_set():
            if self.emptied != self.member.emptied:  # what it has now was copied anew: all of it is compared
                self.emptied, self.following = self.member.emptied, [0] * QUEUES
            for number in range(QUEUES):
                with suppress(ArianeError):
                    await self._pull(number)
                    await self._observe(number)
            await asyncio.sleep(0.05)

    async def serves(self, count: int) -> bool:
        """Whether its queues have so many messages."""
        return sum([await self._end(number) for number in range(QUEUES)]) >= count

    async def read_all(self) -> list[Delivered]:
        """Everything that the broker serves now."""
        found: list[Delivered] = []
        for number in range(QUEUES):
            end = await self._end(number)
            self.following[number] = 0
            while self.following[number] < end:
                reads = await self._pull(number)
                assert reads, f"{self.member.name} serves nothing at {self.following[number]} of {end}"
                found += reads
        return found

    async def _end(self, number: int) -> int:
        return (await self.caller.call(self._address, GetMaxOffset(topic=TOPIC, queue_id=number), self.call_s)).offset

    @property
    def _address(self) -> str:
        return self.member.process.address

    async def _pull(self, number: int) -> list[Delivered]:
        """The next messages, as far as they are there; ArianeError when the broker does not respond."""
        request = PullMessage(
            consumer_group=GROUP,
            topic=TOPIC,
            queue_id=number,
            queue_offset=QueueOffset(self.following[number]),
            max_msg_nums=32,
            sys_flag=4,
            commit_offset=QueueOffset(0),
            suspend_timeout_millis=0,
            sub_version=0,
            subscription="*",
        )
        response = await self.caller.call(self._address, request, self.call_s)
        if response.code != ResponseCode.SUCCESS:
            return []
        reads = [
            Delivered(message_in(message.body), _queue(number), message.queue_offset, time.time())
            for message in decode_all(response.body)
        ]
        self.history.readers[self.member.name] += reads
        self.following[number] = response.next_begin_offset
        return reads

    async def _observe(self, number: int) -> None:
        if self.commits:
            offset = QueueOffset(self.following[number])
            commit = UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=number, commit_offset=offset)
            await self.caller.call(self._address, commit, CALL_S)
        committed = await committed_offset(self.caller, self._address, number)
        if committed is not None:
            self.history.readers[self.member.name].append(Committed(_queue(number), committed))
            if self.commits:
                self.history.commits.append(Commit(time.time(), _queue(number), committed))


async def committed_offset(caller: Caller, address: str, number: int, call_s: float = CALL_S) -> int | None:
    """None when the group has none; ArianeError when the broker does not respond."""
    request = GetConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=number, set_zero_if_not_found=False)
    try:
        return (await caller.call(address, request, call_s)).offset
    except ArianeError as error:
        if getattr(error, "code", None) == ResponseCode.QUERY_NOT_FOUND:
            return None
        raise


# --- one round --------------------------------------------------------------------------------------------------------


async def run_round(
    directory: Path,
    network: Network,
    slaves: int,
    faults: Sequence[Fault],
    seed: int,
    ending: Ending = end_master,
    *,
    quiet: bool = False,
    role: str = "SYNC_MASTER",
) -> tuple[ReplicatedHistory, list[float]]:
    """What happened, and how long slaves took to catch up. With `quiet` the offsets of groups are copied once more
    between the last fault and the end of the master; without, it may end before the slave has caught up."""
    history, rng = ReplicatedHistory(), random.Random(seed)
    catch_ups: list[float] = []
    async with Replicas.running(directory, network, slaves, role) as replicas:
        async with Admin(replicas.nameserver) as admin:
            await admin.topics.create(TOPIC, read_queues=QUEUES, write_queues=QUEUES)
        traffic = Traffic(history)
        replicas.sent_ok = lambda: traffic.last_ok_s
        async with asyncio.TaskGroup() as tasks:
            for number in range(PRODUCERS):
                tasks.create_task(traffic.produce(f"p{number}", replicas.nameserver))
            readers_stopped = asyncio.Event()
            for member in replicas.members:
                reader = Reader(replicas.caller, member, history, commits=member is replicas.master)
                tasks.create_task(reader.follow(readers_stopped))
            assert await replicas.until(traffic.is_safe, CATCH_UP_S), f"fewer than {FIRST_SAFE} times SEND_OK at first"
            assert await replicas.until(partial(_serve, replicas.members, history), CATCH_UP_S), "a slave has no topic"
            for fault in faults:
                await asyncio.sleep(rng.uniform(0.2, 1.0))
                await fault(replicas, rng)
                _note_ended(replicas, history, fault.name)
                if rng.random() < 0.7:
                    await _note_catch_ups(replicas, history, fault.name, catch_ups)
            history.quiet_since_s = time.time()
            await asyncio.sleep(SYNC_S + 2.0 if quiet else rng.uniform(0.0, 1.0))
            await ending(replicas, rng)
            history.master_ended_s = time.time()
            traffic.stopped.set()
            readers_stopped.set()
        await _end(replicas, history, rng)
    return history, catch_ups


async def _serve(members: Sequence[Member], history: ReplicatedHistory) -> bool:
    """Whether all have been read: a slave copies a new topic a moment after the first message in its log."""
    return all(any(isinstance(event, Delivered) for event in history.readers[member.name]) for member in members)


def _note_ended(replicas: Replicas, history: ReplicatedHistory, fault: str) -> None:
    for member in replicas.members:
        if not member.process.is_running:
            history.problems["ended by itself"].append(
                f"{member.name} after {fault}: {last_lines(_log(replicas, member))}"
            )


def _log(replicas: Replicas, member: Member) -> Path:
    return replicas.directory / f"{member.name}.log"


async def _note_catch_ups(replicas: Replicas, history: ReplicatedHistory, fault: str, catch_ups: list[float]) -> None:
    for slave, took_s in zip(
        replicas.slaves, await asyncio.gather(*map(replicas.caught_up, replicas.slaves)), strict=True
    ):
        if took_s is None:
            text = f"{slave.name} after {fault}: {last_lines(_log(replicas, slave))}"
            history.problems["did not catch up"].append(text)
        else:
            catch_ups.append(took_s)


# --- the end of a round -----------------------------------------------------------------------------------------------


async def _end(replicas: Replicas, history: ReplicatedHistory, rng: random.Random) -> None:
    """The master is gone: compares the logs, reads the slave that reaches furthest, and makes it the master."""
    ends = await replicas.ends_at_rest()
    left = max(replicas.slaves, key=lambda slave: ends[slave.name])
    for slave in replicas.slaves:
        differences = await asyncio.to_thread(log_differences, replicas.master.log, slave.log, ends[slave.name])
        history.problems["logs differ"] += differences
        if slave is not left:
            await slave.process.stop()
    reader = Reader(replicas.caller, left, ReplicatedHistory(), call_s=PATIENCE_S)
    stored = await asyncio.to_thread(records_below, left.log, ends[left.name])
    if not await replicas.until(lambda: reader.serves(stored), READ_ALONE_S):
        history.problems["not served"].append(f"{left.name} has {stored} records in its log, and serves fewer")
    history.alone = await reader.read_all()
    if replicas.has_route:
        await _read_by_client(replicas, history, history.alone)
    for number in range(QUEUES):
        offset = await committed_offset(replicas.caller, left.process.address, number, PATIENCE_S)
        if offset is not None:
            history.committed_alone[_queue(number)] = offset
    if rng.random() < 0.5:
        await left.process.kill()
    elif await left.process.stop():
        history.problems["did not stop"].append(f"{left.name}: {last_lines(_log(replicas, left))}")
    await replicas.promoted(left)
    assert await replicas.until(partial(_has_master, replicas), CATCH_UP_S), "no nameserver knows the new master"
    await _send_to_promoted(replicas, history)
    history.promoted = await Reader(replicas.caller, left, ReplicatedHistory(), call_s=PATIENCE_S).read_all()
    await _read_by_client(replicas, history, history.promoted)
    for queue, offset in history.committed_alone.items():
        now = await committed_offset(replicas.caller, left.process.address, queue[2], PATIENCE_S)
        end = 1 + max((event.offset for event in history.alone if event.queue == queue), default=-1)
        if now is None or now < min(offset, end) or now > max(offset, end):
            fault = f"the group's offset of {queue} was {offset} at the slave, the queue's end {end}, and is {now}"
            history.problems["offset after the promotion"].append(fault)


async def _has_master(replicas: Replicas) -> bool:
    route = (await replicas.caller.call(replicas.nameserver, GetRoute(topic=TOPIC), CALL_S)).body
    return any(0 in broker.broker_addrs for broker in route.broker_datas)


async def _read_by_client(replicas: Replicas, history: ReplicatedHistory, stored: list[Delivered]) -> None:
    """By a consumer of the project, of a new group, that knows only the nameserver: it must get what the broker has."""
    expected = {(event.queue, event.offset): event.message for event in stored}
    found: dict[tuple[Queue, int], str] = {}
    done = asyncio.Event()

    async def handle(message: Received) -> None:
        found[place(message.queue), message.queue_offset] = message_in(message.body)
        if len(found) >= len(expected):
            done.set()

    consumer = PushConsumer(
        replicas.nameserver,
        group=f"alone-{len(expected)}",
        start="earliest",
        handler=handle,
        pull_batch=1024,
        settings=FAST_POLLING,
    )
    consumer.subscribe(TOPIC)
    async with consumer:
        with suppress(TimeoutError):
            async with asyncio.timeout(READ_ALONE_S):
                await done.wait()
    differing = expected.items() ^ found.items()
    if differing:
        fault = f"{len(found)} of {len(expected)} messages; {len(differing)} differ, as {next(iter(differing))}"
        history.problems["not read by the client"].append(fault)


async def _send_to_promoted(replicas: Replicas, history: ReplicatedHistory) -> None:
    async with _producer(replicas.nameserver, PATIENCE_S) as producer:
        for number in range(AFTER_PROMOTION):
            message = f"promoted:{number}"
            result = await producer.send(TOPIC, body_of(message))
            history.sent_to_promoted.append(Acknowledged(message, place(result.queue), result.queue_offset, "promoted"))


# --- the run ----------------------------------------------------------------------------------------------------------


@dataclass
class Totals:
    faults: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    catch_ups: list[float] = field(default_factory=list)
    sent: int = 0
    safe: int = 0
    read_alone: int = 0
    broken: dict[str, int] = field(default_factory=dict)

    def add(self, faults: Sequence[Fault], history: ReplicatedHistory, catch_ups: list[float]) -> None:
        self.faults.update(fault.name for fault in faults)
        self.statuses.update(history.statuses)
        self.catch_ups += catch_ups
        self.sent += history.statuses.total()
        self.safe += len(history.safe)
        self.read_alone += len(history.alone)
        for rule, faults_found in violations(history).items():
            self.broken[rule] = self.broken.get(rule, 0) + len(faults_found)
            print(f"  BROKEN {rule}: {len(faults_found)}", *(f"    {fault}" for fault in faults_found[:5]), sep="\n")

    def table(self) -> str:
        lines = [f"{'fault':54}{'times':>6}"]
        lines += [f"{name:54}{count:6}" for name, count in sorted(self.faults.items())]
        lines += [f"{'in all':54}{self.faults.total():6}", "", f"{'status of a send':54}{'messages':>10}"]
        lines += [f"{name:54}{count:10,}" for name, count in self.statuses.most_common()]
        ordered = sorted(self.catch_ups) or [0.0]
        lines += [
            "",
            f"{self.sent:,} sent, {self.safe:,} with SEND_OK, {self.read_alone:,} read from slaves left alone",
            f"with SEND_OK and missing there: {self.broken.get('missing', 0)}",
            f"stored twice: {self.broken.get('stored_twice', 0)}",
            f"catching up: {len(self.catch_ups)} times, median {ordered[len(ordered) // 2]:.2f} s, "
            f"longest {ordered[-1]:.2f} s",
        ]
        return "\n".join(lines)


async def run(count: int, seed: int, network: Network) -> Totals:
    totals, rng = Totals(), random.Random(seed)
    is_separate = isinstance(network, Namespaces)
    faults = plan(count, rng, with_network=is_separate)
    endings = (*ENDINGS, end_master_while_isolated) if is_separate else ENDINGS
    for number, at in enumerate(range(0, count, ROUND)):
        part, slaves = faults[at : at + ROUND], 1 + number % 2
        with tempfile.TemporaryDirectory(prefix="ariane-replication-") as directory:
            quiet, ending = number % 4 >= 2, endings[number // 2 % len(endings)]
            history, catch_ups = await run_round(
                Path(directory), network, slaves, part, rng.randrange(1 << 30), ending, quiet=quiet
            )
        print(f"{at + len(part)} faults, {slaves} slave(s), {ending.__name__}: {dict(history.statuses)}")
        totals.add(part, history, catch_ups)
        sys.stdout.flush()
    return totals


def main() -> int:
    logging.basicConfig(level=logging.CRITICAL)  # clients of a killed broker complain without end
    count = int(sys.argv[1]) if len(sys.argv) > 1 else FAULTS
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
    print(f"{count} faults, seed {seed}", flush=True)
    try:
        with Namespaces.open() as network:
            totals = asyncio.run(run(count, seed, network))
    except NotAllowed as error:
        print(f"no faults of networks and disks here: {error}")
        return NOT_ALLOWED
    print(totals.table())
    return 1 if totals.broken else 0


if __name__ == "__main__":
    sys.exit(main())
