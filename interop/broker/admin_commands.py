"""mqadmin's commands that ask a broker, and what each must then say; in this order, for some build on others."""

import json
from collections.abc import Awaitable, Callable

from interop.broker.admin_scene import GROUP, MESSAGES, QUEUES, TOPIC, Scene
from interop.broker.client import NotOffered
from interop.broker.stage import eventually
from interop.report import expect, expect_in

Command = Callable[[Scene], Awaitable[object]]
COMMANDS: dict[str, Command] = {}


def command(row: str) -> Callable[[Command], Command]:
    def keep(function: Command) -> Command:
        COMMANDS[row] = function
        return function

    return keep


# --- brokers ----------------------------------------------------------------------------------------------------------


@command("clusterList")
async def cluster_list(scene: Scene) -> None:
    await scene.says("clusterList", wanted=[f"{scene.cluster} {scene.broker_name} 0 {scene.broker}"])


@command("clusterList -m")
async def cluster_totals(scene: Scene) -> None:
    await scene.says("clusterList", "-m", wanted=["#InTotalToday", f"{scene.cluster} {scene.broker_name} 0 0"])


@command("brokerStatus")
async def broker_status(scene: Scene) -> None:
    wanted = ["bootTimestamp : ", "commitLogMaxOffset : ", "putTps : ", f"msgPutTotalTodayNow : {MESSAGES}"]
    await scene.says("brokerStatus", "-b", scene.broker, wanted=wanted)


@command("getBrokerConfig")
async def get_broker_config(scene: Scene) -> None:
    wanted = [f"brokerName = {scene.broker_name}", "transactionCheckInterval = 1000", "flushDiskType = "]
    await scene.says("getBrokerConfig", "-b", scene.broker, wanted=wanted)


@command("updateBrokerConfig")
async def update_broker_config(scene: Scene) -> None:
    await scene.says("updateBrokerConfig", "-b", scene.broker, "-k", "fileReservedTime", "-v", "71", wanted=["success"])
    await scene.says("getBrokerConfig", "-b", scene.broker, wanted=["fileReservedTime = 71"])


@command("updateBrokerConfig of what may not change")
async def refuse_broker_config(scene: Scene) -> None:
    if not scene.servers.is_ours:
        raise NotOffered("Apache's broker changes every setting on request, its own address too (CVE-2023-33246)")
    options = ["-b", scene.broker, "-k", "brokerIP1", "-v", "10.9.9.9"]
    await scene.says("updateBrokerConfig", *options, wanted=["nothing was changed: brokerIP1: fixed while"])


@command("cleanExpiredCQ")
async def clean_expired_queues(scene: Scene) -> None:
    await scene.says("cleanExpiredCQ", "-b", scene.broker, wanted=["success"])


@command("deleteExpiredCommitLog")
async def delete_expired_log(scene: Scene) -> None:
    await scene.says("deleteExpiredCommitLog", "-b", scene.broker, wanted=["success"])


@command("cleanUnusedTopic")
async def clean_unused_topics(scene: Scene) -> None:
    await scene.says("cleanUnusedTopic", "-b", scene.broker, wanted=["success"])
    await scene.says("topicStatus", "-t", TOPIC, wanted=[f"{scene.broker_name} 0 0 2"])


@command("sendMsgStatus")
async def send_message_status(scene: Scene) -> None:
    printed = await scene.says("sendMsgStatus", "-b", scene.broker_name, "-c", "3", wanted=["sendStatus=SEND_OK"])
    expect(printed.count("SEND_OK") == 3, f"not three sends:\n{printed}")


@command("exportConfigs")
async def export_configs(scene: Scene) -> None:
    options = ["-c", scene.cluster, "-f", str(scene.exports)]
    await scene.says("exportConfigs", *options, wanted=["configs.json success"])


@command("exportMetadata")
async def export_metadata(scene: Scene) -> None:
    options = ["-c", scene.cluster, "-f", str(scene.exports)]
    await scene.says("exportMetadata", *options, wanted=["metadata.json success"])
    exported = json.loads((scene.exports / "metadata.json").read_text())
    expect(exported["topicConfigTable"][TOPIC]["readQueueNums"] == QUEUES, "the topic is not in metadata.json")


@command("exportMetrics")
async def export_metrics(scene: Scene) -> None:
    options = ["-c", scene.cluster, "-f", str(scene.exports)]
    await scene.says("exportMetrics", *options, wanted=["metrics.json success"])


# --- topics -----------------------------------------------------------------------------------------------------------


@command("updateTopic -o true")
async def update_ordered_topic(scene: Scene) -> None:
    options = ["-c", scene.cluster, "-t", "AdminOrdered", "-o", "true"]
    wanted = [f"create topic to {scene.broker} success", f"orderConf=[{scene.broker_name}:8]"]
    await scene.says("updateTopic", *options, wanted=wanted)


