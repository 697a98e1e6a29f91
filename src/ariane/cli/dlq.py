"""`ariane dlq`: dead letters, the messages that a group failed to consume in all its retries.

Redriving does not remove dead letters from their topic: a log is append-only. So that none is sent twice, the offset
of the group `ariane-redrive` in the dead letter topic records how far the last redrive got.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import click
import msgspec

from ariane.cli.common.admin import confirm, report_missing, run_admin, yes_option
from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import OutputFormat, Row, RowStream, late_progress, output_option, render
from ariane.cli.msg.command import deliver_to_member, sent_row
from ariane.cli.tail.output import row_of, table_row
from ariane.cli.tree import dlq
from ariane.client.admin import Admin
from ariane.client.admin.requests import Failure
from ariane.client.admin.topics import TopicStats
from ariane.client.consumer.message import Received
from ariane.errors import ArianeError, ClientError, NoRoute
from ariane.model.ids import DEAD_LETTER_PREFIX
from ariane.model.message import Property
from ariane.model.route import MessageQueue
from ariane.store.offline.annotate import time_text

LETTER_COLUMNS = ("storeTime", "originTopic", "reconsumeTimes", "tags", "keys", "msgId", "text")


class LettersView(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters of a group: their number, and how many were sent again."""

    group: str
    topic: str
    stats: TopicStats
    done: Mapping[MessageQueue, int]
    """By queue: dead letters before this offset were sent again."""
    failures: tuple[Failure, ...]

    @property
    def count(self) -> int | None:
        return self.stats.count

    def left(self, *, again: bool) -> int:
        return sum(
            max(0, queue.max_offset - max(queue.min_offset, 0 if again else self.done.get(queue.queue, 0)))
            for queue in self.stats.queues
        )

    def row(self) -> Row:
        last = [queue.last_stored_ms for queue in self.stats.queues if queue.last_stored_ms is not None]
        return {
            "group": self.group,
            "deadLetters": self.count,
            "notSentAgain": None if self.count is None else self.left(again=False),
            "newest": time_text(max(last)) if last else None,
        }


async def view_letters(admin: Admin, group: str, redrive_group: str) -> LettersView:
    """ClientError when the group never had a dead letter."""
    topic = f"{DEAD_LETTER_PREFIX}{group}"
    try:
        stats = await admin.topics.stats(topic)
    except NoRoute:
        await admin.cluster.map()  # raises when no nameserver responds: that is the real error then
        raise ClientError(f"group {group} has no dead letters") from None
    done = await admin.offsets.get(redrive_group, topic)
    missing = {failure.server: failure for failure in (*stats.failures, *done.failures)}
    return LettersView(group=group, topic=topic, stats=stats, done=done.offsets, failures=tuple(missing.values()))


async def views_of_all(admin: Admin, redrive_group: str) -> list[LettersView]:
    names = await admin.topics.names()
    groups = [name.removeprefix(DEAD_LETTER_PREFIX) for name in names if name.startswith(DEAD_LETTER_PREFIX)]
    return [await view_letters(admin, group, redrive_group) for group in groups]


def letter_row(letter: Received, output: OutputFormat) -> Row:
    """A message's row, with the topic that it was originally sent to."""
    row = {**row_of(letter), "originTopic": letter.properties.get(Property.RETRY_TOPIC)}
    return table_row(row) if output is OutputFormat.TABLE else row


# --- commands ---

REDRIVE_GROUP = "ariane-redrive"


@dlq.command("list", short_help="List the groups that have dead letters.")
@connected
@output_option()
def list_letters(connection: Connection, output: OutputFormat) -> int:
    """List the groups that have dead letters, and how many of them were sent again.

    \b
    Examples:
      ariane dlq list
      ariane dlq list -o json
    """
    views = run_admin(connection, lambda admin: views_of_all(admin, REDRIVE_GROUP))
    render([view.row() for view in views], output)
    if not views:
        click.echo("no group has dead letters", err=True)
    return report_missing({failure.server: failure for view in views for failure in view.failures}.values())


@dlq.command("show")
@click.argument("group")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Show at most this many.")
@connected
@output_option()
def show_letters(group: str, limit: int, connection: Connection, output: OutputFormat) -> int:
    """Show the dead letters of a group, the oldest of each queue first. Exits with 1 if there are none.

    \b
    Examples:
      ariane dlq show billing
      ariane dlq show billing --limit 1000 -o jsonl
    """

    async def work(admin: Admin) -> tuple[LettersView, list[Received]]:
        view = await view_letters(admin, group, REDRIVE_GROUP)
        return view, [letter async for letter in _letters(admin, view, limit)]

    view, letters = run_admin(connection, work)
    render((letter_row(letter, output) for letter in letters), output, LETTER_COLUMNS)
    if not letters:
        raise ClientError(f"group {group} has no dead letters")
    if view.count is not None and len(letters) < view.count:
        click.echo(f"{len(letters):,} of {view.count:,} dead letters are shown, stopped at --limit", err=True)
    return report_missing(view.failures)


