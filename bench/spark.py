"""Benchmark of the Spark source, sink and jobs; goals are ratios within one run on one machine.

    python -m bench.spark [--mib 1024] [--rounds 4] [--turns 2] [--sizes 1024,8192] [--bodies 100] [--only direct]

Costs are rows for each processor second of the JVM, the Python workers and, where one takes part, the broker: on a
shared machine only that can be compared. Logs, and the output of readers and jobs, are in memory, if the machine has
/dev/shm; so no disk is measured. The broker's store and checkpoints are on disk. The figures are also saved in
bench/results/spark.json, from where `python -m bench.report` copies them to docs/performance.md.

A Spark job costs about half a second before it reads a row. Logs are so large that this is little of what is measured.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark import __version__ as spark_version
from pyspark.sql import SparkSession

from ariane.spark.jobs import archive, rebuild
from ariane.spark.jobs.archive import COLUMNS as ARCHIVED
from ariane.store.disk import RealDisk
from ariane.store.layout import Layout
from ariane.store.offline.rebuild import rebuild_store
from ariane.store.offline.verify_report import infer_file_sizes
from bench.arrow import DECODED_BYTES, SEVEN, known_starts, make_log, starts_of
from bench.spark_alone import ReaderRun, costs_in_turns, running, stages_in_turns
from bench.spark_broker import brokered
from bench.spark_cost import EARLY_READS, Cost, best_cost, best_costs
from bench.spark_figures import KEPT, Figure, keep, run_name
from bench.spark_reads import direct, discard, parquet, write_parquet, write_spark_parquet
from bench.spark_store import BenchStore, make_store
from bench.timing import us_per_call

SIZES = {"1 KiB": 1024, "100 B": 100}
TUPLE_MIB = 32
SETTLED_CORE_S = 100.0
"""How long a reader warms up before it is compared with another: until then the JVM's compiler takes a part of its
time, a sixth or a fifth of the direct reader's after 40 of these seconds, and makes it faster."""
_IN_MEMORY = "/dev/shm"
SIZE_ROUNDS = 3
RETURN_COUNT = "maxTransferCountOnMessageInMemory"
"""Setting of a broker: how many messages it returns for a pull, 32 by default."""
_OF_PARQUET = {"1 KiB": 0.75, "100 B": 0.55}
_STAGES = {
    "first": "first read",
    "early": f"reads 2 to {1 + EARLY_READS}",
    "best_early": f"best of 2 to {1 + EARLY_READS}",
    "settled": "settled",
}
_FLAT = 1.1  # a cost that grows by less has not grown


