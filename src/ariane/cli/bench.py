"""`ariane bench run`: the comparison with other systems, which needs the source tree.

It fetches and starts other people's servers and writes its report into docs/, so it is not part of the installed
package; from a clone this command finds it.
"""

import subprocess
import sys
from pathlib import Path

import click

import ariane as package

_PROGRAM = Path("bench") / "compare.py"


@click.group()
def bench() -> None:
    """Measure Ariane beside other systems.

    \b
    Examples:
      ariane bench run --quick
    """


@bench.command(
    context_settings={"ignore_unknown_options": True}, short_help="Start each system in turn, and print the ratios."
)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def run(options: tuple[str, ...]) -> int:
    """Start each system in turn, drive all with one load generator, and print the ratios.

    Apache RocketMQ (needs Java and Maven), NATS JetStream and Redis Streams are fetched when they are not here; one
    that cannot be had is reported as missing. All of it takes most of an hour. Only in a clone of Ariane.

    \b
    Options:
      --quick            a smoke run; nothing is kept
      --only NAME ...    some scenarios
      --peers LIST       apache,nats,redis
      --brokers N        also measure N broker processes
      --repeats N, --seconds S

    \b
    Examples:
      ariane bench run --quick
      ariane bench run --only sends-async batches --peers apache
    """
    root = source_tree()
    return subprocess.run([sys.executable, "-m", "bench.compare", *options], cwd=root, check=False).returncode  # noqa: S603 - our own program


def source_tree() -> Path:
    """Where this package was installed from, when that is a clone; else the current directory, when it is one."""
    for root in (Path(package.__file__).resolve().parents[2], Path.cwd()):
        if (root / _PROGRAM).is_file():
            return root
    raise click.ClickException(
        "the comparison is in Ariane's source tree, not in the installed package: clone it and run make bench there"
    )
