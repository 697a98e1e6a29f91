"""`ariane group` against a real broker."""

import asyncio

import pytest

from ariane.client.admin import Admin
from ariane.client.consumer.push import PushConsumer
from ariane.client.producer.producer import Producer
from ariane.model.route import MessageQueue
from ariane.testing.broker import BrokerForTests
from tests.cli.command_line import CommandLine
from tests.client.cluster_fixture import MessageCollector, fresh


async def moved(broker: BrokerForTests, group: str, topic: str, **offsets: int) -> None:
    """Stores offsets, `q0=3` and so on."""
    async with Admin(broker.namesrv) as admin:
        for name, offset in offsets.items():
            queue = MessageQueue(topic=topic, broker_name="broker-a", queue_id=int(name[1:]))
            await admin.offsets.commit(group, queue, offset)


@pytest.fixture
async def behind(shared_broker: BrokerForTests) -> tuple[str, str]:
    """A group that has consumed one message of four in queue 0, and has no offset in queue 1."""
    topic, group = fresh("topic"), fresh("group")
    await shared_broker.aio.create_topic(topic, queues=2)
    async with Producer(shared_broker.namesrv, group="tests") as producer:
        for number in range(8):
            queue = MessageQueue(topic=topic, broker_name="broker-a", queue_id=number % 2)
            await producer.send(topic, b"%d" % number, queue=queue)
    await moved(shared_broker, group, topic, q0=1)
    return group, topic


def test_lag_is_shown_by_queue_and_unknown_is_not_zero(command: CommandLine, behind: tuple[str, str]) -> None:
    group, topic = behind
    done = command.ok("group", "lag", group, "--topic", topic, "-o", "json")
    assert [(row["brokerOffset"], row["consumerOffset"], row["lag"]) for row in done.rows] == [
        (4, 1, 3),
        (4, None, None),
    ]
    assert "total lag: unknown; at least 3, not counting 1 of 2 queues" in done.err
    assert command.run("group", "lag", group, "--at-most", "1000").status == 1


async def test_the_lag_of_an_empty_queue_is_zero(shared_broker: BrokerForTests, command: CommandLine) -> None:
    """A group that has never failed has no offset among its retries, and is not behind there."""
    topic, group = fresh("topic"), fresh("group")
    await shared_broker.aio.create_topic(topic, queues=2)
    await moved(shared_broker, group, topic, q0=0)
    done = await asyncio.to_thread(command.run, "group", "lag", group, "--at-most", "0", "-o", "json")
    assert (done.status, done.err) == (0, "total lag: 0\n")
    assert [(row["consumerOffset"], row["lag"]) for row in done.rows] == [(0, 0), (None, 0)]


async def test_lag_as_an_exit_code(
    shared_broker: BrokerForTests, command: CommandLine, behind: tuple[str, str]
) -> None:
    group, topic = behind
    await moved(shared_broker, group, topic, q1=4)
    few = await asyncio.to_thread(command.run, "group", "lag", group, "--at-most", "3")
    assert (few.status, few.err) == (0, "total lag: 3\n")
    assert (await asyncio.to_thread(command.run, "group", "lag", group, "--at-most", "2")).status == 1


@pytest.mark.parametrize("verb", ["lag", "show", "delete"])
def test_an_unknown_group_ends_with_1(command: CommandLine, verb: str) -> None:
    done = command.run("group", verb, "nobody")
    assert (done.status, done.out) == (1, "")
    assert "no broker knows group nobody" in done.err


def test_a_group_is_created_changed_and_deleted(command: CommandLine) -> None:
    group = fresh("made")
    command.ok("group", "create", group, "--retry-max", "3")
    assert command.run("group", "create", group).status == 1
    command.ok("group", "update", group, "--no-broadcast")
    (row,) = command.rows("group", "show", group)
    (settings,) = row["settings"]
    assert (settings["retryMaxTimes"], settings["consumeBroadcastEnable"]) == (3, False)
    assert group in {row["group"] for row in command.rows("group", "list")}
    assert command.run("group", "delete", group).status == 2
    command.ok("group", "delete", group, "--yes")
    assert command.run("group", "show", group).status == 1
    assert command.run("group", "update", group).status == 2


