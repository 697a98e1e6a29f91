"""The main job end to end: `make demo` runs this.

It starts a nameserver and a broker, real processes with real sockets and files, and shows each kind of message, a group
that shares its queues anew, a kill -9 that loses nothing, and a stream of orders through Spark. It ends with a summary,
and with exit status 1 when anything is not as it should be. Nothing stays behind.
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

from ariane.client.admin import Admin
from ariane.client.producer.producer import Producer
from examples import demo_choices, demo_groups, demo_looks, demo_pulls, demo_sends, demo_times
from examples.demo_crash import survives_a_kill
from examples.demo_pipeline import COLUMNS, Turnover, compare, feed, run_pipeline
from examples.demo_servers import Server, broker, nameserver, verify_store
from examples.demo_stage import Kind, Row, Stage

KINDS: dict[str, Kind] = {
    "normal": demo_sends.normal,
    "asynchronous": demo_sends.asynchronous,
    "one-way": demo_sends.one_way,
    "batch": demo_sends.batch,
    "linger batch": demo_sends.lingering,
    "compressed": demo_sends.large,
    "ordered": demo_choices.ordered,
    "delay level": demo_times.delay_level,
    "delivery time": demo_times.deliver_at,
    "transaction: commit": demo_times.commit,
    "transaction: rollback": demo_times.rollback,
    "transaction: unknown": demo_times.check_back,
    "tag filter": demo_choices.tag_filter,
    "SQL filter": demo_choices.sql_filter,
    "broadcast": demo_choices.broadcast,
    "retry": demo_choices.retry,
    "dead letter": demo_choices.dead_letter,
    "request-reply": demo_looks.request_reply,
    "trace": demo_looks.trace,
    "query": demo_looks.query,
    "reset offset": demo_looks.reset_offset,
    "pull": demo_pulls.pull,
    "lite pull": demo_pulls.lite_pull,
    "scheduled pull": demo_pulls.scheduled_pull,
    "rebalance": demo_groups.rebalance,
}
KIND_TIMEOUT_S = 40.0
NEXT = """Next:
  .venv/bin/ariane up --demo          a broker with a stream of orders; it prints what to try
  .venv/bin/ariane learn              how it works inside, in 16 short lessons
and docs/start.md for the rest."""

console = Console(width=110, highlight=False)  # the same table in a narrow terminal, a log or a pipe


async def run(stage: Stage, name: str, kind: Kind) -> tuple[str, Row]:
    try:
        async with asyncio.timeout(KIND_TIMEOUT_S):
            return name, await kind(stage)
    except Exception as error:  # the edge of the demo: the other kinds are still worth showing
        return name, Row(0, 0, f"{type(error).__name__}: {error}", False)


async def run_all(nameserver_address: str, root: Path) -> dict[str, Row]:
    """All at the same time: most of them wait, for a delay or for a question."""
    async with (
        Admin(nameserver_address) as admin,
        Producer(nameserver_address, group="demo-senders", send_timeout_s=10) as producer,
    ):
        stage = Stage(nameserver_address, root, admin, producer)
        return dict(await asyncio.gather(*(run(stage, name, kind) for name, kind in KINDS.items())))


def show(rows: dict[str, Row]) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("kind", no_wrap=True)
    table.add_column("sent", justify="right")
    table.add_column("received", justify="right")
    table.add_column("what was shown", overflow="fold")
    table.add_column("")
    for name, row in rows.items():
        table.add_row(name, str(row.sent), str(row.received), row.shown, "[green]✓[/]" if row.ok else "[red]✗[/]")
    console.print(table)


def orders_by_spark(nameserver_address: str, work: Path) -> Turnover:
    with console.status("a stream of orders through Spark: `ariane pipeline run orders --once`"):
        asyncio.run(feed(nameserver_address))
        done = run_pipeline(nameserver_address, work)
    if done.returncode:
        return Turnover(False, f"the pipeline ended with {done.returncode}: {done.stderr.strip()}", [])
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


def line(ok: bool, text: str) -> bool:
    console.print("[green]✓[/]" if ok else "[red]✗[/]", text, markup=True)
    return ok


def stopped(what: str, server: Server) -> bool:
    return line(server.exit_status == 0, f"{what} stopped, exit status {server.exit_status}")


def main(*, with_spark: bool = True) -> int:
    logging.getLogger("ariane").setLevel(logging.CRITICAL)  # failing handlers are part of the show
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ariane-demo-") as directory:
        root = Path(directory)
        with nameserver(root) as names:
            line(True, names.ready)
            with broker(root, names.address) as keeper:
                line(True, keeper.ready)
                with console.status(f"{len(KINDS)} kinds of messages, all at the same time"):
                    rows = asyncio.run(run_all(names.address, root))
                turnover = orders_by_spark(names.address, root / "orders") if with_spark else None
            with console.status("kill -9 while messages are sent"):
                survived, crash = asyncio.run(survives_a_kill(root / "crash", names.address))
        show(rows)
        if turnover is not None:
            show_turnover(turnover)
        verified, words = verify_store(root)
        fine = [stopped("broker", keeper), stopped("namesrv", names), line(verified, f"ariane store verify: {words}")]
        fine.append(line(survived, crash))
        if turnover is not None:
            fine.append(line(turnover.ok, f"Spark: {turnover.words}"))
    failed = [name for name, row in rows.items() if not row.ok]
    console.print(f"\n{len(rows) - len(failed)} of {len(rows)} kinds as expected, in {time.monotonic() - began:.0f} s.")
    console.print(NEXT)
    return 0 if not failed and all(fine) else 1


if __name__ == "__main__":
    sys.exit(main(with_spark="--without-spark" not in sys.argv[1:]))
