"""Loads by Apache's Java client, as its users send and consume: many threads, one producer, both serialisations."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.java.program import JavaKind, JavaLoad, JavaPlan, JavaResult, LoadFailed, java_load
from bench.load.names import topic_name
from bench.load.plan import Kind, Wire
from bench.scenarios.loads import load
from bench.scenarios.scenario import LOAD_COLUMNS, Cases, Effort, Measured, Scenario
from bench.scenarios.warm_up import WINDOW_S, until_flat
from bench.systems.routes import await_route
from bench.systems.system import Flush, Running, Setup
from interop.apache import Serialisation

SERIALISATIONS: Mapping[str, Serialisation] = {"binary": "ROCKETMQ", "JSON": "JSON"}
FAILED_SHARE_MAX = 0.05
"""Of the requests of a measurement. Apache's broker refuses what waited for 200 ms, so some may fail."""
FILLED, QUICK_FILLED = 400_000, 20_000
"""Messages of the topic of a consumer."""
CONSUMED_S = 2.5
"""The least time in which they are consumed."""
WARM_SHARE = 0.25
"""Of the measured time, before each measurement: new connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaCase:
    kind: JavaKind
    threads: int = 1
    body_bytes: int = 1024
    batch: int = 1
    topic: int = 0


SINGLE_SENDS = {
    f"{body}, {threads} threads": JavaCase(kind=JavaKind.SEND, threads=threads, body_bytes=size)
    for body, size in (("1 KiB", 1024), ("128 B", 128))
    for threads in (16, 64)
}
SYNC_SENDS = {label: SINGLE_SENDS[label] for label in ("1 KiB, 16 threads", "1 KiB, 64 threads", "128 B, 64 threads")}
BATCHES = {"16 x 128 B, 16 threads": JavaCase(kind=JavaKind.BATCH, threads=16, body_bytes=128, batch=16)}
TRANSACTIONS = {"1 KiB, 32 threads": JavaCase(kind=JavaKind.TRANSACTION, threads=32)}
CONSUMERS = {
    "1 KiB": JavaCase(kind=JavaKind.CONSUME),
    "128 B": JavaCase(kind=JavaKind.CONSUME, body_bytes=128, topic=1),
}


class JavaLoads(Scenario):
    """The cases with each serialisation; the first of the cases is the load of the warm-up."""

    wires = frozenset({Wire.ROCKETMQ})
    columns = tuple(column for column in LOAD_COLUMNS if column.figure != "p999_us")

    def __init__(self, name: str, title: str, cases: Mapping[str, JavaCase], flush: Flush = Flush.ASYNC) -> None:
        self.name = name
        self.title = f"Apache's Java client: {title}, {flush} flush"
        self._cases = cases
        self._flush = flush
        self._programs: dict[str, JavaLoad] = {}

    def setups(self, effort: Effort) -> Mapping[str, Setup]:
        return {"": Setup(flush=self._flush, topics=1 + max(case.topic for case in self._cases.values()))}

    def open(self, stack: ExitStack, effort: Effort) -> None:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ariane-bench-java-")))
        self._programs = {
            word: stack.enter_context(java_load(serialisation, home / word))
            for word, serialisation in SERIALISATIONS.items()
            if any(effort.wants(_label(word, label)) for label in self._cases)
        }

    def begin(self, running: Running, setup: str, effort: Effort, stack: ExitStack) -> Cases:
        self._fill(running, effort)
        for program in self._programs.values():
            self._warm_up(running, program, effort)
        return {
            _label(word, label): partial(_measure, running, program, case, _label(word, label), effort)
            for word, program in self._programs.items()
            for label, case in list(self._cases.items())[: 1 if effort.is_quick else None]
        }

    def _warm_up(self, running: Running, program: JavaLoad, effort: Effort) -> None:
        case = next(iter(self._cases.values()))
        window_s = CONSUMED_S if case.kind is JavaKind.CONSUME else WINDOW_S
        until_flat(
            running, effort, lambda seconds: _run(running, program, case, 0.0, seconds, effort).server_us, window_s
        )

    def _fill(self, running: Running, effort: Effort) -> None:
        """What consumers will consume."""
        for case in self._cases.values():
            if case.kind is JavaKind.CONSUME:
                load(
                    running,
                    Kind.SEND,
                    connections=16,
                    in_flight=16,
                    body_bytes=case.body_bytes,
                    requests=_filled(effort),
                    topic_first=case.topic,
                )


def _filled(effort: Effort) -> int:
    return QUICK_FILLED if effort.is_quick else FILLED


def java_labels(cases: Mapping[str, JavaCase]) -> Iterator[tuple[str, JavaCase]]:
    """With each serialisation, in the order of the tables."""
    for serialisation in SERIALISATIONS:
        for label, case in cases.items():
            yield _label(serialisation, label), case


def _label(serialisation: str, case: str) -> str:
    return f"{serialisation} {case}"


def _run(
    running: Running, program: JavaLoad, case: JavaCase, warm_s: float, seconds: float, effort: Effort
) -> JavaResult:
    await_route(running)
    plan = JavaPlan(
        kind=case.kind,
        nameserver=running.nameserver,
        topic=topic_name(case.topic),
        threads=case.threads,
        body_bytes=case.body_bytes,
        batch=case.batch,
        messages=_filled(effort),
        warm_seconds=warm_s,
        seconds=seconds,
    )
    return program.run(plan, running.servers)


def _measure(running: Running, program: JavaLoad, case: JavaCase, label: str, effort: Effort) -> Measured:
    result = _run(running, program, case, effort.seconds * WARM_SHARE, effort.seconds, effort)
    if result.failures > FAILED_SHARE_MAX * (result.requests + result.failures):
        raise LoadFailed(f"{result.failures} requests failed beside {result.requests}: {result.first_error}")
    figures = {
        "messages_per_s": result.messages_per_s,
        "server_us": result.server_us,
        "generator_us": result.own_us,
        "rss_mb": running.rss_bytes() / 1e6,
        "rss_anon_mb": running.rss_bytes("RssAnon") / 1e6,
        "refused": result.failures,
    }
    if case.kind is not JavaKind.CONSUME:
        figures |= {"p50_us": result.p50_us, "p99_us": result.p99_us, "p999_us": result.p999_us}
    return Measured(label, figures, note=result.first_error)


def java_scenarios() -> list[Scenario]:
    return [
        JavaLoads("java-sends", "single sends", SINGLE_SENDS),
        JavaLoads("java-sends-sync", "single sends", SYNC_SENDS, Flush.SYNC),
        JavaLoads("java-batches", "batches", BATCHES),
        JavaLoads("java-transactions", "transactions that commit", TRANSACTIONS),
        JavaLoads("java-consumer", "push consumer", CONSUMERS),
    ]
