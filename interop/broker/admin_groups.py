"""mqadmin's commands about groups: who is in them, and how far they are. In this order, for some build on others."""

from interop.broker.admin_scene import GROUP, TOPIC, Rows, Scene
from interop.broker.stage import eventually
from interop.report import expect, expect_in

GROUP_COMMANDS = Rows()


@GROUP_COMMANDS.row("updateSubGroup")
async def update_group(scene: Scene) -> None:
    options = ["-b", scene.broker, "-g", "AdminNewGroup", "-r", "3", "-q", "2"]
    await scene.says("updateSubGroup", *options, wanted=[f"create subscription group to {scene.broker} success"])


@GROUP_COMMANDS.row("getConsumerConfig")
async def get_group(scene: Scene) -> None:
    wanted = ["groupName = AdminNewGroup", "retryMaxTimes = 3", "retryQueueNums = 2"]
    await scene.says("getConsumerConfig", "-g", "AdminNewGroup", wanted=wanted)


@GROUP_COMMANDS.row("deleteSubGroup")
async def delete_group(scene: Scene) -> None:
    options = ["-b", scene.broker, "-g", "AdminNewGroup", "-r", "true"]
    await scene.says("deleteSubGroup", *options, wanted=["delete subscription group [AdminNewGroup] from broker"])
    printed = await scene.admin.run("getConsumerConfig", "-g", "AdminNewGroup")
    expect("retryMaxTimes" not in printed, printed)


@GROUP_COMMANDS.row("consumerConnection")
async def consumer_connection(scene: Scene) -> None:
    wanted = [f"{scene.client_id} ", "JAVA V4_9_8", f"{TOPIC} *", "ConsumeType: CONSUME_PASSIVELY"]
    await scene.says("consumerConnection", "-g", GROUP, wanted=wanted)


@GROUP_COMMANDS.row("producerConnection")
async def producer_connection(scene: Scene) -> None:
    await scene.says("producerConnection", "-g", "guest_plain", "-t", TOPIC, wanted=["@producer-plain", "JAVA V4_9_8"])


@GROUP_COMMANDS.row("producer")
async def producers(scene: Scene) -> None:
    await scene.says("producer", "-b", scene.broker, wanted=["producer group (guest_plain) instance : clientId="])


@GROUP_COMMANDS.row("consumerProgress -g")
async def consumer_progress(scene: Scene) -> None:
    async def is_read() -> bool:
        return "Diff Total: 0" in await scene.admin.run("consumerProgress", "-g", GROUP)

    await eventually(is_read, "Diff Total: 0")
    await scene.says("consumerProgress", "-g", GROUP, "-s", "true", wanted=[f"{TOPIC} {scene.broker_name} 3 2 2 "])


@GROUP_COMMANDS.row("consumerProgress")
async def progress_of_all(scene: Scene) -> None:
    await scene.says("consumerProgress", wanted=[f"{GROUP} 1 V4_9_8 PUSH CLUSTERING"])


@GROUP_COMMANDS.row("statsAll")
async def stats_all(scene: Scene) -> None:
    await scene.says("statsAll", "-t", TOPIC, wanted=[f"{TOPIC} {GROUP} 0"])


@GROUP_COMMANDS.row("brokerConsumeStats")
async def broker_consume_stats(scene: Scene) -> None:
    await scene.says("brokerConsumeStats", "-b", scene.broker, wanted=[f"{TOPIC} {GROUP} {scene.broker_name} 3 2 2 0"])


@GROUP_COMMANDS.row("consumerStatus")
async def consumer_status(scene: Scene) -> None:
    wanted = [f"1 {scene.client_id} V4_9_8", "Same subscription in the same group", "Rebalance OK"]
    await scene.says("consumerStatus", "-g", GROUP, wanted=wanted)


@GROUP_COMMANDS.row("consumerStatus -i -s (with stack)")
async def consumer_stack(scene: Scene) -> None:
    wanted = ["#Consumer Subscription#", f"{TOPIC} {scene.broker_name} 0 2", "ConsumeMessageThread_"]
    await scene.says("consumerStatus", "-g", GROUP, "-i", scene.client_id, "-s", wanted=wanted)


@GROUP_COMMANDS.row("cloneGroupOffset")
async def clone_offsets(scene: Scene) -> None:
    options = ["-s", GROUP, "-d", "AdminClone", "-t", TOPIC, "-o", "true"]
    await scene.says("cloneGroupOffset", *options, wanted=["clone group offset success"])
    await scene.says("statsAll", "-t", TOPIC, wanted=[f"{TOPIC} AdminClone 0 "])


@GROUP_COMMANDS.row("skipAccumulatedMessage")
async def skip_accumulated(scene: Scene) -> None:
    wanted = ["#brokerName #queueId #offset", f"{scene.broker_name} 3 2"]
    await scene.says("skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC, wanted=wanted)


@GROUP_COMMANDS.row("resetOffsetByTime of an unknown group")
async def reset_unknown(scene: Scene) -> None:
    printed = await scene.admin.run("resetOffsetByTime", "-g", "AdminNobody", "-t", TOPIC, "-s", "now")
    expect_in("CODE:", printed)
