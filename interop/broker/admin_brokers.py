"""Checks of mqadmin's commands about brokers and topics. The order matters: some commands use earlier results."""

import json

from interop.broker.admin_context import MESSAGES, QUEUES, TOPIC, AdminContext
from interop.broker.client import NotOffered
from interop.broker.rows import Rows
from interop.report import expect

BROKER_COMMANDS: Rows[AdminContext] = Rows()


@BROKER_COMMANDS.row("clusterList")
async def cluster_list(context: AdminContext) -> None:
    await context.expect_output("clusterList", expected=[f"{context.cluster} {context.broker_name} 0 {context.broker}"])


@BROKER_COMMANDS.row("clusterList -m")
async def cluster_totals(context: AdminContext) -> None:
    await context.expect_output(
        "clusterList", "-m", expected=["#InTotalToday", f"{context.cluster} {context.broker_name} 0 0"]
    )


@BROKER_COMMANDS.row("brokerStatus")
async def broker_status(context: AdminContext) -> None:
    expected = ["bootTimestamp : ", "commitLogMaxOffset : ", "putTps : ", f"msgPutTotalTodayNow : {MESSAGES}"]
    await context.expect_output("brokerStatus", "-b", context.broker, expected=expected)


@BROKER_COMMANDS.row("getBrokerConfig")
async def get_broker_config(context: AdminContext) -> None:
    expected = [f"brokerName = {context.broker_name}", "transactionCheckInterval = 1000", "flushDiskType = "]
    await context.expect_output("getBrokerConfig", "-b", context.broker, expected=expected)


@BROKER_COMMANDS.row("updateBrokerConfig")
async def update_broker_config(context: AdminContext) -> None:
    await context.expect_output(
        "updateBrokerConfig", "-b", context.broker, "-k", "fileReservedTime", "-v", "71", expected=["success"]
    )
    await context.expect_output("getBrokerConfig", "-b", context.broker, expected=["fileReservedTime = 71"])


@BROKER_COMMANDS.row("updateBrokerConfig of what may not change")
async def refuse_broker_config(context: AdminContext) -> None:
    if not context.servers.is_ours:
        raise NotOffered("Apache's broker changes every setting on request, its own address too (CVE-2023-33246)")
    options = ["-b", context.broker, "-k", "brokerIP1", "-v", "10.9.9.9"]
    await context.expect_output(
        "updateBrokerConfig", *options, expected=["nothing was changed: brokerIP1: cannot be changed at run time"]
    )


@BROKER_COMMANDS.row("cleanExpiredCQ")
async def clean_expired_queues(context: AdminContext) -> None:
    await context.expect_output("cleanExpiredCQ", "-b", context.broker, expected=["success"])


@BROKER_COMMANDS.row("deleteExpiredCommitLog")
async def delete_expired_log(context: AdminContext) -> None:
    await context.expect_output("deleteExpiredCommitLog", "-b", context.broker, expected=["success"])


@BROKER_COMMANDS.row("cleanUnusedTopic")
async def clean_unused_topics(context: AdminContext) -> None:
    await context.expect_output("cleanUnusedTopic", "-b", context.broker, expected=["success"])
    await context.expect_output("topicStatus", "-t", TOPIC, expected=[f"{context.broker_name} 0 0 2"])


@BROKER_COMMANDS.row("sendMsgStatus")
async def send_message_status(context: AdminContext) -> None:
    printed = await context.expect_output(
        "sendMsgStatus", "-b", context.broker_name, "-c", "3", expected=["sendStatus=SEND_OK"]
    )
    expect(printed.count("SEND_OK") == 3, f"not three sends:\n{printed}")


@BROKER_COMMANDS.row("exportConfigs")
async def export_configs(context: AdminContext) -> None:
    options = ["-c", context.cluster, "-f", str(context.exports)]
    await context.expect_output("exportConfigs", *options, expected=["configs.json success"])


@BROKER_COMMANDS.row("exportMetadata")
async def export_metadata(context: AdminContext) -> None:
    options = ["-c", context.cluster, "-f", str(context.exports)]
    await context.expect_output("exportMetadata", *options, expected=["metadata.json success"])
    exported = json.loads((context.exports / "metadata.json").read_text())
    expect(exported["topicConfigTable"][TOPIC]["readQueueNums"] == QUEUES, "the topic is not in metadata.json")


@BROKER_COMMANDS.row("exportMetrics")
async def export_metrics(context: AdminContext) -> None:
    options = ["-c", context.cluster, "-f", str(context.exports)]
    await context.expect_output("exportMetrics", *options, expected=["metrics.json success"])


@BROKER_COMMANDS.row("updateTopic -o true")
async def update_ordered_topic(context: AdminContext) -> None:
    options = ["-c", context.cluster, "-t", "AdminOrdered", "-o", "true"]
    expected = [f"create topic to {context.broker} success", f"orderConf=[{context.broker_name}:8]"]
    await context.expect_output("updateTopic", *options, expected=expected)


@BROKER_COMMANDS.row("updateTopicPerm")
async def update_topic_permission(context: AdminContext) -> None:
    for old, new in (("6", "4"), ("4", "6")):
        options = ["-b", context.broker, "-t", TOPIC, "-p", new]
        await context.expect_output("updateTopicPerm", *options, expected=[f"update topic perm from {old} to {new}"])


@BROKER_COMMANDS.row("topicStatus")
async def topic_status(context: AdminContext) -> None:
    expected = [f"{context.broker_name} {queue} 0 2" for queue in range(QUEUES)]
    await context.expect_output("topicStatus", "-t", TOPIC, expected=expected)


@BROKER_COMMANDS.row("topicClusterList")
async def topic_clusters(context: AdminContext) -> None:
    await context.expect_output("topicClusterList", "-t", TOPIC, expected=[context.cluster])


@BROKER_COMMANDS.row("allocateMQ")
async def allocate_queues(context: AdminContext) -> None:
    await context.expect_output("allocateMQ", "-i", "10.0.0.1,10.0.0.2", "-t", TOPIC, expected=['"10.0.0.2":[{'])


@BROKER_COMMANDS.row("deleteTopic")
async def delete_topic(context: AdminContext) -> None:
    expected = ["from cluster", "delete topic [AdminOrdered] from NameServer success"]
    await context.expect_output("deleteTopic", "-c", context.cluster, "-t", "AdminOrdered", expected=expected)
    await context.expect_output("topicRoute", "-t", "AdminOrdered", expected=["CODE: 17"])
