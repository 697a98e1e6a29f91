"""`ariane store`: inspects, verifies, rebuilds, cleans and accepts the files of a store."""

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


@click.command(short_help="Delete old commit log files.")
@store_argument
@click.option("--hours", type=click.IntRange(min=0), default=72, show_default=True, help="Minimum age of a file.")
@index_slots_option
def clean(layout: "Layout", hours: int, index_slots: int | None) -> None:
    """Delete old commit log files, and their entries in consume queues and index.

    No broker may run on the store: a running broker deletes old files itself. The last file is always kept.

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
    existing = list(log_files(disk, layout))
    if not existing:
        raise StoreMismatch(f"{layout.commit_log} has no commit log files: nothing to clean")
    settings = replace(
        infer_file_sizes(disk, layout, index_slots=index_slots),
        segment_bytes=existing[0].size,
        retention_hours=hours,
    )
    with locked(layout.lock):
        store = MessageStore.open(settings, Clock(), store_host=bytes(8))
        try:
            files = 0
            while deleted := store.clean(manual=True).files:
                files += deleted
            begin = store.components.commit_log.min_offset
        finally:
            store.close()
    click.echo(f"{files} commit log files deleted; the log now begins at {begin}")


_REBUILT = {"queues": ("queues", "queue_entries"), "index": ("index_files",)}
"""The figures that a rebuild of each part reports."""


@click.group(short_help="Store files: inspect, verify, rebuild, clean.")
def store() -> None:
    """Inspect and verify the files of a store, and rebuild the files that are derived from the commit log.

    DIR is the root directory of a store, Ariane's or Apache RocketMQ's, or a copy of one. Only `rebuild`, `clean` and
    `accept-config` write.

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
    """Check all files against each other. Exits with 1 if there is a problem.

    Checks that each record is complete and at the offset it names, that each record has an entry in its consume queue
    and each entry a record, that the index points to records with the key, and that tables, journals and files of the
    timer match their checksums. Each problem is shown with its file, its byte, and how to fix it.

    \b
    Example:
      ariane store verify store -o json
    """
    from ariane.cli.store.broker_files import check_broker_files
    from ariane.store.disk import RealDisk
    from ariane.store.offline.verify import log_files, verify_store

    disk = RealDisk()
    with _progress("checking", sum(file.size for file in log_files(disk, layout))) as progress:
        report = verify_store(disk, layout, index_slots=index_slots, progress=progress)
        check_broker_files(report, disk, layout)
    if output is OutputFormat.JSON:
        print_json({"sound": report.is_sound, **asdict(report, dict_factory=_printable)})
    else:
        _print_report(report)
    if not report.is_sound:
        raise StoreCorrupt(f"{report.fault_count} problems found in {layout.root}")


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


@store.command("accept-config", short_help="Accept tables that were edited by hand or are lost.")
@store_argument
def accept_config_command(layout: "Layout") -> None:
    """Accept the tables in DIR/config as they are: edited by hand, removed, or lost.

    No broker may run on the store. A table that was edited gets a new checksum. A lost topics.json is written from the
    consume queues that are there; any other lost table begins empty.

    \b
    Example:
      ariane store accept-config store
    """
    from ariane.clock import Clock
    from ariane.store.disk import RealDisk
    from ariane.store.offline.accept_config import accept_config
    from ariane.store.offline.verify import log_files

    log_files(RealDisk(), layout)
    for line in accept_config(RealDisk(), layout, Clock().now_ms()) or ["every table matches its checksum"]:
        click.echo(line)


@store.command(short_help="Rebuild queues and index from the commit log.")
@store_argument
@click.option("--queues", is_flag=True, help="Rebuild the consume queues.")
@click.option("--index", is_flag=True, help="Rebuild the index.")
@click.option("--yes", is_flag=True, help="Delete the old files after the rebuild.")
@click.option("--delay-levels", help="The broker's messageDelayLevel, if it differs from Apache's default.")
@index_slots_option
def rebuild(
    layout: "Layout", queues: bool, index: bool, yes: bool, delay_levels: str | None, index_slots: int | None
) -> None:
    """Rebuild consume queues and index from the commit log: the selected one, or both.

    No broker may run on the store. The old files are kept as consumequeue.old and index.old, unless --yes is given.

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
    parts = {"queues": queues or not index, "index": index or not queues}
    settings = infer_file_sizes(disk, layout, index_slots=index_slots, with_index=parts["index"])
    if delay_levels is not None:
        settings = replace(settings, message_delay_levels=delay_levels)
    with _progress("rebuilding", sum(file.size for file in log_files(disk, layout))) as progress:
        rebuilt = rebuild_store(disk, layout, settings, **parts, discard_old=yes, progress=progress)
    if not yes:
        click.echo("the old files are kept as .old; delete them when `ariane store verify` finds no problem", err=True)
    hidden = {name for part, names in _REBUILT.items() if not parts[part] for name in names}
    render([{name: value for name, value in asdict(rebuilt).items() if name not in hidden}], OutputFormat.TABLE)


@contextmanager
def _progress(label: str, length: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        yield bar.update