@dataclass
class Bench:
    arguments: argparse.Namespace
    directory: Path
    """For a broker's store and for checkpoints."""
    memory: Path
    """For logs."""
    run: str
    figures: list[Figure]

    def add(
        self, name: str, value: float, unit: str, *, at_least: float | None = None, at_most: float | None = None
    ) -> None:
        figure = Figure(name=name, value=round(value, 3), unit=unit, at_least=at_least, at_most=at_most, run=self.run)
        self.figures.append(figure)
        print(f"  {figure.line()}", flush=True)

    @property
    def rounds(self) -> int:
        return int(self.arguments.rounds)

    @contextmanager
    def store(self, body_bytes: int, mib: int) -> Iterator[BenchStore]:
        root = self.memory / f"store-{body_bytes}-{mib}"
        try:
            yield make_store(root, body_bytes, mib << 20)
        finally:
            shutil.rmtree(root, ignore_errors=True)

    # --- the parts --------------------------------------------------------------------------------------------------

    def bodies(self) -> Iterator[tuple[str, int]]:
        return ((label, size) for label, size in SIZES.items() if size in self.arguments.bodies)

    def decode(self) -> None:
        for label, size in self.bodies():
            log = make_log(size, DECODED_BYTES)
            starts = [starts_of(log)]
            us = us_per_call(partial(known_starts, log, SEVEN, starts))
            goal = {"1 KiB": 4, "100 B": 15}[label]
            self.add(f"decode, 7 columns, {label}", len(starts[0]) / us, "Mrow/core-s", at_least=goal)

    def direct(self) -> None:
        for label, size in self.bodies():
            with self.store(size, self.arguments.mib) as store:
                lake, sparks = self.memory / "parquet", self.memory / "parquet-by-spark"
                write_parquet(store, lake)
                with running(2) as spark:
                    write_spark_parquet(spark, lake, sparks)
                ours = self._beside_parquet(label, store, lake, sparks)
                self._in_one_session(label, store, lake)
                for path in (lake, sparks):
                    shutil.rmtree(path)
            self._beside_tuples(label, size, ours.per_core_s(store.rows))

    def _beside_parquet(self, label: str, store: BenchStore, lake: Path, sparks: Path) -> Cost:
        runs = [
            self._reader_run(*reader) for reader in (("direct", store.root), ("parquet", lake), ("parquet", sparks))
        ]
        in_stages = stages_in_turns(runs, self.arguments.turns)
        for name, when in _STAGES.items():
            ours, theirs, own = (getattr(stages, name) for stages in in_stages)
            for reader, cost in (("direct", ours), ("Parquet", theirs), ("Spark's own Parquet", own)):
                self.add(f"{reader}, {label}, {when}", cost.per_core_s(store.rows) / 1e3, "krow/core-s")
            for reader, cost in (("Parquet", theirs), ("Spark's own Parquet", own)):
                ratio = cost.cpu_s / ours.cpu_s
                self.add(f"direct / {reader}, {label}, {when}", ratio, "x", at_least=_OF_PARQUET[label])
        settled = in_stages[0].settled
        self.add(f"direct, {label}, settled, wall", settled.per_s(store.rows) / 1e3, "krow/s")
        return settled

    def _in_one_session(self, label: str, store: BenchStore, lake: Path) -> None:
        """Both readers, alternating, in one JVM: how much each slows the other."""
        with running(2) as spark:
            reads = (lambda: discard(direct(spark, store.root)), lambda: discard(parquet(spark, lake)))
            ours, theirs = best_costs(spark, reads, self.rounds, warm_core_s=SETTLED_CORE_S)
        ratio = theirs.cpu_s / ours.cpu_s
        self.add(f"direct / Parquet, one session for both, {label}", ratio, "x", at_least=_OF_PARQUET[label])

    def _beside_tuples(self, label: str, size: int, direct_per_core_s: float) -> None:
        with self.store(size, TUPLE_MIB) as small:
            (cost,) = costs_in_turns([ReaderRun(reader="tuples", path=str(small.root), rounds=1)], 1)
        self.add(f"tuple path, {label}", cost.per_core_s(small.rows) / 1e3, "krow/core-s")
        faster = direct_per_core_s / cost.per_core_s(small.rows)
        self.add(f"direct / tuples, {label}", faster, "x", at_least={"1 KiB": 5, "100 B": 8}[label])

    def _reader_run(self, reader: str, path: Path, cores: int = 2, *, pinned: bool = False) -> ReaderRun:
        return ReaderRun(
            reader=reader, path=str(path), rounds=self.rounds, cores=cores, pinned=pinned, warm_core_s=SETTLED_CORE_S
        )

    def archive(self) -> None:
        with running(2) as spark, self.store(1024, self.arguments.mib) as store:
            lake, own = self.memory / "archive", self.memory / "own"

            def ours() -> None:
                shutil.rmtree(lake, ignore_errors=True)
                archive.run(spark, {"storePath": str(store.root), "archivePath": str(lake)}, lambda progress: None)

            def sparks() -> None:
                frame = direct(spark, store.root, ",".join(name for name in ARCHIVED.names))
                frame.write.mode("overwrite").option("compression", "zstd").partitionBy("topic").parquet(str(own))

            costs = best_costs(spark, (ours, sparks), self.rounds)
            for path in (lake, own):
                shutil.rmtree(path, ignore_errors=True)
        for name, cost in zip(("job archive", "Spark's own writer, the same columns"), costs, strict=True):
            self.add(f"{name}, zstd, 1 KiB", cost.per_core_s(store.rows) / 1e3, "krow/core-s")
        self.add("archive / Spark's own writer", costs[1].cpu_s / costs[0].cpu_s, "x", at_least=2)

    def broker(self) -> None:
        count = int(self.arguments.messages)
        with running(2) as spark, brokered(spark, self.directory / "cluster") as on:
            topic = on.topic("bench-1k")
            sink = on.sink(topic, count, 1024, self.rounds)
            rows, read = on.read(topic, self.rounds)
            on.set_broker_setting(RETURN_COUNT, 128)
            _, wide = on.read(topic, self.rounds)
        shutil.rmtree(self.directory / "cluster", ignore_errors=True)
        self.add("topic sink, at least once, 1 KiB", sink.per_s(count) / 1e3, "krow/s", at_least=100)
        self.add("topic sink, broker's time included", sink.per_core_s(count) / 1e3, "krow/core-s")
        self.add("read through the broker, 1 KiB", read.per_s(rows) / 1e3, "krow/s", at_least=300)
        self.add("read through the broker, broker's time included", read.per_core_s(rows) / 1e3, "krow/core-s")
        self.add(f"read, {RETURN_COUNT}=128", wide.per_s(rows) / 1e3, "krow/s")
        self.add(f"per core-s, {RETURN_COUNT}=128", wide.per_core_s(rows) / 1e3, "krow/core-s")

    def idle(self) -> None:
        with running(2) as spark, brokered(spark, self.directory / "cluster") as on:
            idle_ms = on.idle_ms(on.topic("bench-idle"), self.directory / "checkpoint", self.arguments.batches)
        self.add("micro-batch of one message, median", idle_ms, "ms", at_most=300)

    def scaling(self) -> None:
        """One core is one processor, for the JVM and the workers together, and two cores are two."""
        with self.store(1024, self.arguments.mib) as store:
            runs = [self._reader_run("direct", store.root, cores, pinned=True) for cores in (1, 2)]
            one, two = costs_in_turns(runs, self.arguments.turns)
        self.add("direct reader, 1 -> 2 cores, wall", one.wall_s / two.wall_s, "x", at_least=1.7)

    def sizes(self) -> None:
        """Reads the large log once, and the small one so often that as much is read: one job each, with as many tasks.
        The minimum of several short rounds is lower than that of long ones, and a job has a cost of its own; neither is
        part of the cost of a row of a large log."""
        small_mib, large_mib = (int(size) for size in self.arguments.sizes.split(","))
        times = large_mib // small_mib
        with running(2) as spark, self.store(1024, small_mib) as small, self.store(1024, large_mib) as large:
            again = self.memory / "again"
            again.mkdir()
            for number in range(times):
                (again / str(number)).symlink_to(small.root)
            roots = (small.root, again / "*", large.root)
            reads = [partial(_discard_direct, spark, root) for root in roots]
            costs = best_costs(spark, reads, SIZE_ROUNDS, warm_core_s=SETTLED_CORE_S)
            shutil.rmtree(again)
        rows = (small.rows, small.rows * times, large.rows)
        names = (f"{small_mib} MiB", f"{small_mib} MiB, {times} times in one job", f"{large_mib} MiB")
        us = [cost.cpu_s / count * 1e6 for cost, count in zip(costs, rows, strict=True)]
        for name, row_us in zip(names, us, strict=True):
            self.add(f"direct reader, log of {name}", row_us, "core-us/row")
        self.add(f"cost of a row, {large_mib} MiB / {small_mib} MiB", us[2] / us[1], "x", at_most=_FLAT)

    def rebuild(self) -> None:
        with running(2) as spark, self.store(1024, self.arguments.rebuild_mib) as store:
            layout, disk = Layout.under(store.root), RealDisk()
            began = time.perf_counter()
            rebuild_store(
                disk,
                layout,
                infer_file_sizes(disk, layout),
                queues=True,
                index=True,
                discard_old=True,
                progress=lambda records: None,
            )
            alone_s = time.perf_counter() - began
            options = {"storePath": str(store.root), "discardOld": "true"}
            cost = best_cost(spark, lambda: rebuild.run(spark, options, lambda progress: None), self.rounds)
        self.add("rebuild in one process, wall", store.rows / alone_s / 1e3, "krow/s")
        self.add("job rebuild, wall", cost.per_s(store.rows) / 1e3, "krow/s")
        self.add("job rebuild / one process, wall", alone_s / cost.wall_s, "x", at_least=5)


