"""Checks of mqadmin's commands about consumer groups: configuration, members and progress. The order matters."""

from interop.broker.admin_context import GROUP, TOPIC, AdminContext
from interop.broker.check_context import eventually, until_printed
from interop.broker.rows import Rows
from interop.report import expect, expect_in

GROUP_COMMANDS: Rows[AdminContext] = Rows()


@GROUP_COMMANDS.row("updateSubGroup")
async def update_group(context: AdminContext) -> None:
    options = ["-b", context.broker, "-g", "AdminNewGroup", "-r", "3", "-q", "2"]
    await context.expect_output(
        "updateSubGroup", *options, expected=[f"create subscription group to {context.broker} success"]
    )


@GROUP_COMMANDS.row("getConsumerConfig")
async def get_group(context: AdminContext) -> None:
    expected = ["groupName = AdminNewGroup", "retryMaxTimes = 3", "retryQueueNums = 2"]
    await context.expect_output("getConsumerConfig", "-g", "AdminNewGroup", expected=expected)


@GROUP_COMMANDS.row("deleteSubGroup")
async def delete_group(context: AdminContext) -> None:
    options = ["-b", context.broker, "-g", "AdminNewGroup", "-r", "true"]
    await context.expect_output(
        "deleteSubGroup", *options, expected=["delete subscription group [AdminNewGroup] from broker"]
    )
    printed = await context.admin.run("getConsumerConfig", "-g", "AdminNewGroup")
    expect("retryMaxTimes" not in printed, printed)


@GROUP_COMMANDS.row("consumerConnection")
async def consumer_connection(context: AdminContext) -> None:
    expected = [f"{context.client_id} ", "JAVA V4_9_8", f"{TOPIC} *", "ConsumeType: CONSUME_PASSIVELY"]
    await context.expect_output("consumerConnection", "-g", GROUP, expected=expected)


@GROUP_COMMANDS.row("producerConnection")
async def producer_connection(context: AdminContext) -> None:
    """Brokers know a producer from its first heartbeat. Apache's client sends that a second after its start if it has a
    route by then, else, on a slow machine, half a minute later."""
    expected = ["@producer-plain", "JAVA V4_9_8"]
    await until_printed(context.admin.run, expected, "producerConnection", "-g", "interop_plain", "-t", TOPIC)


@GROUP_COMMANDS.row("producer")
async def producers(context: AdminContext) -> None:
    expected = ["producer group (interop_plain) instance : clientId="]
    await until_printed(context.admin.run, expected, "producer", "-b", context.broker)


@GROUP_COMMANDS.row("consumerProgress -g")
async def consumer_progress(context: AdminContext) -> None:
    async def is_read() -> bool:
        return "Diff Total: 0" in await context.admin.run("consumerProgress", "-g", GROUP)

    await eventually(is_read, "Diff Total: 0")
    await context.expect_output(
        "consumerProgress", "-g", GROUP, "-s", "true", expected=[f"{TOPIC} {context.broker_name} 3 2 2 "]
    )


@GROUP_COMMANDS.row("consumerProgress")
async def progress_of_all(context: AdminContext) -> None:
    await context.expect_output("consumerProgress", expected=[f"{GROUP} 1 V4_9_8 PUSH CLUSTERING"])


@GROUP_COMMANDS.row("statsAll")
async def stats_all(context: AdminContext) -> None:
    await context.expect_output("statsAll", "-t", TOPIC, expected=[f"{TOPIC} {GROUP} 0"])


@GROUP_COMMANDS.row("brokerConsumeStats")
async def broker_consume_stats(context: AdminContext) -> None:
    await context.expect_output(
        "brokerConsumeStats", "-b", context.broker, expected=[f"{TOPIC} {GROUP} {context.broker_name} 3 2 2 0"]
    )


@GROUP_COMMANDS.row("consumerStatus")
async def consumer_status(context: AdminContext) -> None:
    expected = [f"1 {context.client_id} V4_9_8", "Same subscription in the same group", "Rebalance OK"]
    await context.expect_output("consumerStatus", "-g", GROUP, expected=expected)


@GROUP_COMMANDS.row("consumerStatus -i -s (with stack)")
async def consumer_stack(context: AdminContext) -> None:
    expected = ["#Consumer Subscription#", f"{TOPIC} {context.broker_name} 0 2", "ConsumeMessageThread_"]
    await context.expect_output("consumerStatus", "-g", GROUP, "-i", context.client_id, "-s", expected=expected)


@GROUP_COMMANDS.row("cloneGroupOffset")
async def clone_offsets(context: AdminContext) -> None:
    options = ["-s", GROUP, "-d", "AdminClone", "-t", TOPIC, "-o", "true"]
    await context.expect_output("cloneGroupOffset", *options, expected=["clone group offset success"])
    await context.expect_output("statsAll", "-t", TOPIC, expected=[f"{TOPIC} AdminClone 0 "])


@GROUP_COMMANDS.row("skipAccumulatedMessage")
async def skip_accumulated(context: AdminContext) -> None:
    expected = ["#brokerName #queueId #offset", f"{context.broker_name} 3 2"]
    await context.expect_output("skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC, expected=expected)


@GROUP_COMMANDS.row("resetOffsetByTime of an unknown group")
async def reset_unknown(context: AdminContext) -> None:
    printed = await context.admin.run("resetOffsetByTime", "-g", "AdminNobody", "-t", TOPIC, "-s", "now")
    expect_in("CODE:", printed)
