"""`ariane store`: look into the files of a store, check them, make anew what can be made from the log."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ariane.cli.common.output import OutputFormat, Row, output_option, print_json, render
from ariane.cli.store.inspect import index_slots_option, inspect, store_argument
from ariane.errors import StoreCorrupt

if TYPE_CHECKING:
    from ariane.store.layout import Layout
    from ariane.store.offline.verify_report import Report


# --- store_clean ---
#
# `ariane store clean`: let old files go by hand, on a store that no broker runs on.


@click.command(short_help="Delete commit log files that are old enough.")
@store_argument
@click.option("--hours", type=click.IntRange(min=0), default=72, show_default=True, help="Age at which a file may go.")
@index_slots_option
def clean(layout: "Layout", hours: int, index_slots: int | None) -> None:
    """Delete commit log files that are old enough, and what queues and index hold of them.

    No broker may run on the store: a running one cleans by itself. The last file stays, however old it is.

    \b
    Example:
      ariane store clean store --hours 24
    """
    from dataclasses import replace

    from ariane.clock import Clock
    from ariane.errors import StoreMismatch
    from ariane.store.disk import RealDisk
    from ariane.store.lock import locked
    from ariane.store.message_store import MessageStore
    from ariane.store.offline.verify import log_files
    from ariane.store.offline.verify_report import infer_file_sizes

    disk = RealDisk()
    files_there = list(log_files(disk, layout))
    if not files_there:
        raise StoreMismatch(f"{layout.commit_log} has no commit log file: there is nothing to clean")
    settings = replace(
        infer_file_sizes(disk, layout, index_slots=index_slots),
        segment_bytes=files_there[0].size,
        retention_hours=hours,
    )
    with locked(layout.lock):
        store = MessageStore.open(settings, Clock(), store_host=bytes(8))
        try:
            files = 0
            while dropped := store.clean(manual=True).files:
                files += dropped
            begin = store.components.commit_log.min_offset
        finally:
            store.close()
    click.echo(f"{files} commit log files deleted; the log begins at {begin} now")


# ---

_REBUILT = {"queues": ("queues", "queue_entries"), "index": ("index_files",)}
"""What a rebuild of each part counts."""


@click.group(short_help="Store files: look into them, check, rebuild.")
def store() -> None:
    """Look into the files of a store, check them, rebuild what is derived.

    DIR is a store's root, of ours or of Apache RocketMQ's, or a copy of one. Only `rebuild` and `clean` write.

    \b
    Examples:
      ariane store inspect commitlog store --annotate
      ariane store verify store
      ariane store rebuild store --queues
    """


store.add_command(inspect)
store.add_command(clean)


@store.command()
@store_argument
@index_slots_option
@output_option(OutputFormat.TABLE, OutputFormat.JSON)
def verify(layout: "Layout", index_slots: int | None, output: OutputFormat) -> None:
    """Check every file against every other. Exits with 1 when something is wrong.

    Records are whole and where they say; every record is in its queue and every entry of a queue has its record; the
    index leads to records that have the key. Each fault is told with its file, its byte and what to do about it.

    \b
    Example:
      ariane store verify store -o json
    """
    from ariane.store.disk import RealDisk
    from ariane.store.offline.verify import log_files, verify_store

    disk = RealDisk()
    with _progress("checking", sum(file.size for file in log_files(disk, layout))) as progress:
        report = verify_store(disk, layout, index_slots=index_slots, progress=progress)
    if output is OutputFormat.JSON:
        print_json({"sound": report.is_sound, **asdict(report, dict_factory=_printable)})
    else:
        _print_report(report)
    if not report.is_sound:
        raise StoreCorrupt(f"{report.fault_count} faults in {layout.root}")


def _printable(pairs: list[tuple[str, object]]) -> dict[str, object]:
    return {name: str(value) if name == "root" else value for name, value in pairs}


def _print_report(report: "Report") -> None:
    if report.faults:
        render((asdict(fault) for fault in report.faults), OutputFormat.TABLE)
        if report.fault_count > len(report.faults):
            click.echo(f"... and {report.fault_count - len(report.faults)} more")
        click.echo()
    render(_summary(report), OutputFormat.TABLE)
    for note in report.notes:
        click.echo(f"note: {note}")


def _summary(report: "Report") -> Iterator[Row]:
    from ariane.store.offline.annotate import time_text

    for name, value in asdict(report.summary).items():
        shown = time_text(value) if name.endswith("_ms") and value is not None else value
        yield {"what": name.removesuffix("_ms").replace("_", " "), "found": shown if shown is not None else "none"}


@store.command(short_help="Make queues and index anew from the commit log.")
@store_argument
@click.option("--queues", is_flag=True, help="Rebuild the consume queues.")
@click.option("--index", is_flag=True, help="Rebuild the index.")
@click.option("--yes", is_flag=True, help="Remove the old ones when the new ones are in place.")
@click.option("--delay-levels", help="The broker's messageDelayLevel, when it is not Apache's default.")
@index_slots_option
def rebuild(
    layout: "Layout", queues: bool, index: bool, yes: bool, delay_levels: str | None, index_slots: int | None
) -> None:
    """Make consume queues and index anew from the commit log; both, unless one is named.

    No broker may run on the store. The new ones are built beside the old ones, which are kept as consumequeue.old and
    index.old unless you say --yes.

    \b
    Example:
      ariane store rebuild store --queues --yes
    """
    from dataclasses import replace

    from ariane.store.disk import RealDisk
    from ariane.store.offline.rebuild import rebuild_store
    from ariane.store.offline.verify import log_files
    from ariane.store.offline.verify_report import infer_file_sizes

    disk = RealDisk()
    wanted = {"queues": queues or not index, "index": index or not queues}
    settings = infer_file_sizes(disk, layout, index_slots=index_slots, with_index=wanted["index"])
    if delay_levels is not None:
        settings = replace(settings, message_delay_levels=delay_levels)
    with _progress("rebuilding", sum(file.size for file in log_files(disk, layout))) as progress:
        rebuilt = rebuild_store(disk, layout, settings, **wanted, discard_old=yes, progress=progress)
    if not yes:
        click.echo("the old ones are kept as .old; remove them when `ariane store verify` finds no fault", err=True)
    hidden = {name for part, names in _REBUILT.items() if not wanted[part] for name in names}
    render([{name: value for name, value in asdict(rebuilt).items() if name not in hidden}], OutputFormat.TABLE)


@contextmanager
def _progress(label: str, length: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, when a person looks at it."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        yield bar.update
