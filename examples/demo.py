"""End-to-end demo; run it with `make demo`.

It starts a nameserver and a broker as processes, and shows each kind of message, a rebalance, a kill -9 without message
loss, and a stream of orders through Spark. It prints a summary; the exit status is 1 if a result is not as expected.
All files are in a temporary directory that is removed at the end.
"""

import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from ariane import Admin, Producer
from examples import (
    demo_admin,
    demo_consumption,
    demo_delays,
    demo_pulls,
    demo_rebalance,
    demo_sends,
    demo_transactions,
)
from examples.demo_common import Demo, DemoCluster, Result
from examples.demo_crash import survives_a_kill
from examples.demo_pipeline import COLUMNS, Turnover, compare, run_pipeline, send_orders
from examples.demo_servers import Server, broker, nameserver, verify_store

DEMOS: dict[str, Demo] = {
    "normal": demo_sends.normal,
    "asynchronous": demo_sends.asynchronous,
    "one-way": demo_sends.one_way,
    "batch": demo_sends.batch,
    "linger batch": demo_sends.lingering,
    "compressed": demo_sends.large,
    "ordered": demo_consumption.ordered,
    "delay level": demo_delays.delay_level,
    "delivery time": demo_delays.deliver_at,
    "transaction: commit": demo_transactions.commit,
    "transaction: rollback": demo_transactions.rollback,
    "transaction: unknown": demo_transactions.check_back,
    "tag filter": demo_consumption.tag_filter,
    "SQL filter": demo_consumption.sql_filter,
    "broadcast": demo_consumption.broadcast,
    "retry": demo_consumption.retry,
    "dead letter": demo_consumption.dead_letter,
    "request-reply": demo_sends.request_reply,
    "trace": demo_admin.trace,
    "query": demo_admin.query,
    "reset offset": demo_admin.reset_offset,
    "pull": demo_pulls.pull,
    "lite pull": demo_pulls.lite_pull,
    "scheduled pull": demo_pulls.scheduled_pull,
    "rebalance": demo_rebalance.rebalance,
}
DEMO_TIMEOUT_S = 40.0
NEXT = """Next:
  .venv/bin/ariane up --demo          a broker with a stream of orders; prints commands to try
  .venv/bin/ariane learn              how it works inside, in 16 short lessons
See docs/start.md for more."""

console = Console(width=110, highlight=False)  # a fixed width, also in a log or a pipe


async def run(cluster: DemoCluster, name: str, demo: Demo) -> tuple[str, Result]:
    try:
        async with asyncio.timeout(DEMO_TIMEOUT_S):
            return name, await demo(cluster)
    except Exception as error:  # a failed demo must not stop the others
        return name, Result(0, 0, f"{type(error).__name__}: {error}", False)


async def run_all(nameserver_address: str, root: Path) -> dict[str, Result]:
    """Runs all demos concurrently: most of them wait for a delay or a check."""
    async with (
        Admin(nameserver_address) as admin,
        Producer(nameserver_address, group="demo-senders", send_timeout_s=10) as producer,
    ):
        cluster = DemoCluster(nameserver_address, root, admin, producer)
        return dict(await asyncio.gather(*(run(cluster, name, demo) for name, demo in DEMOS.items())))


def show(results: dict[str, Result]) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("kind", no_wrap=True)
    table.add_column("sent", justify="right")
    table.add_column("received", justify="right")
    table.add_column("result", overflow="fold")
    table.add_column("")
    for name, result in results.items():
        table.add_row(
            name,
            str(result.sent),
            str(result.received),
            result.description,
            "[green]✓[/]" if result.ok else "[red]✗[/]",
        )
    console.print(table)


def orders_by_spark(nameserver_address: str, work: Path) -> Turnover:
    with console.status("a stream of orders through Spark: `ariane pipeline run orders --once`"):
        asyncio.run(send_orders(nameserver_address))
        done = run_pipeline(nameserver_address, work)
    if done.returncode:
        return Turnover(False, f"the pipeline failed with exit status {done.returncode}: {done.stderr.strip()}", [])
    return asyncio.run(compare(nameserver_address, work))


def show_turnover(turnover: Turnover) -> None:
    table = Table(
        box=box.SIMPLE_HEAD, padding=(0, 1), title="turnover by window and region, first rows", title_justify="left"
    )
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("start", "region", "currency") else "right")
    for row in turnover.rows[:8]:
        table.add_row(*(f"{row[name]:%H:%M:%S}" if name == "start" else str(row[name]) for name in COLUMNS))
    console.print(table)


def print_check(ok: bool, text: str) -> bool:
    console.print("[green]✓[/]" if ok else "[red]✗[/]", text, markup=True)
    return ok


def check_stopped(name: str, server: Server) -> bool:
    return print_check(server.exit_status == 0, f"{name} stopped, exit status {server.exit_status}")


def main(*, with_spark: bool = True) -> int:
    logging.getLogger("ariane").setLevel(logging.CRITICAL)  # failing handlers are part of the demo
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ariane-demo-") as directory:
        root = Path(directory)
        with nameserver(root) as names:
            print_check(True, names.ready)
            with broker(root, names.address) as broker_server:
                print_check(True, broker_server.ready)
                with console.status(f"{len(DEMOS)} kinds of messages, concurrently"):
                    results = asyncio.run(run_all(names.address, root))
                turnover = orders_by_spark(names.address, root / "orders") if with_spark else None
            with console.status("kill -9 while messages are sent"):
                survived, crash_text = asyncio.run(survives_a_kill(root / "crash", names.address))
        show(results)
        if turnover is not None:
            show_turnover(turnover)
        verified, summary = verify_store(root)
        checks = [
            check_stopped("broker", broker_server),
            check_stopped("namesrv", names),
            print_check(verified, f"ariane store verify: {summary}"),
        ]
        checks.append(print_check(survived, crash_text))
        if turnover is not None:
            checks.append(print_check(turnover.ok, f"Spark: {turnover.summary}"))
    failed = [name for name, result in results.items() if not result.ok]
    console.print(
        f"\n{len(results) - len(failed)} of {len(results)} kinds as expected, in {time.monotonic() - began:.0f} s."
    )
    console.print(NEXT)
    return 0 if not failed and all(checks) else 1


if __name__ == "__main__":
    sys.exit(main(with_spark="--without-spark" not in sys.argv[1:]))
