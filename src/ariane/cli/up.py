"""`ariane up`: a nameserver and brokers in one command, to try things out and to develop against."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from ariane.cli.collector import collector_asleep
from ariane.cli.up_notice import DATA, posted
from ariane.cli.up_plan import BROKERS_MAX, UpPlan
from ariane.logs import LogForm, configure

_PORT = click.IntRange(0, 65_535)


@click.command(short_help="Run a nameserver and a broker here, until Ctrl-C.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=DATA,
    show_default=True,
    metavar="DIR",
    help="Where messages and settings are kept.",
)
@click.option("--tmp", is_flag=True, help="Keep nothing: a throw-away directory instead of --data.")
@click.option("--port", type=_PORT, default=9876, show_default=True, help="Port of the nameserver; 0 for a free one.")
@click.option(
    "--broker-port",
    type=_PORT,
    default=10911,
    show_default=True,
    help="Port of the first broker, which also takes the one two below; the next broker is ten above. 0 for free ones.",
)
@click.option(
    "--brokers",
    type=click.IntRange(1, BROKERS_MAX),
    default=1,
    show_default=True,
    help="How many brokers; from two on, each is a process of its own.",
)
@click.option("--demo", is_flag=True, help="Feed the topic `orders` with a stream of orders, 1 % of them bad.")
@click.option(
    "--demo-rate",
    type=click.FloatRange(min=0.01, max=100_000),
    default=20.0,
    show_default=True,
    metavar="N",
    help="Events a second of --demo.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    show_default=True,
    help="Least urgent lines to log on stderr.",
)
@collector_asleep()
def up(
    data: Path, tmp: bool, port: int, broker_port: int, brokers: int, demo: bool, demo_rate: float, log_level: str
) -> None:
    """Run a nameserver and a broker in the foreground until Ctrl-C: everything to try Ariane out.

    The first send makes a topic. Other commands in this directory find these servers by themselves. When all are ready,
    the first line on stdout says so, then come the addresses and what to try next. For servers of your own making see
    `ariane namesrv` and `ariane broker`.

    \b
    Examples:
      ariane up
      ariane up --tmp --demo
      ariane up --data shop --brokers 3
    """
    from ariane.cli.serving import run_server
    from ariane.cli.up_session import Session

    configure(log_level, LogForm.TEXT, sys.stderr)
    with _directory(data, tmp) as directory, posted(directory) as notice:
        plan = UpPlan(data=directory, port=port, broker_port=broker_port, brokers=brokers)
        session = Session(plan, notice, demo_rate if demo else None, log_level)
        run_server("up", session.serve)


@contextmanager
def _directory(data: Path, tmp: bool) -> Iterator[Path]:
    if not tmp:
        yield data
        return
    directory = Path(tempfile.mkdtemp(prefix="ariane-up-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
