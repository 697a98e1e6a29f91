"""`ariane dlq` against a real broker and a consumer that gives up."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from ariane.client.consumer.invocation import Retry
from ariane.client.consumer.message import Received
from ariane.client.consumer.push import PushConsumer
from ariane.testing.broker import BrokerForTests
from tests.cli.command_line import CommandLine
from tests.client.cluster_fixture import fresh


@dataclass
class GivesUp:
    """Three dead letters, and a group that is still online."""

    topic: str
    group: str
    consumes: bool = False

    async def handle(self, message: Received) -> Retry | None:
        return None if self.consumes else Retry(delay_level=-1)


@pytest.fixture
async def given_up(shared_broker: BrokerForTests) -> AsyncIterator[GivesUp]:
    topic, group = fresh("topic"), fresh("group")
    await shared_broker.aio.create_topic(topic, queues=1)
    story = GivesUp(topic, group)
    consumer = PushConsumer(shared_broker.namesrv, group=group, start="earliest", handler=story.handle)
    consumer.subscribe(topic)
    for number in range(3):
        await shared_broker.aio.send(topic, b"letter %d" % number, keys=[f"order-{number}"])
    async with consumer:
        await shared_broker.aio.wait_for_messages(f"%DLQ%{group}", 3)
        yield story


async def test_dead_letters_are_listed_shown_and_exported(command: CommandLine, given_up: GivesUp) -> None:
    rows = await asyncio.to_thread(command.rows, "dlq", "list")
    row = next(row for row in rows if row["group"] == given_up.group)
    assert (row["deadLetters"], row["notSentAgain"]) == (3, 3)
    shown = await asyncio.to_thread(command.ok, "dlq", "show", given_up.group, "--limit", "2", "-o", "json")
    assert {row["originTopic"] for row in shown.rows} == {given_up.topic}
    assert shown.err == "2 of 3 dead letters are shown, stopped at --limit\n"
    exported = await asyncio.to_thread(command.ok, "dlq", "export", given_up.group, "-o", "jsonl")
    bodies = sorted(json.loads(line)["body"] for line in exported.lines)
    assert bodies == ["letter 0", "letter 1", "letter 2"]
    copy = fresh("copy")
    sent = await asyncio.to_thread(command.run, "send", copy, "-", "--jsonl", "-o", "json", stdin=exported.out)
    assert (sent.status, len(sent.rows)) == (0, 3)


async def test_dead_letters_are_sent_again_once(
    shared_broker: BrokerForTests, command: CommandLine, given_up: GivesUp
) -> None:
    other = fresh("replayed")
    await shared_broker.aio.create_topic(other, queues=1)
    unasked = await asyncio.to_thread(command.run, "dlq", "redrive", given_up.group)
    assert unasked.status == 2
    redrive = ("dlq", "redrive", given_up.group, "--to", other, "--yes")
    first = await asyncio.to_thread(command.ok, *redrive, "--limit", "1", "-o", "json")
    assert (len(first.rows), first.err) == (1, "1 of 1 dead letters sent again\n")
    await asyncio.to_thread(command.ok, *redrive)
    sent = await shared_broker.aio.wait_for_messages(other, 3)
    assert sorted(message.body for message in sent) == [b"letter 0", b"letter 1", b"letter 2"]
    none_left = await asyncio.to_thread(command.run, *redrive)
    assert (none_left.status, "no dead letters left to send" in none_left.err) == (1, True)
    await asyncio.to_thread(command.ok, *redrive, "--again")
    assert len(await shared_broker.aio.wait_for_messages(other, 6)) == 6


async def test_dead_letters_are_delivered_to_a_member(command: CommandLine, given_up: GivesUp) -> None:
    refused = await asyncio.to_thread(command.run, "dlq", "redrive", given_up.group, "--direct", "--yes", "-o", "json")
    assert (refused.status, len(refused.rows)) == (1, 1)
    given_up.consumes = True
    taken = await asyncio.to_thread(command.ok, "dlq", "redrive", given_up.group, "--direct", "--yes", "-o", "json")
    assert [row["consumeResult"] for row in taken.rows] == ["CR_SUCCESS"] * 3


@pytest.mark.parametrize("verb", ["show", "export", "redrive"])
def test_a_group_without_dead_letters_ends_with_1(command: CommandLine, verb: str) -> None:
    done = command.run("dlq", verb, "nobody")
    assert (done.status, done.err) == (1, "error: group nobody has no dead letters\n")
