"""`ariane msg explain`: where a message is, and why each group has consumed it or has not."""

import click

from ariane.cli.asking import ask, tell_missing
from ariane.cli.connection import Connection, connected
from ariane.cli.explaining import Explanation, explain
from ariane.cli.message_place import MessagePlace, place_of
from ariane.cli.message_search import Search, by_id_or_key
from ariane.cli.render import Form, Row, output_option, render
from ariane.cli.tree import msg
from ariane.client.admin import Admin
from ariane.client.received import Received
from ariane.store.annotate import time_text

Explained = tuple[Received, MessagePlace, list[Explanation]]


@msg.command("explain", short_help="Where a message lies, and why groups have it or not.")
@click.argument("id_or_key", metavar="ID|KEY")
@click.option("-t", "--topic", metavar="TOPIC", help="Where to look; without it, in every topic.")
@click.option("--limit", type=click.IntRange(1), default=5, show_default=True, help="Explain at most so many messages.")
@connected
@output_option()
def explain_message(id_or_key: str, topic: str | None, limit: int, connection: Connection, form: Form) -> int:
    """Tell where a message lies, and for each group why it has consumed it or has not.

    The place is the file and byte of the commit log, the entry of the queue and the hash of the tag. A group has
    consumed it, waits behind others, filtered it, is at one of its retries, has given it up as a dead letter, or its
    members subscribe to something else. -o json has one object for each message.

    \b
    Examples:
      ariane msg explain 7F0000010E6C4F6B5E2D1A3B00000000
      ariane msg explain order-1001 --topic orders
      ariane msg explain order-1001 -o json
    """

    async def work(admin: Admin) -> tuple[Search, list[Explained]]:
        found = await by_id_or_key(admin, id_or_key, topic, limit)
        return found, [(one, await place_of(admin, one), await explain(admin, one)) for one in found.messages]

    found, explained = ask(connection, work)
    if form is Form.TABLE:
        for number, one in enumerate(explained):
            click.echo("", nl=number > 0)
            _print(*one)
    else:
        render([_row(*one) for one in explained], form)
    if found.note is not None:
        click.echo(found.note, err=True)
    failures = [*found.failures, *(failure for *_, groups in explained for one in groups for failure in one.failures)]
    return tell_missing({failure.server: failure for failure in failures}.values())


def _print(message: Received, place: MessagePlace, explanations: list[Explanation]) -> None:
    """Nothing is cut on a terminal either: an id or a reason of which the end is missing explains nothing."""
    fields = [{"field": name, "value": value} for name, value in _place_row(message, place).items()]
    render(fields, Form.TABLE, is_whole=True)
    click.echo("")
    if explanations:
        render(map(_group_row, explanations), Form.TABLE, ("group", "online", "verdict", "why"), is_whole=True)
    else:
        click.echo("no group consumes this topic, or has ever done so")


def _row(message: Received, place: MessagePlace, explanations: list[Explanation]) -> Row:
    return {**_place_row(message, place), "groups": [_group_row(one) for one in explanations]}


def _place_row(message: Received, place: MessagePlace) -> dict[str, object]:
    return {
        "msgId": message.message_id,
        "offsetMsgId": message.offset_message_id,
        "topic": message.queue.topic,
        "tags": message.tags,
        "keys": list(message.keys),
        "storeTime": time_text(message.store_timestamp_ms),
        "brokerName": message.queue.broker_name,
        "physicalOffset": message.physical_offset,
        "storedSize": message.stored_size,
        "commitLogFile": place.log_file,
        "commitLogByte": place.log_byte,
        "queueId": message.queue.queue_id,
        "queueOffset": message.queue_offset,
        "consumeQueueFile": place.queue_file,
        "consumeQueueByte": place.queue_byte,
        "consumeQueueEntry": place.entry,
        "tagsCode": place.tags_code,
    }


def _group_row(one: Explanation) -> Row:
    return {"group": one.group, "verdict": str(one.verdict), "why": one.why, "online": one.is_online}
