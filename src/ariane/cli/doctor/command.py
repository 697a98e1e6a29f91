"""`ariane doctor`: what could keep Ariane from working here, found before it does."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import OutputFormat, Row, output_option, render

if TYPE_CHECKING:
    from ariane.cli.doctor.findings import Finding

_SIGNS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "failure": ("FAILURE", "red")}


@click.command(short_help="Check machine, cluster, store and settings.")
@click.option(
    "--store", type=click.Path(file_okay=False, path_type=Path), help="Also check this store directory and its disk."
)
@click.option(
    "-c",
    "--config",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Also check a broker's settings file, its ports and its store.",
)
@click.option(
    "--watch",
    "watch_s",
    type=click.FloatRange(0, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to look whether a group's lag grows.",
)
@connected
@output_option()
def doctor(store: Path | None, file: Path | None, watch_s: float, connection: Connection, output: OutputFormat) -> int:
    """Check this machine, a cluster, a store and a settings file, and say what to do about what is wrong.

    Looks only: nothing is changed, no offset moves. Without -n the cluster is checked if one runs here. Exits with 1
    when a check failed; a warning alone is no failure.

    \b
    Examples:
      ariane doctor
      ariane doctor -n 10.0.0.1:9876 -o json
      ariane doctor -c broker.conf --store /data/rocketmq/store
    """
    from ariane.cli.doctor.findings import Verdict
    from ariane.cli.doctor.run import all_findings

    found = list(_shown(all_findings(store, file, connection, watch_s), output))
    failed = sum(one.verdict is Verdict.FAILURE for one in found)
    warned = sum(one.verdict is Verdict.WARNING for one in found)
    click.echo(f"{len(found)} checks: {failed} failed, {warned} warning{'' if warned == 1 else 's'}", err=True)
    return 1 if failed else 0


def _shown(findings: Iterable["Finding"], output: OutputFormat) -> Iterator["Finding"]:
    """People see each finding when it is made; programs get rows."""
    found: list[Finding] = []
    for one in findings:
        found.append(one)
        if output is OutputFormat.TABLE:
            _print(one)
    if output is not OutputFormat.TABLE:
        render(_rows(found), output)
    return iter(found)


def _rows(found: Iterable["Finding"]) -> list[Row]:
    return [one.row() for one in found]


def _print(one: "Finding") -> None:
    word, colour = _SIGNS[one.verdict]
    cure = f"\n{' ' * 25}-> {one.cure}" if one.cure else ""
    is_plain = bool(os.environ.get("NO_COLOR"))  # no-color.org
    sign = f"{word:<8}" if is_plain else click.style(f"{word:<8}", fg=colour)
    click.echo(f"{sign} {one.check:<15} {one.found}{cure}")
