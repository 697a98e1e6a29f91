"""mqadmin's commands, under their own names and letters, against a real broker."""

import asyncio
import json
from pathlib import Path

import click
import pytest

from ariane.cli.tree import admin
from ariane.client.admin import Admin
from ariane.client.consumer.push import PushConsumer
from ariane.client.producer.producer import Producer
from ariane.model.route import MessageQueue
from ariane.testing.broker import BrokerForTests, running_broker
from tests.cli.command_line import MQADMIN, CommandLine
from tests.client.cluster_fixture import MessageCollector, fresh

CLUSTER = ("-c", "DefaultCluster")
NAMES = """
updateTopic deleteTopic updateTopicPerm topicRoute topicStatus topicClusterList topicList updateOrderConf allocateMQ
updateSubGroup deleteSubGroup updateBrokerConfig getBrokerConfig brokerStatus brokerConsumeStats sendMsgStatus
cleanExpiredCQ cleanUnusedTopic queryMsgById queryMsgByKey queryMsgByUniqueKey queryMsgByOffset queryCq printMsg
printMsgByQueue sendMessage consumeMessage checkMsgSendRT clusterList clusterRT producerConnection consumerConnection
consumerProgress consumerStatus cloneGroupOffset resetOffsetByTime updateKvConfig deleteKvConfig wipeWritePerm
getNamesrvConfig updateNamesrvConfig startMonitoring statsAll updateAclConfig deleteAccessConfig
clusterAclConfigVersion getAccessConfigSubCommand updateGlobalWhiteAddr
"""
OF_5 = ["haStatus"]


@pytest.fixture
def mqadmin(shared_broker: BrokerForTests, tmp_path: Path) -> CommandLine:
    """Bodies that queries write to files go with the test."""
    return CommandLine(shared_broker.namesrv, MQADMIN, {"TMPDIR": str(tmp_path)})


def test_all_48_names_are_known() -> None:
    assert sorted(admin.list_commands(click.Context(admin))) == sorted([*NAMES.split(), *OF_5])
    assert len(NAMES.split()) == 48


def test_a_topic_goes_through_its_life(mqadmin: CommandLine) -> None:
    topic = fresh("topic")
    made = mqadmin.ok("updateTopic", *CLUSTER, "-t", topic, "-r", "4", "-w", "4", "-o", "true")
    assert "create topic to" in made.out
    assert "readQueueNums=4, writeQueueNums=4, perm=RW-" in made.out
    assert topic in mqadmin.ok("topicList").lines
    route = json.loads(mqadmin.ok("topicRoute", "-t", topic).out)
    assert [data["brokerName"] for data in route["brokerDatas"]] == ["broker-a"]
    assert mqadmin.ok("topicStatus", "-t", topic).lines[0].startswith("#Broker Name")
    assert len(mqadmin.ok("topicStatus", "-t", topic).lines) == 5
    assert mqadmin.ok("topicClusterList", "-t", topic).lines == ["DefaultCluster"]
    assert topic in mqadmin.ok("topicList", "-c").out
    mqadmin.ok("updateTopicPerm", *CLUSTER, "-t", topic, "-p", "4")
    assert "orderConf=[broker-a:4]" in mqadmin.ok("updateOrderConf", "-t", topic, "-m", "get").out
    mqadmin.ok("updateOrderConf", "-t", topic, "-m", "put", "-v", "broker-a:2")
    mqadmin.ok("updateOrderConf", "-t", topic, "-m", "delete")
    assert mqadmin.run("updateOrderConf", "-t", topic, "-m", "get").status == 1
    shares = json.loads(mqadmin.ok("allocateMQ", "-t", topic, "-i", "10.0.0.1,10.0.0.2").out)["result"]
    assert [len(queues) for queues in shares.values()] == [2, 2]
    mqadmin.ok("deleteTopic", *CLUSTER, "-t", topic)
    mqadmin.ok("deleteTopic", *CLUSTER, "-t", topic)  # scripts that clean up may run twice
    assert mqadmin.run("topicRoute", "-t", topic).status == 1


