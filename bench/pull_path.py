"""CPU of a pull inside the broker, without sockets: frames into a connection, answers into nothing.

    python -m bench.pull_path [--chunk 4] [--count 32] [--body 1024] [--queues 8] [--binary] [--profile] [--checks]

The broker is whole, with store, checks and counters; only the kernel's part of the network is left out, so the figures
hold on a busy machine, too. The queues lie interleaved in one log, as when producers send to all of them. "one copy" is
the time to copy as many bytes of the log in pieces of a record's size: no pull can take less. --profile shows where the
time goes: shares, not microseconds, for profiling slows calls.

--checks shows what the checks of block checksums cost (store/commit_log/checked_blocks.py), with one pull in a read:
CPU of all threads and time, for messages that were just written, for older ones that were checked, for the first touch
of cached ones, and for those that come from the disk, with a check and without.
"""

import argparse
import asyncio
import cProfile
import mmap
import os
import pstats
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ariane.store.message_store import MessageStore
from ariane.transport.connection import Connection
from bench.in_process import Nowhere, broker_on, connection_to, on_a_store
from bench.load.names import topic_name
from bench.load.plan import Kind, LoadPlan, Serialization, Wire
from bench.load.rocketmq import OFFSET_FIRST
from bench.load.rocketmq_responses import PullResponses
from bench.load.wires import response_reader, ring_of
from bench.systems.broker_files import write_topics
from bench.systems.system import Setup

ROUNDS = 12
FILLED = OFFSET_FIRST + 4_096
"""Messages of each queue."""


async def measure(chosen: argparse.Namespace, root: Path) -> None:
    write_topics(root, Setup(queues=chosen.queues))
    async with broker_on(root) as broker:
        transport = Answered()
        connection = connection_to(broker, transport)
        await fill(connection, chosen)
        plan = plan_of(chosen, Kind.PULL)
        if chosen.checks:
            await measure_checks(broker.parts.store.store, connection, transport, plan)
            return
        chunks = chunks_of(plan, chosen.chunk)
        pulls = len(chunks) * chosen.chunk
        best_us = copy_us = float("inf")
        profile = cProfile.Profile()
        for number in range(ROUNDS):
            if chosen.profile and number:
                profile.enable()
            spent_s = feed(connection, chunks)
            profile.disable()
            best_us = min(best_us, spent_s / pulls * 1e6)
            copy_us = min(copy_us, copy(broker.parts.store.store, chosen) * 1e6)
            check(plan, transport, chosen)
            await asyncio.sleep(0.01)
    headers = "binary" if chosen.binary else "JSON"
    shape = f"{headers}, chunks of {chosen.chunk} pulls of {chosen.count} x {chosen.body} B, {chosen.queues} queues"
    print(f"{best_us:.1f} us a pull, one copy {copy_us:.1f}: best of {ROUNDS}, {shape}")
    if chosen.profile:
        pstats.Stats(profile).strip_dirs().sort_stats("tottime").print_stats(40)


class Answered(Nowhere):
    """Tells when all was answered: who asks again and again keeps the threads from their work."""

    def __init__(self) -> None:
        super().__init__(kept=1)
        self.responses: PullResponses | None = None
        self.awaited = 0
        self.is_answered = asyncio.Event()

    def write(self, data: Any) -> None:
        super().write(data)
        if self.responses is not None:
            self.awaited -= len(self.responses.feed(data))
            if self.awaited <= 0:
                self.is_answered.set()


async def fill(connection: Connection, chosen: argparse.Namespace) -> None:
    """The queues in turn, so that it is known where each message lies."""
    ring = ring_of(plan_of(chosen, Kind.FILL))
    for _ in range(0, FILLED * chosen.queues, 64):
        connection.data_received(b"".join(bytes(piece.data) for piece in ring.take(64)))
        await asyncio.sleep(0)


def plan_of(chosen: argparse.Namespace, kind: Kind) -> LoadPlan:
    return LoadPlan(
        wire=Wire.ROCKETMQ,
        kind=kind,
        addresses=(),
        connections=1,
        in_flight=chosen.chunk,
        body_bytes=chosen.body,
        queues=chosen.queues,
        messages_a_request=chosen.count if kind is Kind.PULL else 1,
        filled=FILLED,
        serialization=Serialization.BINARY if chosen.binary else Serialization.JSON,
    )


