"""mqadmin's commands about brokers and topics. In this order, for some build on others."""

import json

from interop.broker.admin_scene import MESSAGES, QUEUES, TOPIC, Rows, Scene
from interop.broker.client import NotOffered
from interop.report import expect

BROKER_COMMANDS = Rows()


@BROKER_COMMANDS.row("clusterList")
async def cluster_list(scene: Scene) -> None:
    await scene.says("clusterList", wanted=[f"{scene.cluster} {scene.broker_name} 0 {scene.broker}"])


@BROKER_COMMANDS.row("clusterList -m")
async def cluster_totals(scene: Scene) -> None:
    await scene.says("clusterList", "-m", wanted=["#InTotalToday", f"{scene.cluster} {scene.broker_name} 0 0"])


@BROKER_COMMANDS.row("brokerStatus")
async def broker_status(scene: Scene) -> None:
    wanted = ["bootTimestamp : ", "commitLogMaxOffset : ", "putTps : ", f"msgPutTotalTodayNow : {MESSAGES}"]
    await scene.says("brokerStatus", "-b", scene.broker, wanted=wanted)


@BROKER_COMMANDS.row("getBrokerConfig")
async def get_broker_config(scene: Scene) -> None:
    wanted = [f"brokerName = {scene.broker_name}", "transactionCheckInterval = 1000", "flushDiskType = "]
    await scene.says("getBrokerConfig", "-b", scene.broker, wanted=wanted)


@BROKER_COMMANDS.row("updateBrokerConfig")
async def update_broker_config(scene: Scene) -> None:
    await scene.says("updateBrokerConfig", "-b", scene.broker, "-k", "fileReservedTime", "-v", "71", wanted=["success"])
    await scene.says("getBrokerConfig", "-b", scene.broker, wanted=["fileReservedTime = 71"])


@BROKER_COMMANDS.row("updateBrokerConfig of what may not change")
async def refuse_broker_config(scene: Scene) -> None:
    if not scene.servers.is_ours:
        raise NotOffered("Apache's broker changes every setting on request, its own address too (CVE-2023-33246)")
    options = ["-b", scene.broker, "-k", "brokerIP1", "-v", "10.9.9.9"]
    await scene.says("updateBrokerConfig", *options, wanted=["nothing was changed: brokerIP1: fixed while"])


@BROKER_COMMANDS.row("cleanExpiredCQ")
async def clean_expired_queues(scene: Scene) -> None:
    await scene.says("cleanExpiredCQ", "-b", scene.broker, wanted=["success"])


@BROKER_COMMANDS.row("deleteExpiredCommitLog")
async def delete_expired_log(scene: Scene) -> None:
    await scene.says("deleteExpiredCommitLog", "-b", scene.broker, wanted=["success"])


@BROKER_COMMANDS.row("cleanUnusedTopic")
async def clean_unused_topics(scene: Scene) -> None:
    await scene.says("cleanUnusedTopic", "-b", scene.broker, wanted=["success"])
    await scene.says("topicStatus", "-t", TOPIC, wanted=[f"{scene.broker_name} 0 0 2"])


@BROKER_COMMANDS.row("sendMsgStatus")
async def send_message_status(scene: Scene) -> None:
    printed = await scene.says("sendMsgStatus", "-b", scene.broker_name, "-c", "3", wanted=["sendStatus=SEND_OK"])
    expect(printed.count("SEND_OK") == 3, f"not three sends:\n{printed}")


@BROKER_COMMANDS.row("exportConfigs")
async def export_configs(scene: Scene) -> None:
    options = ["-c", scene.cluster, "-f", str(scene.exports)]
    await scene.says("exportConfigs", *options, wanted=["configs.json success"])


@BROKER_COMMANDS.row("exportMetadata")
async def export_metadata(scene: Scene) -> None:
    options = ["-c", scene.cluster, "-f", str(scene.exports)]
    await scene.says("exportMetadata", *options, wanted=["metadata.json success"])
    exported = json.loads((scene.exports / "metadata.json").read_text())
    expect(exported["topicConfigTable"][TOPIC]["readQueueNums"] == QUEUES, "the topic is not in metadata.json")


@BROKER_COMMANDS.row("exportMetrics")
async def export_metrics(scene: Scene) -> None:
    options = ["-c", scene.cluster, "-f", str(scene.exports)]
    await scene.says("exportMetrics", *options, wanted=["metrics.json success"])


@BROKER_COMMANDS.row("updateTopic -o true")
async def update_ordered_topic(scene: Scene) -> None:
    options = ["-c", scene.cluster, "-t", "AdminOrdered", "-o", "true"]
    wanted = [f"create topic to {scene.broker} success", f"orderConf=[{scene.broker_name}:8]"]
    await scene.says("updateTopic", *options, wanted=wanted)


@BROKER_COMMANDS.row("updateTopicPerm")
async def update_topic_permission(scene: Scene) -> None:
    for old, new in (("6", "4"), ("4", "6")):
        options = ["-b", scene.broker, "-t", TOPIC, "-p", new]
        await scene.says("updateTopicPerm", *options, wanted=[f"update topic perm from {old} to {new}"])


@BROKER_COMMANDS.row("topicStatus")
async def topic_status(scene: Scene) -> None:
    wanted = [f"{scene.broker_name} {queue} 0 2" for queue in range(QUEUES)]
    await scene.says("topicStatus", "-t", TOPIC, wanted=wanted)


@BROKER_COMMANDS.row("topicClusterList")
async def topic_clusters(scene: Scene) -> None:
    await scene.says("topicClusterList", "-t", TOPIC, wanted=[scene.cluster])


@BROKER_COMMANDS.row("allocateMQ")
async def allocate_queues(scene: Scene) -> None:
    await scene.says("allocateMQ", "-i", "10.0.0.1,10.0.0.2", "-t", TOPIC, wanted=['"10.0.0.2":[{'])


@BROKER_COMMANDS.row("deleteTopic")
async def delete_topic(scene: Scene) -> None:
    wanted = ["from cluster", "delete topic [AdminOrdered] from NameServer success"]
    await scene.says("deleteTopic", "-c", scene.cluster, "-t", "AdminOrdered", wanted=wanted)
    await scene.says("topicRoute", "-t", "AdminOrdered", wanted=["CODE: 17"])
