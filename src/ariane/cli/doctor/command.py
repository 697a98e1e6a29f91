"""`ariane doctor`: finds problems of the machine, the settings, the store and the cluster."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import OutputFormat, output_option, printable, render

if TYPE_CHECKING:
    from ariane.cli.doctor.findings import Finding

_SIGNS = {
    "ok": ("ok", "green"),
    "warning": ("warning", "yellow"),
    "failure": ("FAILURE", "red"),
    "not asked": ("not asked", "cyan"),
}


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
    help="How long to watch whether a group's lag grows.",
)
@connected
@output_option()
def doctor(store: Path | None, file: Path | None, watch_s: float, connection: Connection, output: OutputFormat) -> int:
    """Check this machine, a cluster, a store and a settings file, and suggest a fix for each problem.

    Changes nothing and moves no offset. Without -n, a cluster on this machine is checked if there is one. Exits with 1
    if a check failed; a warning does not count as failure, nor what could not be asked.

    \b
    Examples:
      ariane doctor
      ariane doctor -n 10.0.0.1:9876 -o json
      ariane doctor -c broker.conf --store /data/rocketmq/store
    """
    from ariane.cli.doctor.findings import Verdict
    from ariane.cli.doctor.run import all_findings

    findings = _print_all(all_findings(store, file, connection, watch_s), output)
    failed = sum(finding.verdict is Verdict.FAILURE for finding in findings)
    warned = sum(finding.verdict is Verdict.WARNING for finding in findings)
    silent = sum(finding.verdict is Verdict.NOT_ASKED for finding in findings)
    more = f", {silent} not asked" if silent else ""
    click.echo(f"{len(findings)} checks: {failed} failed, {warned} warning{'' if warned == 1 else 's'}{more}", err=True)
    return 1 if failed else 0


def _print_all(findings: Iterable["Finding"], output: OutputFormat) -> list["Finding"]:
    """A table is printed line by line, as the checks finish; the other formats at the end."""
    printed: list[Finding] = []
    for finding in findings:
        printed.append(finding)
        if output is OutputFormat.TABLE:
            _print(finding)
    if output is not OutputFormat.TABLE:
        render([finding.row() for finding in printed], output)
    return printed


def _print(finding: "Finding") -> None:
    word, colour = _SIGNS[finding.verdict]
    hint = f"\n{' ' * 26}-> {finding.hint}" if finding.hint else ""
    is_plain = bool(os.environ.get("NO_COLOR"))  # no-color.org
    sign = f"{word:<9}" if is_plain else click.style(f"{word:<9}", fg=colour)
    click.echo(f"{sign} {finding.check:<15} {printable(finding.found)}{hint}")
