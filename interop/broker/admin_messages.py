"""Checks of mqadmin's commands about messages: query, print, send and consume. Some commands use earlier results."""

from interop.broker.admin_context import GROUP, MESSAGES, TOPIC, AdminContext
from interop.broker.check_context import eventually
from interop.broker.rows import Rows
from interop.report import expect

MESSAGE_COMMANDS: Rows[AdminContext] = Rows()


@MESSAGE_COMMANDS.row("queryMsgById")
async def query_by_id(context: AdminContext) -> None:
    options = ["-i", context.sent[0]["offset_message_id"]]
    expected = [f"Topic: {TOPIC}", "Keys: [key0]", "Queue ID: 0", f"MessageTrack [consumerGroup={GROUP}"]
    await context.expect_output("queryMsgById", *options, expected=expected)


@MESSAGE_COMMANDS.row("queryMsgById -g -d (consume directly)")
async def consume_directly(context: AdminContext) -> None:
    options = ["-i", context.sent[0]["offset_message_id"], "-g", GROUP, "-d", context.client_id]
    await context.expect_output("queryMsgById", *options, expected=["consumeResult=CR_SUCCESS"])
    await context.java.inbox("admin").wait(
        lambda seen: [message.body for message in seen].count("m0") == 2, "m0 once more"
    )


@MESSAGE_COMMANDS.row("queryMsgByKey")
async def query_by_key(context: AdminContext) -> None:
    await context.expect_output(
        "queryMsgByKey", "-t", TOPIC, "-k", "key1", expected=[f"{context.sent[1]['message_id']} 1 0"]
    )


@MESSAGE_COMMANDS.row("queryMsgByUniqueKey")
async def query_by_unique_key(context: AdminContext) -> None:
    options = ["-t", TOPIC, "-i", context.sent[2]["message_id"]]
    await context.expect_output("queryMsgByUniqueKey", *options, expected=["Keys: [key2]", "Queue ID: 2"])


@MESSAGE_COMMANDS.row("queryMsgByOffset")
async def query_by_offset(context: AdminContext) -> None:
    options = ["-b", context.broker_name, "-t", TOPIC, "-i", "3", "-o", "1"]
    await context.expect_output("queryMsgByOffset", *options, expected=["Keys: [key7]", "Queue Offset: 1"])


@MESSAGE_COMMANDS.row("queryMsgTraceById")
async def query_trace(context: AdminContext) -> None:
    sent = await context.java.call("send", topic=TOPIC, body="traced", trace="true", queue=0)

    async def is_there() -> bool:
        return "Pub interop_traced" in " ".join((await context.admin.run(*words)).split())

    words = ("queryMsgTraceById", "-i", sent["message_id"])
    await eventually(is_there, "the trace of a message")


@MESSAGE_COMMANDS.row("printMsg")
async def print_messages(context: AdminContext) -> None:
    printed = await context.expect_output(
        "printMsg", "-t", TOPIC, "-s", "TagA", "-d", "true", expected=["BODY: m0", "BODY: m7"]
    )
    expect(printed.count("MSGID") == MESSAGES, f"{printed.count('MSGID')} messages, not {MESSAGES}")


@MESSAGE_COMMANDS.row("printMsgByQueue")
async def print_messages_of_queue(context: AdminContext) -> None:
    options = ["-a", context.broker_name, "-i", "1", "-t", TOPIC, "-d", "true", "-p", "true", "-f", "true"]
    await context.expect_output("printMsgByQueue", *options, expected=["BODY: m1", "BODY: m5", "Tag: TagA Count: 2"])


@MESSAGE_COMMANDS.row("queryCq")
async def query_consume_queue(context: AdminContext) -> None:
    options = ["-b", context.broker, "-t", TOPIC, "-q", "1", "-i", "0", "-c", "2", "-g", GROUP]
    printed = await context.expect_output(
        "queryCq", *options, expected=['"subString":"*"', "max: 2, min: 0", "tagsCode=2598919"]
    )
    expect(printed.count("ConsumeQueueData{") == 2, printed)


@MESSAGE_COMMANDS.row("sendMessage")
async def send_message(context: AdminContext) -> None:
    options = [
        "-t",
        TOPIC,
        "-p",
        "from mqadmin",
        "-k",
        "fromMqadmin",
        "-c",
        "TagX",
        "-b",
        context.broker_name,
        "-i",
        "2",
    ]
    await context.expect_output("sendMessage", *options, expected=[f"{context.broker_name} 2 SEND_OK"])
    await context.java.inbox("admin").wait_bodies({"from mqadmin"})


@MESSAGE_COMMANDS.row("consumeMessage")
async def consume_message(context: AdminContext) -> None:
    options = ["-t", TOPIC, "-g", "AdminTool", "-b", context.broker_name, "-i", "3", "-o", "0", "-c", "2"]
    await context.expect_output("consumeMessage", *options, expected=["Consume ok", context.sent[3]["message_id"]])


@MESSAGE_COMMANDS.row("checkMsgSendRT")
async def check_send_time(context: AdminContext) -> None:
    printed = await context.expect_output("checkMsgSendRT", "-t", TOPIC, "-a", "5", expected=["Avg RT: "])
    expect(printed.count("true") == 5, printed)