def chunks_of(plan: LoadPlan, chunk: int) -> list[bytes]:
    """Every pull of one walk through all queues, so many in one read."""
    ring = ring_of(plan)
    return [b"".join(bytes(piece.data) for piece in ring.take(chunk)) for _ in range(ring.count // chunk)]


def feed(connection: Connection, chunks: list[bytes]) -> float:
    began = time.process_time()
    for chunk in chunks:
        connection.data_received(chunk)
    return time.process_time() - began


# --- checks of block checksums ---


async def measure_checks(
    store: MessageStore, connection: Connection, transport: Answered, plan: LoadPlan, rounds: int = 5
) -> None:
    alone, together = chunks_of(plan, 1), chunks_of(plan, plan.queues)
    log = store.components.commit_log
    checks = log.checks
    assert checks is not None

    async def show(name: str, prepare: Callable[[], None] = lambda: None, pulls: int = 1) -> None:
        costs = []
        for _ in range(rounds):
            prepare()
            transport.responses = PullResponses()
            costs.append(await feed_in_turn(connection, transport, alone if pulls == 1 else together, pulls))
        cpu_us, time_us = (min(column) * 1e6 for column in zip(*costs, strict=True))
        print(f"{name:44} {cpu_us:7.1f} us of CPU, {time_us:7.1f} us a pull")

    def evict() -> None:
        checks.forget_all()
        for segment in log.segments:
            mapped = segment.file.view().obj
            assert isinstance(mapped, mmap.mmap)
            mapped.madvise(mmap.MADV_DONTNEED)
            descriptor = os.open(segment.path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)

    await show("just written")
    store.make_durable()
    transport.responses = PullResponses()
    await feed_in_turn(connection, transport, alone, 1)
    await show("older than the last checkpoint, checked")
    await show("first touch, in the page cache", checks.forget_all)
    await show("the same, a pull of each queue at once", checks.forget_all, plan.queues)
    await show("first touch, from the disk", evict)
    log.checks = None
    await show("the same without a check", evict)
    log.checks = checks


async def feed_in_turn(
    connection: Connection, transport: Answered, chunks: list[bytes], pulls: int
) -> tuple[float, float]:
    """CPU of all threads, and time, of one pull; `pulls` of them are in each chunk."""
    began, began_cpu = time.perf_counter(), time.process_time()
    for chunk in chunks:
        transport.is_answered.clear()
        transport.awaited = pulls
        connection.data_received(chunk)
        await transport.is_answered.wait()
    total = pulls * len(chunks)
    return (time.process_time() - began_cpu) / total, (time.perf_counter() - began) / total


def copy(store: MessageStore, chosen: argparse.Namespace) -> float:
    """Seconds to join the records of one pull, without finding them and without an answer around them."""
    reader, topic, times = store.reader, topic_name(0), 200
    results = [
        reader.read(topic, number % chosen.queues, OFFSET_FIRST + number // chosen.queues * chosen.count, chosen.count)
        for number in range(times)
    ]
    began = time.process_time()
    for result in results:
        b"".join(result.slices)
    return (time.process_time() - began) / times


def check(plan: LoadPlan, transport: Nowhere, chosen: argparse.Namespace) -> None:
    """The last pulls were answered in full, or the figure would be that of refusals."""
    responses = response_reader(plan)
    answered = len(responses.feed(transport.written[-1]))
    assert not responses.refused, responses.first_error
    assert answered, "nothing was answered"
    assert responses.messages == answered * chosen.count, f"{responses.messages} messages in {answered} answers"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--chunk", type=int, default=4, help="pulls in one read")
    options.add_argument("--count", type=int, default=32, help="messages in one pull, at most 32")
    options.add_argument("--body", type=int, default=1024)
    options.add_argument("--queues", type=int, default=8)
    options.add_argument("--binary", action="store_true", help="binary headers instead of JSON ones")
    options.add_argument("--profile", action="store_true")
    options.add_argument("--checks", action="store_true", help="what the checks of block checksums cost")
    on_a_store(partial(measure, options.parse_args()))


if __name__ == "__main__":
    main()