@command("updateTopicPerm")
async def update_topic_permission(scene: Scene) -> None:
    for old, new in (("6", "4"), ("4", "6")):
        options = ["-b", scene.broker, "-t", TOPIC, "-p", new]
        await scene.says("updateTopicPerm", *options, wanted=[f"update topic perm from {old} to {new}"])


@command("topicStatus")
async def topic_status(scene: Scene) -> None:
    wanted = [f"{scene.broker_name} {queue} 0 2" for queue in range(QUEUES)]
    await scene.says("topicStatus", "-t", TOPIC, wanted=wanted)


@command("topicClusterList")
async def topic_clusters(scene: Scene) -> None:
    await scene.says("topicClusterList", "-t", TOPIC, wanted=[scene.cluster])


@command("allocateMQ")
async def allocate_queues(scene: Scene) -> None:
    await scene.says("allocateMQ", "-i", "10.0.0.1,10.0.0.2", "-t", TOPIC, wanted=['"10.0.0.2":[{'])


@command("deleteTopic")
async def delete_topic(scene: Scene) -> None:
    wanted = ["from cluster", "delete topic [AdminOrdered] from NameServer success"]
    await scene.says("deleteTopic", "-c", scene.cluster, "-t", "AdminOrdered", wanted=wanted)
    await scene.says("topicRoute", "-t", "AdminOrdered", wanted=["CODE: 17"])


# --- groups -----------------------------------------------------------------------------------------------------------


@command("updateSubGroup")
async def update_group(scene: Scene) -> None:
    options = ["-b", scene.broker, "-g", "AdminNewGroup", "-r", "3", "-q", "2"]
    await scene.says("updateSubGroup", *options, wanted=[f"create subscription group to {scene.broker} success"])


@command("getConsumerConfig")
async def get_group(scene: Scene) -> None:
    wanted = ["groupName = AdminNewGroup", "retryMaxTimes = 3", "retryQueueNums = 2"]
    await scene.says("getConsumerConfig", "-g", "AdminNewGroup", wanted=wanted)


@command("deleteSubGroup")
async def delete_group(scene: Scene) -> None:
    options = ["-b", scene.broker, "-g", "AdminNewGroup", "-r", "true"]
    await scene.says("deleteSubGroup", *options, wanted=["delete subscription group [AdminNewGroup] from broker"])
    printed = await scene.admin.run("getConsumerConfig", "-g", "AdminNewGroup")
    expect("retryMaxTimes" not in printed, printed)


@command("consumerConnection")
async def consumer_connection(scene: Scene) -> None:
    wanted = [f"{scene.client_id} ", "JAVA V4_9_8", f"{TOPIC} *", "ConsumeType: CONSUME_PASSIVELY"]
    await scene.says("consumerConnection", "-g", GROUP, wanted=wanted)


@command("producerConnection")
async def producer_connection(scene: Scene) -> None:
    await scene.says("producerConnection", "-g", "guest_plain", "-t", TOPIC, wanted=["@producer-plain", "JAVA V4_9_8"])


@command("producer")
async def producers(scene: Scene) -> None:
    await scene.says("producer", "-b", scene.broker, wanted=["producer group (guest_plain) instance : clientId="])


@command("consumerProgress -g")
async def consumer_progress(scene: Scene) -> None:
    async def is_read() -> bool:
        return "Diff Total: 0" in await scene.admin.run("consumerProgress", "-g", GROUP)

    await eventually(is_read, "Diff Total: 0")
    await scene.says("consumerProgress", "-g", GROUP, "-s", "true", wanted=[f"{TOPIC} {scene.broker_name} 3 2 2 "])


@command("consumerProgress")
async def progress_of_all(scene: Scene) -> None:
    await scene.says("consumerProgress", wanted=[f"{GROUP} 1 V4_9_8 PUSH CLUSTERING"])


@command("statsAll")
async def stats_all(scene: Scene) -> None:
    await scene.says("statsAll", "-t", TOPIC, wanted=[f"{TOPIC} {GROUP} 0"])


@command("brokerConsumeStats")
async def broker_consume_stats(scene: Scene) -> None:
    await scene.says("brokerConsumeStats", "-b", scene.broker, wanted=[f"{TOPIC} {GROUP} {scene.broker_name} 3 2 2 0"])


@command("consumerStatus")
async def consumer_status(scene: Scene) -> None:
    wanted = [f"1 {scene.client_id} V4_9_8", "Same subscription in the same group", "Rebalance OK"]
    await scene.says("consumerStatus", "-g", GROUP, wanted=wanted)


@command("consumerStatus -i -s (with stack)")
async def consumer_stack(scene: Scene) -> None:
    wanted = ["#Consumer Subscription#", f"{TOPIC} {scene.broker_name} 0 2", "ConsumeMessageThread_"]
    await scene.says("consumerStatus", "-g", GROUP, "-i", scene.client_id, "-s", wanted=wanted)


@command("cloneGroupOffset")
async def clone_offsets(scene: Scene) -> None:
    options = ["-s", GROUP, "-d", "AdminClone", "-t", TOPIC, "-o", "true"]
    await scene.says("cloneGroupOffset", *options, wanted=["clone group offset success"])
    await scene.says("statsAll", "-t", TOPIC, wanted=[f"{TOPIC} AdminClone 0 "])


