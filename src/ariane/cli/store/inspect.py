"""`ariane store inspect`: shows the contents of store files, record by record or byte by byte."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ariane.cli.common.output import OutputFormat, output_option
from ariane.errors import StoreError

if TYPE_CHECKING:
    from ariane.store.layout import Layout

Command = Callable[..., Any]

annotate_option = click.option("--annotate", is_flag=True, help="Show every byte with its field and its meaning.")
limit_option = click.option(
    "--limit", type=click.IntRange(min=0), help="Show at most this many, 0 for all.  [default: 20]"
)
index_slots_option = click.option(
    "--index-slots", type=click.IntRange(min=1), help="Hash slots of an index file, if they cannot be detected."
)


def store_argument(command: Command) -> Command:
    """DIR and --commit-log; the command gets them as one Layout."""

    @click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
    @click.option(
        "--commit-log",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Directory of the commit log, if it is not DIR/commitlog.",
    )
    @wraps(command)
    def with_layout(directory: Path, commit_log: Path | None, **options: Any) -> Any:
        from ariane.store.layout import Layout

        try:
            return command(Layout.under(directory, commit_log), **options)
        except BrokenPipeError:  # the output pipe was closed: `main` handles it
            raise
        except OSError as error:
            raise StoreError(f"{error.filename or directory}: {error.strerror}") from error

    return with_layout


def warn_if_in_use(layout: "Layout") -> None:
    """A running broker keeps appending, so the output may be outdated."""
    from ariane.store.lock import lock_holder

    holder = lock_holder(layout.lock)
    if holder is not None:
        click.echo(f"warning: process {holder} is using this store: its files are changing", err=True)


@click.group()
def inspect() -> None:
    """Show the contents of store files. Read-only.

    \b
    Examples:
      ariane store inspect commitlog store --limit 5
      ariane store inspect commitlog store --from 1010 --annotate
      ariane store inspect queue store orders 0
      ariane store inspect index store --key orders#order-1001
      ariane store inspect checkpoint store
    """


@inspect.command()
@store_argument
@click.option("--from", "start", type=click.IntRange(min=0), default=0, help="Physical offset to start at.")
@limit_option
@click.option("--topic", help="Only records of this topic.")
@annotate_option
@output_option()
def commitlog(
    layout: "Layout", start: int, limit: int | None, topic: str | None, annotate: bool, output: OutputFormat
) -> None:
    """Show records of the commit log.

    If the start offset is inside a record, shows the next complete one. --annotate shows one record, or --limit many.

    \b
    Example:
      ariane store inspect commitlog store --topic orders -o json
    """
    from ariane.cli.store.rows import annotated_commit_log, commit_log_listing

    warn_if_in_use(layout)
    make = annotated_commit_log if annotate else commit_log_listing
    make(layout, start, topic, limit).show(output)


@inspect.command(short_help="Show entries of a consume queue and their records.")
@store_argument
@click.argument("topic")
@click.argument("queue_id", metavar="QUEUE", type=click.IntRange(min=0))
@click.option("--from", "start", type=click.IntRange(min=0), default=0, help="Queue offset to start at.")
@limit_option
@annotate_option
@output_option()
def queue(
    layout: "Layout", topic: str, queue_id: int, start: int, limit: int | None, annotate: bool, output: OutputFormat
) -> None:
    """Show entries of a consume queue, with the records that they point to.

    \b
    Example:
      ariane store inspect queue store orders 0 --from 100
    """
    from ariane.cli.store.rows import queue_listing

    warn_if_in_use(layout)
    queue_listing(layout, topic, queue_id, start, limit, annotated=annotate).show(output)


@inspect.command()
@store_argument
@click.option("--key", metavar="TOPIC#KEY", help="Show the entries of this key, newest first.")
@index_slots_option
@annotate_option
@output_option()
def index(layout: "Layout", key: str | None, index_slots: int | None, annotate: bool, output: OutputFormat) -> None:
    """Show the index files, or the entries of a key.

    Several keys may have the same hash: `hasKey` shows whether the record really has this key.

    \b
    Example:
      ariane store inspect index store --key orders#order-1001
    """
    from ariane.cli.store.rows import index_listing, key_listing

    warn_if_in_use(layout)
    if key is None:
        index_listing(layout, index_slots, annotated=annotate).show(output)
    else:
        key_listing(layout, key, index_slots, annotated=annotate).show(output)


@inspect.command()
@store_argument
@annotate_option
@output_option()
def checkpoint(layout: "Layout", annotate: bool, output: OutputFormat) -> None:
    """Show how far each part of the store is flushed to disk.

    \b
    Example:
      ariane store inspect checkpoint store
    """
    from ariane.cli.store.rows import checkpoint_listing

    warn_if_in_use(layout)
    checkpoint_listing(layout, annotated=annotate).show(output)