def test_a_message_is_sent_and_found_in_every_way(shared_broker: BrokerForTests, mqadmin: CommandLine) -> None:
    topic = fresh("topic")
    shared_broker.create_topic(topic, queues=1)
    sent = mqadmin.ok("sendMessage", "-t", topic, "-p", "hello", "-k", "order-1", "-c", "paid", "-b", "broker-a")
    assert "SEND_OK" in sent.out
    (message,) = shared_broker.messages(topic)
    assert message.message_id in mqadmin.ok("queryMsgByKey", "-t", topic, "-k", "order-1").out
    shown = mqadmin.ok("queryMsgByUniqueKey", "-t", topic, "-i", message.message_id).out
    assert "Message Body:        hello" in shown
    whole = f"OffsetID:            {message.offset_message_id}\n{shown}"
    assert mqadmin.ok("queryMsgById", "-i", message.offset_message_id).out == whole
    assert mqadmin.ok("queryMsgByOffset", "-t", topic, "-b", "broker-a", "-i", "0", "-o", "0").out == whole
    assert f"physicOffset={message.physical_offset}, physicSize={message.stored_size}" in mqadmin.ok(
        "queryCq", "-t", topic, "-q", "0", "-i", "0", "-b", shared_broker.address
    ).out  # fmt: skip
    assert "BODY: hello" in mqadmin.ok("printMsg", "-t", topic).out
    assert "NOT PRINT BODY" in mqadmin.ok("printMsg", "-t", topic, "-d", "false").out
    by_queue = mqadmin.ok("printMsgByQueue", "-t", topic, "-a", "broker-a", "-i", "0", "-f", "true")
    assert by_queue.out.split() == ["Tag:", "paid", "Count:", "1"]
    assert "BODY: hello" in mqadmin.ok("consumeMessage", "-t", topic, "-b", "broker-a", "-i", "0", "-o", "0").out
    behind = mqadmin.ok("consumeMessage", "-t", topic, "-b", "broker-a", "-i", "0", "-o", "1")
    assert ("MSGID" in behind.out, "status=NO_NEW_MSG, offset=1" in behind.out) == (False, True)
    assert mqadmin.run("queryMsgByKey", "-t", topic, "-k", "missing").status == 1
    assert "Avg RT" in mqadmin.ok("checkMsgSendRT", "-t", topic, "-s", "10", "-a", "3").out
    assert mqadmin.ok("sendMsgStatus", "-b", "broker-a", "-c", "2").out.count("SendResult [sendStatus=SEND_OK") == 2
    resent = mqadmin.ok("queryMsgById", "-i", message.offset_message_id, "-s", "true")
    assert "prepare resend msg" in resent.out


async def test_an_unknown_lag_is_unknown_and_not_zero(shared_broker: BrokerForTests, mqadmin: CommandLine) -> None:
    topic, group, clone = fresh("topic"), fresh("group"), fresh("clone")
    await shared_broker.aio.create_topic(topic, queues=2)
    await asyncio.to_thread(mqadmin.ok, "updateSubGroup", *CLUSTER, "-g", group, "-r", "3")
    empty, unread = (MessageQueue(topic=topic, broker_name="broker-a", queue_id=number) for number in range(2))
    async with Admin(shared_broker.namesrv) as admin_client, Producer(shared_broker.namesrv, group="tests") as producer:
        await admin_client.offsets.commit(group, empty, 0)
        await producer.send(topic, b"unread", queue=unread)
    progress = await asyncio.to_thread(mqadmin.ok, "consumerProgress", "-g", group)
    rows = [line.split() for line in progress.lines if line.startswith(topic)]
    assert [(row[4], row[5]) for row in rows] == [("0", "0"), ("unknown", "unknown")]
    assert "Diff Total: unknown" in progress.out
    assert group in (await asyncio.to_thread(mqadmin.ok, "consumerProgress")).out
    stats = await asyncio.to_thread(mqadmin.ok, "brokerConsumeStats", "-b", shared_broker.address)
    assert "Diff Total: unknown" in stats.out
    await asyncio.to_thread(mqadmin.ok, "cloneGroupOffset", "-s", group, "-d", clone, "-t", topic)
    await asyncio.to_thread(mqadmin.ok, "resetOffsetByTime", "-g", group, "-t", topic, "-s", "now")
    moved = await asyncio.to_thread(mqadmin.ok, "consumerProgress", "-g", group)
    assert "Diff Total: 0" in moved.out
    at = ("resetOffsetByTime", "-g", group, "-t", topic, "-s", "2026-01-01#10:00:00:000")
    assert (await asyncio.to_thread(mqadmin.run, *at)).status == 0
    assert "NO_CONSUMER" in (await asyncio.to_thread(mqadmin.ok, "statsAll")).out
    await asyncio.to_thread(mqadmin.ok, "deleteSubGroup", *CLUSTER, "-g", group)


async def test_connected_clients_are_shown(shared_broker: BrokerForTests, mqadmin: CommandLine) -> None:
    topic, collector = fresh("topic"), MessageCollector()
    await shared_broker.aio.create_topic(topic, queues=1)
    sent = await shared_broker.aio.send(topic, b"x")
    consumer = PushConsumer(shared_broker.namesrv, group=fresh("group"), start="earliest", handler=collector.put)
    consumer.subscribe(topic)
    async with consumer:
        await collector.until_count(1)
        connection = await asyncio.to_thread(mqadmin.ok, "consumerConnection", "-g", consumer.group)
        one = ("-g", consumer.group, "-i", consumer.client_id)
        status = await asyncio.to_thread(mqadmin.ok, "consumerStatus", *one)
        clients = await asyncio.to_thread(mqadmin.ok, "consumerProgress", "-g", consumer.group, "-s", "true")
        handed = ("-t", topic, "-i", sent.message_id, "-g", consumer.group, "-d", consumer.client_id)
        await asyncio.to_thread(mqadmin.ok, "queryMsgByUniqueKey", *handed)
        await collector.until_count(2)
        assert consumer.client_id in connection.out
        assert "#Consumer Properties#" in status.out
        assert "#Client IP" in clients.out
    assert (await asyncio.to_thread(mqadmin.run, "producerConnection", "-g", "nobody", "-t", topic)).status == 1