def test_the_list_hides_unused_system_groups_and_says_so(command: CommandLine) -> None:
    short, everything = command.ok("group", "list", "-o", "json"), command.rows("group", "list", "--all")
    assert "system groups are not shown: --all" in short.err
    idle = next(row for row in everything if row["group"] == "SELF_TEST_C_GROUP")
    assert (idle["members"], idle["lag"]) == (0, None)
    assert idle not in short.rows


async def test_members_and_their_queues_are_shown(shared_broker: BrokerForTests, command: CommandLine) -> None:
    topic, collector = fresh("topic"), MessageCollector()
    await shared_broker.aio.create_topic(topic, queues=1)
    consumer = PushConsumer(shared_broker.namesrv, group=fresh("online"), start="earliest", handler=collector.put)
    consumer.subscribe(topic, "paid || shipped")
    async with consumer:
        await shared_broker.aio.send(topic, b"x", tags="paid")
        client_id = consumer.client_id
        await collector.until_count(1)
        (shown,) = await asyncio.to_thread(command.rows, "group", "show", consumer.group)
        table = await asyncio.to_thread(command.ok, "group", "show", consumer.group)
        lag = await asyncio.to_thread(command.rows, "group", "lag", consumer.group, "--owners", "--topic", topic)
    assert [member["clientId"] for member in shown["members"]] == [client_id]
    assert {"topic": topic, "expression": "paid || shipped", "expressionType": "TAG"} in shown["subscriptions"]
    assert "1 members online, CLUSTERING, CONSUME_PASSIVELY" in table.out
    assert [row["owner"] for row in lag] == [client_id]


def test_a_seek_shows_its_effect_and_asks(command: CommandLine, behind: tuple[str, str]) -> None:
    group, topic = behind
    shown = command.ok("group", "seek", group, topic, "--to", "earliest", "--dry-run", "-o", "json")
    assert [(row["from"], row["to"], row["skips"], row["repeats"]) for row in shown.rows] == [
        (1, 0, 0, 1),
        (None, 0, None, None),
    ]
    assert "would move" in shown.err
    assert command.run("group", "seek", group, topic, "--to", "earliest").status == 2
    said_no = command.on_terminal("group", "seek", group, topic, "--to", "earliest", keys="n\n")
    assert (said_no.status, "nothing was changed" in said_no.out) == (1, True)
    assert command.rows("group", "lag", group)[0]["consumerOffset"] == 1
    said_yes = command.on_terminal("group", "seek", group, topic, "--to", "earliest", keys="y\n")
    assert said_yes.status == 0
    assert [row["consumerOffset"] for row in command.rows("group", "lag", group)] == [0, 0]


def test_a_seek_to_offsets_moves_only_these_queues(command: CommandLine, behind: tuple[str, str]) -> None:
    group, topic = behind
    done = command.ok("group", "seek", group, topic, "--offset", "broker-a:0=2", "--yes", "-o", "json")
    assert [(row["queueId"], row["to"], row["skips"]) for row in done.rows] == [(0, 2, 1)]
    assert "moved" in done.err
    assert command.run("group", "seek", group, topic, "--offset", "7=2", "--yes").status == 1
    assert command.run("group", "seek", group, topic, "--offset", "x", "--yes").status == 2
    assert command.run("group", "seek", group, topic, "--yes").status == 2
    assert command.run("group", "seek", group, topic, "--to", "yesterday").status == 2


def test_messages_not_yet_consumed_are_skipped(command: CommandLine, behind: tuple[str, str]) -> None:
    group, topic = behind
    command.ok("group", "skip", group, topic, "--yes")
    assert [row["lag"] for row in command.rows("group", "lag", group)] == [0, 0]


def test_a_misspelt_group_is_not_moved(command: CommandLine, behind: tuple[str, str]) -> None:
    done = command.run("group", "skip", "misspelt", behind[1], "--yes")
    assert (done.status, "check its name" in done.err) == (1, True)


def test_offsets_are_cloned(command: CommandLine, behind: tuple[str, str]) -> None:
    group, topic = behind
    target = fresh("clone")
    command.ok("group", "clone", group, target, "--topic", topic)
    assert [row["consumerOffset"] for row in command.rows("group", "lag", target, "--topic", topic)] == [1, None]
