"""A thousand idle consumers on long polling, and what they cost."""

import select
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial

from bench.scenarios.long_polls import LongPoll, open_long_poll
from bench.scenarios.scenario import Cases, Column, Effort, Measured, Scenario
from bench.systems.system import Running, Setup

CONSUMERS, QUICK_CONSUMERS = 1_000, 50
QUEUES = 8
SECONDS = 20.0
"""RocketMQ's requests wait 20 s, so each is renewed once in this time."""


class IdleConsumers(Scenario):
    name = "idle-consumers"
    alone = True
    rounds_max = 1
    title = "1,000 consumers on long polling, a connection each, no messages"
    columns = (
        Column("cpu_percent", "CPU %", ".2f", ratio=True),
        Column("rss_mb", "RSS MB", ratio=True),
        Column("consumer_kb", "kB a consumer", ".1f", ratio=True),
    )

    def setups(self, effort: Effort) -> Mapping[str, Setup]:
        return {"": Setup(topics=_count(effort) // QUEUES + 1, queues=QUEUES)}

    def begin(self, running: Running, setup: str, effort: Effort, stack: ExitStack) -> Cases:
        return {"": partial(_measure, running, effort)}


def _measure(running: Running, effort: Effort) -> Measured:
    count = _count(effort)
    rss_before = running.rss_bytes()
    with ExitStack() as stack:
        polls = [open_long_poll(running, number // QUEUES, number % QUEUES, number) for number in range(count)]
        for poll in polls:
            stack.enter_context(poll.peer)
            poll.send(0)
        cpu_s, began = running.cpu_s(), time.perf_counter()
        _keep_waiting(polls, 1.0 if effort.is_quick else SECONDS)
        cpu_s, elapsed_s = running.cpu_s() - cpu_s, time.perf_counter() - began
        rss = running.rss_bytes()
    figures = {
        "cpu_percent": cpu_s / elapsed_s * 100,
        "rss_mb": rss / 1e6,
        "consumer_kb": (rss - rss_before) / count / 1e3,
    }
    return Measured(f"{count:,} consumers", figures)


def _count(effort: Effort) -> int:
    return QUICK_CONSUMERS if effort.is_quick else CONSUMERS


def _keep_waiting(polls: list[LongPoll], seconds: float) -> None:
    """A poll that returns without a message is repeated, as consumers do."""
    by_fd = {poll.peer.fileno(): poll for poll in polls}
    deadline = time.perf_counter() + seconds
    with select.epoll() as ready:
        for fd in by_fd:
            ready.register(fd, select.EPOLLIN)
        while (left := deadline - time.perf_counter()) > 0:
            for fd, _ in ready.poll(left):
                if not by_fd[fd].peer.recv(65_536):
                    raise ConnectionError("the server closed a connection that waited for a message")
                by_fd[fd].send(0)