@command("skipAccumulatedMessage")
async def skip_accumulated(scene: Scene) -> None:
    wanted = ["#brokerName #queueId #offset", f"{scene.broker_name} 3 2"]
    await scene.says("skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC, wanted=wanted)


@command("resetOffsetByTime of an unknown group")
async def reset_unknown(scene: Scene) -> None:
    printed = await scene.admin.run("resetOffsetByTime", "-g", "AdminNobody", "-t", TOPIC, "-s", "now")
    expect_in("CODE:", printed)


# --- messages ---------------------------------------------------------------------------------------------------------


@command("queryMsgById")
async def query_by_id(scene: Scene) -> None:
    options = ["-i", scene.sent[0]["offset_message_id"]]
    wanted = [f"Topic: {TOPIC}", "Keys: [key0]", "Queue ID: 0", f"MessageTrack [consumerGroup={GROUP}"]
    await scene.says("queryMsgById", *options, wanted=wanted)


@command("queryMsgById -g -d (consume directly)")
async def consume_directly(scene: Scene) -> None:
    options = ["-i", scene.sent[0]["offset_message_id"], "-g", GROUP, "-d", scene.client_id]
    await scene.says("queryMsgById", *options, wanted=["consumeResult=CR_SUCCESS"])
    await scene.java.inbox("scene").wait(lambda seen: [one.body for one in seen].count("m0") == 2, "m0 once more")


@command("queryMsgByKey")
async def query_by_key(scene: Scene) -> None:
    await scene.says("queryMsgByKey", "-t", TOPIC, "-k", "key1", wanted=[f"{scene.sent[1]['message_id']} 1 0"])


@command("queryMsgByUniqueKey")
async def query_by_unique_key(scene: Scene) -> None:
    options = ["-t", TOPIC, "-i", scene.sent[2]["message_id"]]
    await scene.says("queryMsgByUniqueKey", *options, wanted=["Keys: [key2]", "Queue ID: 2"])


@command("queryMsgByOffset")
async def query_by_offset(scene: Scene) -> None:
    options = ["-b", scene.broker_name, "-t", TOPIC, "-i", "3", "-o", "1"]
    await scene.says("queryMsgByOffset", *options, wanted=["Keys: [key7]", "Queue Offset: 1"])


@command("queryMsgTraceById")
async def query_trace(scene: Scene) -> None:
    sent = await scene.java.call("send", topic=TOPIC, body="traced", trace="true", queue=0)

    async def is_there() -> bool:
        return "Pub guest_traced" in " ".join((await scene.admin.run(*words)).split())

    words = ("queryMsgTraceById", "-i", sent["message_id"])
    await eventually(is_there, "the trace of a message")


@command("printMsg")
async def print_messages(scene: Scene) -> None:
    printed = await scene.says("printMsg", "-t", TOPIC, "-s", "TagA", "-d", "true", wanted=["BODY: m0", "BODY: m7"])
    expect(printed.count("MSGID") == MESSAGES, f"{printed.count('MSGID')} messages, not {MESSAGES}")


@command("printMsgByQueue")
async def print_messages_of_queue(scene: Scene) -> None:
    options = ["-a", scene.broker_name, "-i", "1", "-t", TOPIC, "-d", "true", "-p", "true", "-f", "true"]
    await scene.says("printMsgByQueue", *options, wanted=["BODY: m1", "BODY: m5", "Tag: TagA Count: 2"])


@command("queryCq")
async def query_consume_queue(scene: Scene) -> None:
    options = ["-b", scene.broker, "-t", TOPIC, "-q", "1", "-i", "0", "-c", "2", "-g", GROUP]
    printed = await scene.says("queryCq", *options, wanted=['"subString":"*"', "max: 2, min: 0", "tagsCode=2598919"])
    expect(printed.count("ConsumeQueueData{") == 2, printed)


@command("sendMessage")
async def send_message(scene: Scene) -> None:
    options = ["-t", TOPIC, "-p", "by hand", "-k", "byHand", "-c", "TagX", "-b", scene.broker_name, "-i", "2"]
    await scene.says("sendMessage", *options, wanted=[f"{scene.broker_name} 2 SEND_OK"])
    await scene.java.inbox("scene").wait_bodies({"by hand"})


@command("consumeMessage")
async def consume_message(scene: Scene) -> None:
    options = ["-t", TOPIC, "-g", "AdminTool", "-b", scene.broker_name, "-i", "3", "-o", "0", "-c", "2"]
    await scene.says("consumeMessage", *options, wanted=["Consume ok", scene.sent[3]["message_id"]])


@command("checkMsgSendRT")
async def check_send_time(scene: Scene) -> None:
    printed = await scene.says("checkMsgSendRT", "-t", TOPIC, "-a", "5", wanted=["Avg RT: "])
    expect(printed.count("true") == 5, printed)