def _discard_direct(spark: SparkSession, root: Path) -> None:
    discard(direct(spark, root))


PARTS = ("decode", "direct", "archive", "broker", "idle", "scaling", "sizes", "rebuild")


def main() -> None:
    parser = argparse.ArgumentParser(description="Figures of Ariane's Spark source, sink and jobs.")
    parser.add_argument("--mib", type=int, default=1024, help="of log, for each measurement")
    parser.add_argument("--rebuild-mib", type=int, default=4096, help="of log, to rebuild its queues and index")
    parser.add_argument("--messages", type=int, default=250_000, help="through the broker, in each round")
    parser.add_argument("--batches", type=int, default=40, help="micro-batches of one message")
    parser.add_argument("--rounds", type=int, default=4, help="after the warm-up")
    parser.add_argument("--turns", type=int, default=2, help="sessions for each reader that has one of its own")
    parser.add_argument("--sizes", default="1024,8192", help="MiB of a small and of a large log: a multiple of it")
    parser.add_argument("--bodies", type=int, nargs="+", choices=SIZES.values(), default=list(SIZES.values()))
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--directory", default=None, help="for all files, which are removed at the end")
    arguments = parser.parse_args()
    parts = [part for part in PARTS if part in arguments.only.split(",")]
    in_memory = arguments.directory or (_IN_MEMORY if os.path.isdir(_IN_MEMORY) else None)
    with (
        tempfile.TemporaryDirectory(prefix="bench-spark-", dir=arguments.directory) as directory,
        tempfile.TemporaryDirectory(prefix="bench-spark-", dir=in_memory) as memory,
    ):
        run_description = run_name(
            os.getloadavg()[0], log=f"{arguments.mib} MiB", rounds=arguments.rounds, messages=arguments.messages
        )
        bench = Bench(arguments, Path(directory), Path(memory), run_description, [])
        for part in parts:
            print(f"\n{part}", flush=True)
            run: Callable[[], None] = getattr(bench, part)
            run()
            keep(bench.figures, spark_version)
    print(f"\n{KEPT.name} written")


if __name__ == "__main__":
    main()