@dlq.command("export")
@click.argument("group")
@connected
@output_option()
def export(group: str, connection: Connection, output: OutputFormat) -> int:
    """Print all dead letters of a group, for example to a file. `ariane send TOPIC - --jsonl` reads `-o jsonl`.

    \b
    Examples:
      ariane dlq export billing -o jsonl > letters.jsonl
      ariane dlq export billing -o csv > letters.csv
    """

    async def work(admin: Admin) -> LettersView:
        view = await view_letters(admin, group, REDRIVE_GROUP)
        with RowStream(output, dict.fromkeys(LETTER_COLUMNS, 12)) as stream:
            async with aclosing(_letters(admin, view, None)) as letters:
                async for letter in letters:
                    stream.add(letter_row(letter, output))
        return view

    return report_missing(run_admin(connection, work).failures)


@dlq.command("redrive", short_help="Send the dead letters of a group again.")
@click.argument("group")
@click.option("--to", "target", metavar="TOPIC", help="Send them to this topic instead of their original one.")
@click.option("--direct", is_flag=True, help="Deliver them to a member of the group only; no other group gets them.")
@click.option("--again", is_flag=True, help="Include those that were already sent again.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Send at most this many.")
@yes_option
@connected
@output_option()
def redrive(
    group: str,
    target: str | None,
    direct: bool,
    again: bool,
    limit: int | None,
    yes: bool,
    connection: Connection,
    output: OutputFormat,
) -> int:
    """Send the dead letters of a group again, to their original topic, where every group gets them.

    Continues where the last redrive ended. With --direct nothing is sent to a topic: each dead letter is delivered to
    a member of the group, and the first one that fails ends the command with exit status 1.

    \b
    Examples:
      ariane dlq redrive billing
      ariane dlq redrive billing --direct --limit 10
      ariane dlq redrive billing --to orders-replayed --again --yes
    """
    if direct and target is not None:
        raise click.UsageError("--to and --direct exclude each other", click.get_current_context())
    view = run_admin(connection, lambda admin: view_letters(admin, group, REDRIVE_GROUP))
    if view.failures:
        return report_missing(view.failures)
    count = view.left(again=again) if limit is None else min(limit, view.left(again=again))
    if not count:
        raise ClientError(f"group {group} has no dead letters left to send: --again also sends earlier ones")
    destination = "to one of its members" if direct else f"to {target or 'their original topics'}"
    confirm(f"Send {count:,} of {view.count:,} dead letters of {group} {destination}?", yes=yes)
    return _redrive(connection, view, target, count, output, direct=direct, again=again)


def _redrive(
    connection: Connection,
    view: LettersView,
    target: str | None,
    count: int,
    output: OutputFormat,
    *,
    direct: bool,
    again: bool,
) -> int:
    rows: list[Row] = []

    async def send(admin: Admin, letter: Received) -> bool:
        if direct:
            row, is_ok = await deliver_to_member(admin, letter, view.group)
        else:
            row, is_ok = dict(sent_row(letter, await admin.messages.resend(letter, topic=target))), True
        rows.append(row)
        return is_ok

    async def work(admin: Admin) -> bool:
        with late_progress("dead letters", count, rows_scroll_by=False) as progress:
            async with aclosing(_letters(admin, view, count, skip_done=not again)) as letters:
                async for letter in letters:
                    if not await send(admin, letter):
                        return False
                    await admin.offsets.commit(REDRIVE_GROUP, letter.queue, letter.queue_offset + 1)
                    progress.step()
        return True

    try:
        is_done = run_admin(connection, work)
    except ArianeError:
        render(rows, output)  # these were sent before the failure
        raise
    render(rows, output)
    click.echo(f"{len(rows) - (not is_done):,} of {count:,} dead letters sent again", err=True)
    return 0 if is_done else 1


async def _letters(
    admin: Admin, view: LettersView, limit: int | None, *, skip_done: bool = False
) -> AsyncGenerator[Received, None]:
    yielded = 0
    async with aclosing(admin.queues.scan(view.topic)) as letters:
        async for letter in letters:
            if yielded == limit:
                return
            if not skip_done or letter.queue_offset >= view.done.get(letter.queue, 0):
                yielded += 1
                yield letter
