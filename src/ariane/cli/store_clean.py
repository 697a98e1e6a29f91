"""`ariane store clean`: let old files go by hand, on a store that no broker runs on."""

from typing import TYPE_CHECKING

import click

from ariane.cli.store_inspect import index_slots_option, store_argument

if TYPE_CHECKING:
    from ariane.store.layout import Layout


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
    from ariane.store.shape import shape_of
    from ariane.store.verify import log_files

    disk = RealDisk()
    files_there = list(log_files(disk, layout))
    if not files_there:
        raise StoreMismatch(f"{layout.commit_log} has no commit log file: there is nothing to clean")
    settings = replace(
        shape_of(disk, layout, index_slots=index_slots), segment_bytes=files_there[0].size, retention_hours=hours
    )
    with locked(layout.lock):
        store = MessageStore.open(settings, Clock(), store_host=bytes(8))
        try:
            files = 0
            while dropped := store.clean(by_hand=True).files:
                files += dropped
            begin = store.parts.commit_log.min_offset
        finally:
            store.close()
    click.echo(f"{files} commit log files deleted; the log begins at {begin} now")