def test_brokers_and_nameservers_are_managed(shared_broker: BrokerForTests, mqadmin: CommandLine) -> None:
    assert shared_broker.address in mqadmin.ok("clusterList").out
    assert "#InTotalYest" in mqadmin.ok("clusterList", "-m").out
    assert "commitLogMaxOffset" in mqadmin.ok("brokerStatus", "-b", shared_broker.address).out
    assert "brokerName" in mqadmin.ok("getBrokerConfig", *CLUSTER).out
    mqadmin.ok("updateBrokerConfig", "-b", shared_broker.address, "-k", "traceOn", "-v", "true")
    assert mqadmin.ok("cleanExpiredCQ").out == mqadmin.ok("cleanUnusedTopic", *CLUSTER).out == "success\n"
    mqadmin.ok("updateKvConfig", "-s", "ours", "-k", "colour", "-v", "red")
    mqadmin.ok("deleteKvConfig", "-s", "ours", "-k", "colour")
    assert "listenPort" in mqadmin.ok("getNamesrvConfig").out
    assert mqadmin.run("updateNamesrvConfig", "-k", "listenPort", "-v", "1").status == 4
    assert "OK" in mqadmin.ok("wipeWritePerm", "-b", "broker-a").out


def test_accounts_are_managed_with_the_account_in_apache_s_file(tmp_path: Path) -> None:
    account = "accessKey: administrator\nsecretKey: twelve-letters\n"
    rules, tools = tmp_path / "plain_acl.yml", tmp_path / "conf" / "tools.yml"
    rules.write_text("accounts:\n- " + account.replace("\n", "\n  ") + "admin: true\n")
    tools.parent.mkdir()
    with running_broker(tmp_path / "store", acl_enable=True, acl_file=rules) as broker:
        unsigned = CommandLine(broker.namesrv, MQADMIN).run("getAccessConfigSubCommand", *CLUSTER)
        assert (unsigned.status, unsigned.out) == (4, "")
        tools.write_text(account)
        mqadmin = CommandLine(broker.namesrv, MQADMIN, {"ROCKETMQ_HOME": str(tmp_path)})
        mqadmin.ok("updateAclConfig", *CLUSTER, "-a", "operator", "-s", "a-long-secret", "-t", "orders=PUB|SUB")
        shown = mqadmin.ok("getAccessConfigSubCommand", *CLUSTER)
        assert ("operator" in shown.out, "a-long-secret" in shown.out) == (True, False)
        assert mqadmin.ok("clusterAclConfigVersion", *CLUSTER).lines[0].startswith("#Cluster Name     #Broker Name   ")
        row, done = mqadmin.ok("clusterAclConfigVersion", "-b", broker.address).lines
        assert row.split()[:5] == ["DefaultCluster", "broker-a", broker.address, "plain_acl.yml", "1"]
        assert done == "get broker's plain access config version success."
        mqadmin.ok("updateGlobalWhiteAddr", *CLUSTER, "-g", "127.0.0.1,10.0.0.*")
        deleted = mqadmin.ok("deleteAccessConfig", *CLUSTER, "-a", "operator")
        assert deleted.lines[1] == "account's accesskey is:operator"
        assert "operator" not in mqadmin.ok("getAccessConfigSubCommand", *CLUSTER).out
        tools.write_text("- no account")
        assert mqadmin.run("topicList").status == 2


@pytest.mark.parametrize("name", ["startMonitoring", "clusterRT"])
def test_an_unsupported_command_says_so(mqadmin: CommandLine, name: str) -> None:
    done = mqadmin.run(name)
    assert (done.status, done.out) == (1, "")
    assert f"mqadmin's {name} is not supported" in done.err


def test_wrong_usage_ends_with_2(mqadmin: CommandLine) -> None:
    assert mqadmin.run("updateTopic", "-t", "orders").status == 2
    assert mqadmin.run("updateTopic", *CLUSTER, "-b", "127.0.0.1:1", "-t", "orders").status == 2
    assert mqadmin.run("topicRoute").status == 2
    assert mqadmin.run("noSuchCommand").status == 2
    assert CommandLine("127.0.0.1:1", MQADMIN).run("topicList").status == 3


def test_help_works_as_in_apache_s_tool(shared_broker: BrokerForTests) -> None:
    done = CommandLine(shared_broker.namesrv, (*MQADMIN, "help", "updateTopic")).run()
    assert (done.status, "--readQueueNums" in done.out) == (0, True)
