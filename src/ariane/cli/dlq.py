"""`ariane dlq`: messages that a group failed to consume as often as it may.

Dead letters stay where they are when they are sent again: a log is only ever appended to. So that nothing is sent
twice, the offset of the group `ariane-redrive` in the topic of the dead letters tells how far that was done.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import click
import msgspec

from ariane.cli.common.admin import confirm, run_admin, tell_missing, yes_option
from ariane.cli.common.connection import Connection, connected
from ariane.cli.common.output import Form, Row, RowStream, late_progress, output_option, render
from ariane.cli.msg.command import hand_over, sent_row
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

# --- dead_letter_rows ---
#
# The dead letters of a group: how many there are, and how far they were sent again.

LETTER_COLUMNS = ("storeTime", "originTopic", "reconsumeTimes", "tags", "keys", "msgId", "text")


class LettersView(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    topic: str
    stats: TopicStats
    done: Mapping[MessageQueue, int]
    """By queue: those before this offset were sent again."""
    failures: tuple[Failure, ...]

    @property
    def count(self) -> int | None:
        return self.stats.count

    def left(self, *, again: bool) -> int:
        queues = self.stats.queues
        return sum(
            max(0, one.max_offset - max(one.min_offset, 0 if again else self.done.get(one.queue, 0))) for one in queues
        )

    def row(self) -> Row:
        last = [one.last_stored_ms for one in self.stats.queues if one.last_stored_ms is not None]
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
        await admin.cluster.map()  # fails when no nameserver answers, which is the trouble then
        raise ClientError(f"group {group} has no dead letters") from None
    done = await admin.offsets.get(redrive_group, topic)
    missing = {failure.server: failure for failure in (*stats.failures, *done.failures)}
    return LettersView(group=group, topic=topic, stats=stats, done=done.offsets, failures=tuple(missing.values()))


async def views_of_all(admin: Admin, redrive_group: str) -> list[LettersView]:
    names = await admin.topics.names()
    groups = [name.removeprefix(DEAD_LETTER_PREFIX) for name in names if name.startswith(DEAD_LETTER_PREFIX)]
    return [await view_letters(admin, group, redrive_group) for group in groups]


def letter_row(letter: Received, form: Form) -> Row:
    """A message's row, with the topic that it was sent to at first."""
    row = {**row_of(letter), "originTopic": letter.properties.get(Property.RETRY_TOPIC)}
    return table_row(row) if form is Form.TABLE else row


# ---

REDRIVE_GROUP = "ariane-redrive"


@dlq.command("list", short_help="List the groups that have dead letters.")
@connected
@output_option()
def list_letters(connection: Connection, form: Form) -> int:
    """List the groups that have dead letters, and how many of them were sent again.

    \b
    Examples:
      ariane dlq list
      ariane dlq list -o json
    """
    views = run_admin(connection, lambda admin: views_of_all(admin, REDRIVE_GROUP))
    render([view.row() for view in views], form)
    if not views:
        click.echo("no group has dead letters", err=True)
    return tell_missing({failure.server: failure for view in views for failure in view.failures}.values())


@dlq.command("show")
@click.argument("group")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Show at most so many.")
@connected
@output_option()
def show_letters(group: str, limit: int, connection: Connection, form: Form) -> int:
    """Show the dead letters of a group, the oldest of each queue first. Exits with 1 when there is none.

    \b
    Examples:
      ariane dlq show billing
      ariane dlq show billing --limit 1000 -o jsonl
    """

    async def work(admin: Admin) -> tuple[LettersView, list[Received]]:
        view = await view_letters(admin, group, REDRIVE_GROUP)
        return view, [letter async for letter in _letters(admin, view, limit)]

    view, letters = run_admin(connection, work)
    render((letter_row(letter, form) for letter in letters), form, LETTER_COLUMNS)
    if not letters:
        raise ClientError(f"group {group} has no dead letters")
    if view.count is not None and len(letters) < view.count:
        click.echo(f"{len(letters):,} of {view.count:,} dead letters are shown, stopped at --limit", err=True)
    return tell_missing(view.failures)


@dlq.command("export")
@click.argument("group")
@connected
@output_option()
def export(group: str, connection: Connection, form: Form) -> int:
    """Print every dead letter of a group, for example into a file. `ariane send TOPIC - --jsonl` reads `-o jsonl`.

    \b
    Examples:
      ariane dlq export billing -o jsonl > letters.jsonl
      ariane dlq export billing -o csv > letters.csv
    """

    async def work(admin: Admin) -> LettersView:
        view = await view_letters(admin, group, REDRIVE_GROUP)
        with RowStream(form, dict.fromkeys(LETTER_COLUMNS, 12)) as stream:
            async with aclosing(_letters(admin, view, None)) as letters:
                async for letter in letters:
                    stream.add(letter_row(letter, form))
        return view

    return tell_missing(run_admin(connection, work).failures)


@dlq.command("redrive", short_help="Send the dead letters of a group again.")
@click.argument("group")
@click.option("--to", "target", metavar="TOPIC", help="Send them to this topic, and not to the one they came from.")
@click.option("--direct", is_flag=True, help="Hand each to a member of the group, so that no other group gets it.")
@click.option("--again", is_flag=True, help="Also those that were sent again before.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most so many.")
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
    form: Form,
) -> int:
    """Send the dead letters of a group again: to the topic that they came from, where every group gets them.

    It goes on where the last redrive ended. With --direct nothing is sent: a member of the group is handed each
    letter, and the first that it fails on ends the command with exit code 1.

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
        return tell_missing(view.failures)
    wanted = view.left(again=again) if limit is None else min(limit, view.left(again=again))
    if not wanted:
        raise ClientError(f"group {group} has no dead letters that were not sent again")
    how = "to one of its members" if direct else f"to {target or 'the topics that they came from'}"
    confirm(f"Send {wanted:,} of {view.count:,} dead letters of {group} {how}?", yes=yes)
    return _redrive(connection, view, target, wanted, form, direct=direct, again=again)


def _redrive(
    connection: Connection, view: LettersView, target: str | None, wanted: int, form: Form, *, direct: bool, again: bool
) -> int:
    rows: list[Row] = []

    async def one(admin: Admin, letter: Received) -> bool:
        if direct:
            row, is_ok = await hand_over(admin, letter, view.group)
        else:
            row, is_ok = dict(sent_row(letter, await admin.messages.resend(letter, topic=target))), True
        rows.append(row)
        return is_ok

    async def work(admin: Admin) -> bool:
        with late_progress("dead letters", wanted, rows_scroll_by=False) as progress:
            async with aclosing(_letters(admin, view, wanted, skip_done=not again)) as letters:
                async for letter in letters:
                    if not await one(admin, letter):
                        return False
                    await admin.offsets.commit(REDRIVE_GROUP, letter.queue, letter.queue_offset + 1)
                    progress.step()
        return True

    try:
        is_done = run_admin(connection, work)
    except ArianeError:
        render(rows, form)  # what was sent before the failure was sent
        raise
    render(rows, form)
    click.echo(f"{len(rows) - (not is_done):,} of {wanted:,} dead letters sent again", err=True)
    return 0 if is_done else 1


async def _letters(
    admin: Admin, view: LettersView, limit: int | None, *, skip_done: bool = False
) -> AsyncGenerator[Received, None]:
    given = 0
    async with aclosing(admin.queues.scan(view.topic)) as letters:
        async for letter in letters:
            if given == limit:
                return
            if not skip_done or letter.queue_offset >= view.done.get(letter.queue, 0):
                given += 1
                yield letter
