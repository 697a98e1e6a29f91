"""mqadmin's commands about messages: finding, printing, sending and consuming them. Some build on others."""

from interop.broker.admin_scene import GROUP, MESSAGES, TOPIC, Rows, Scene
from interop.broker.stage import eventually
from interop.report import expect

MESSAGE_COMMANDS = Rows()


@MESSAGE_COMMANDS.row("queryMsgById")
async def query_by_id(scene: Scene) -> None:
    options = ["-i", scene.sent[0]["offset_message_id"]]
    wanted = [f"Topic: {TOPIC}", "Keys: [key0]", "Queue ID: 0", f"MessageTrack [consumerGroup={GROUP}"]
    await scene.says("queryMsgById", *options, wanted=wanted)


@MESSAGE_COMMANDS.row("queryMsgById -g -d (consume directly)")
async def consume_directly(scene: Scene) -> None:
    options = ["-i", scene.sent[0]["offset_message_id"], "-g", GROUP, "-d", scene.client_id]
    await scene.says("queryMsgById", *options, wanted=["consumeResult=CR_SUCCESS"])
    await scene.java.inbox("scene").wait(lambda seen: [one.body for one in seen].count("m0") == 2, "m0 once more")


@MESSAGE_COMMANDS.row("queryMsgByKey")
async def query_by_key(scene: Scene) -> None:
    await scene.says("queryMsgByKey", "-t", TOPIC, "-k", "key1", wanted=[f"{scene.sent[1]['message_id']} 1 0"])


@MESSAGE_COMMANDS.row("queryMsgByUniqueKey")
async def query_by_unique_key(scene: Scene) -> None:
    options = ["-t", TOPIC, "-i", scene.sent[2]["message_id"]]
    await scene.says("queryMsgByUniqueKey", *options, wanted=["Keys: [key2]", "Queue ID: 2"])


@MESSAGE_COMMANDS.row("queryMsgByOffset")
async def query_by_offset(scene: Scene) -> None:
    options = ["-b", scene.broker_name, "-t", TOPIC, "-i", "3", "-o", "1"]
    await scene.says("queryMsgByOffset", *options, wanted=["Keys: [key7]", "Queue Offset: 1"])


@MESSAGE_COMMANDS.row("queryMsgTraceById")
async def query_trace(scene: Scene) -> None:
    sent = await scene.java.call("send", topic=TOPIC, body="traced", trace="true", queue=0)

    async def is_there() -> bool:
        return "Pub guest_traced" in " ".join((await scene.admin.run(*words)).split())

    words = ("queryMsgTraceById", "-i", sent["message_id"])
    await eventually(is_there, "the trace of a message")


@MESSAGE_COMMANDS.row("printMsg")
async def print_messages(scene: Scene) -> None:
    printed = await scene.says("printMsg", "-t", TOPIC, "-s", "TagA", "-d", "true", wanted=["BODY: m0", "BODY: m7"])
    expect(printed.count("MSGID") == MESSAGES, f"{printed.count('MSGID')} messages, not {MESSAGES}")


@MESSAGE_COMMANDS.row("printMsgByQueue")
async def print_messages_of_queue(scene: Scene) -> None:
    options = ["-a", scene.broker_name, "-i", "1", "-t", TOPIC, "-d", "true", "-p", "true", "-f", "true"]
    await scene.says("printMsgByQueue", *options, wanted=["BODY: m1", "BODY: m5", "Tag: TagA Count: 2"])


@MESSAGE_COMMANDS.row("queryCq")
async def query_consume_queue(scene: Scene) -> None:
    options = ["-b", scene.broker, "-t", TOPIC, "-q", "1", "-i", "0", "-c", "2", "-g", GROUP]
    printed = await scene.says("queryCq", *options, wanted=['"subString":"*"', "max: 2, min: 0", "tagsCode=2598919"])
    expect(printed.count("ConsumeQueueData{") == 2, printed)


@MESSAGE_COMMANDS.row("sendMessage")
async def send_message(scene: Scene) -> None:
    options = ["-t", TOPIC, "-p", "by hand", "-k", "byHand", "-c", "TagX", "-b", scene.broker_name, "-i", "2"]
    await scene.says("sendMessage", *options, wanted=[f"{scene.broker_name} 2 SEND_OK"])
    await scene.java.inbox("scene").wait_bodies({"by hand"})


@MESSAGE_COMMANDS.row("consumeMessage")
async def consume_message(scene: Scene) -> None:
    options = ["-t", TOPIC, "-g", "AdminTool", "-b", scene.broker_name, "-i", "3", "-o", "0", "-c", "2"]
    await scene.says("consumeMessage", *options, wanted=["Consume ok", scene.sent[3]["message_id"]])


@MESSAGE_COMMANDS.row("checkMsgSendRT")
async def check_send_time(scene: Scene) -> None:
    printed = await scene.says("checkMsgSendRT", "-t", TOPIC, "-a", "5", wanted=["Avg RT: "])
    expect(printed.count("true") == 5, printed)
