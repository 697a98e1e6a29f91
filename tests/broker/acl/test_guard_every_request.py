"""Every request of a broker, sent by every kind of account over a real connection: who is refused, and who is not.

Two tenants share the broker. `reader` and `writer` belong to the first, which has the topic `orders` and the group
`billing`; `other` is the second, with a topic and a group of its own. Each request names what belongs to the first.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ariane.broker.server import handler_table
from ariane.clock import Clock
from ariane.model.group import GroupConfig, Subscription
from ariane.model.ids import PhysicalOffset, QueueOffset
from ariane.model.route import MessageQueue
from ariane.model.system_topics import OFFSET_MOVED_EVENT, SCHEDULE, TRACE, TRANS_HALF, reply_topic
from ariane.model.topic import TopicConfig
from ariane.transport.pool import Pool
from ariane.transport.settings import TransportSettings
from ariane.wire.codes import RequestCode, ResponseCode
from ariane.wire.exchange import declaration_of, request_command
from ariane.wire.fields import Request
from ariane.wire.frame import Command
from ariane.wire.message_id import offset_message_id
from ariane.wire.requests import acl, brokers, clients, groups, messages, offsets, replication, send, topics
from ariane.wire.requests.pull import LitePull
from ariane.wire.signature import content_to_sign, sign
from ariane.wire.sys_flag import SysFlag
from tests.broker.brokers import RunningBroker, running_broker
from tests.broker.in_process_broker import a_pull, a_send

TOPIC, GROUP, OTHER_TOPIC, OTHER_GROUP, PRODUCERS = "orders", "billing", "returns", "shipping", "payers"
ACCOUNTS = f"""
accounts:
- {{accessKey: reader1, secretKey: secret-of-reader1, topicPerms: [{TOPIC}=SUB], groupPerms: [{GROUP}=SUB]}}
- {{accessKey: writer1, secretKey: secret-of-writer1, topicPerms: [{TOPIC}=PUB]}}
- {{accessKey: other-2, secretKey: secret-of-other-2, topicPerms: [{OTHER_TOPIC}=PUB|SUB],
   groupPerms: [{OTHER_GROUP}=SUB]}}
- {{accessKey: default, secretKey: secret-of-default, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}}
- {{accessKey: admin-1, secretKey: secret-of-admin-1, admin: true}}
"""
ANONYMOUS, READER, WRITER, OTHER, ADMIN = None, "reader1", "writer1", "other-2", "admin-1"
ACCOUNT_NAMES = {ANONYMOUS: "anonymous", READER: "reader", WRITER: "writer", OTHER: "other", ADMIN: "admin"}

# Who is not refused. Nobody is, without a signature.
READ, WRITE, KNOW, EVERYBODY, ONLY_ADMIN = (
    {READER, ADMIN},
    {WRITER, ADMIN},
    {READER, WRITER, ADMIN},
    {READER, WRITER, OTHER, ADMIN},
    {ADMIN},
)


class Client:
    def __init__(self, pool: Pool, address: str) -> None:
        self._pool = pool
        self._address = address

    async def call(self, request: Request[Any], key: str | None) -> Command:
        command = request_command(request, opaque=0)
        if key is not None:
            ext = command.ext | {"AccessKey": key}
            content = content_to_sign(ext, command.body, with_unique_key_query=False)
            command.ext_texts = ext | {"Signature": sign(f"secret-of-{key}", content)}
        return await self._pool.call(self._address, command, 10)

    async def done(self, request: Request[Any], key: str | None = ADMIN) -> Any:
        response = await self.call(request, key)
        assert response.code == 0, response.remark
        return response.fields(declaration_of(type(request)).response)


class Stage(NamedTuple):
    broker: RunningBroker
    client: Client
    offset: PhysicalOffset
    """Of a message in `orders`."""
    half: send.SendResponse
    half_offset: PhysicalOffset


def half_message(topic: str = TOPIC) -> send.SendMessageV2:
    flag = int(SysFlag.TRANSACTION_PREPARED)
    return a_send(b"half", {"TRAN_MSG": "true", "PGROUP": PRODUCERS}, topic=topic, sys_flag=flag)


def offset_of(response: send.SendResponse) -> PhysicalOffset:
    return PhysicalOffset(int(response.msg_id[16:], 16))


def outcome(half: send.SendResponse, decision: int = 8) -> send.EndTransaction:
    return send.EndTransaction(
        producer_group=PRODUCERS,
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=offset_of(half),
        commit_or_rollback=decision,
        msg_id="",
    )


@asynccontextmanager
async def stage(tmp_path: Path, **settings: Any) -> AsyncIterator[Stage]:
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    async with (
        running_broker(tmp_path, acl_enable=True, acl_file=file, **settings) as broker,
        Pool.open(TransportSettings(), Clock(), lambda *_: None) as pool,
    ):
        for topic in (TOPIC, OTHER_TOPIC):
            broker.parts.topics.put(TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1))
        for group in (GROUP, OTHER_GROUP):
            broker.parts.groups.put(GroupConfig(group_name=group))
        client = Client(pool, broker.address)
        sent = await client.done(a_send(b"secret", topic=TOPIC))
        half = await client.done(half_message())
        yield Stage(broker, client, offset_of(sent), half, offset_of(half))


def heartbeat(group: str = GROUP, topic: str = TOPIC, producers: str = PRODUCERS) -> clients.Heartbeat:
    consumer = clients.ConsumerData(group_name=group, subscription_data_set=[Subscription(topic=topic)])
    producer = clients.ProducerData(group_name=producers)
    return clients.Heartbeat(
        clients.HeartbeatData(client_id="c", producer_data_set=[producer], consumer_data_set=[consumer])
    )


def every_request(stage: Stage) -> list[tuple[Request[Any], set[str]]]:
    """Each request, and who may send it. The codes of a broker that are not here fail the test."""
    sent = {"topic": TOPIC, "producer_group": "p", "default_topic": "TBW102", "default_topic_queue_nums": 1}
    sent |= {"queue_id": 0, "sys_flag": 0, "born_timestamp": 0, "flag": 0, "body": b"x"}
    reply = sent | {"topic": reply_topic(stage.broker.settings.cluster), "properties": "REPLY_TO_CLIENT\x01nobody"}
    pull = a_pull(consumer_group=GROUP, topic=TOPIC)
    lite = {name: getattr(pull, name) for name in pull.__struct_fields__}
    locks = clients.QueueLocks(
        consumer_group=GROUP, client_id="c", mq_set=[MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=0)]
    )
    check = clients.ClientCheck(client_id="c", group=GROUP, subscription_data=Subscription(topic=TOPIC))
    offset_id = offset_message_id(stage.broker.parts.store_host, stage.offset)
    config = topics.UpdateTopic(
        topic="made",
        default_topic="TBW102",
        read_queue_nums=1,
        write_queue_nums=1,
        perm=6,
        topic_filter_type="SINGLE_TAG",
    )
    query = messages.QueryMessages(topic=TOPIC, key="k", max_num=1, begin_timestamp=0, end_timestamp=2**62)
    return [
        # messages in
        (send.SendMessage(**sent), WRITE),  # type: ignore[arg-type]
        (send.SendMessageV2(**sent), WRITE),  # type: ignore[arg-type]
        (send.SendBatch(**sent), WRITE),  # type: ignore[arg-type]
        (send.SendReply(**reply), EVERYBODY),  # type: ignore[arg-type]
        (send.SendReplyV2(**reply), EVERYBODY),  # type: ignore[arg-type]
        (send.SendReply(**sent), WRITE),  # type: ignore[arg-type]
        (send.SendReplyV2(**sent), WRITE),  # type: ignore[arg-type]
        (send.SendBack(offset=stage.offset, group=GROUP, delay_level=0), READ),
        (send.SendBack(offset=stage.offset, group=OTHER_GROUP, delay_level=0), ONLY_ADMIN),
        (outcome(stage.half), WRITE),
        (send.ResumeTransactionChecks("0"), ONLY_ADMIN),
        # messages out
        (pull, READ),
        (a_pull(consumer_group=OTHER_GROUP, topic=TOPIC), ONLY_ADMIN),
        (a_pull(consumer_group=GROUP, topic=f"%RETRY%{GROUP}"), READ),
        (a_pull(consumer_group=GROUP, topic=f"%DLQ%{GROUP}"), READ),
        (a_pull(consumer_group=OTHER_GROUP, topic=f"%DLQ%{GROUP}"), ONLY_ADMIN),
        (LitePull(**lite), READ),
        (query, READ),
        (messages.ViewMessage(stage.offset), READ),
        (messages.ViewMessage(stage.half_offset), ONLY_ADMIN),
        (messages.QueryConsumeQueue(TOPIC, 0, 0, 1), READ),
        (messages.QueryConsumeQueue(TOPIC, 0, 0, 1, GROUP), READ),
        (clients.ConsumeDirectly(GROUP, "nobody", offset_id), ONLY_ADMIN),
        # clients
        (heartbeat(), READ),
        (heartbeat(OTHER_GROUP, TOPIC), ONLY_ADMIN),
        (heartbeat(GROUP, OTHER_TOPIC), ONLY_ADMIN),
        (heartbeat(OTHER_GROUP, f"%RETRY%{GROUP}"), ONLY_ADMIN),
        (clients.UnregisterClient("c", PRODUCERS, GROUP), READ),
        (clients.GetConsumerIds(GROUP), READ),
        (clients.CheckClientConfig(check), READ),
        (clients.LockQueues(locks), READ),
        (clients.UnlockQueues(locks), READ),
        (clients.GetRunningInfo(GROUP, "nobody"), READ),
        (clients.GetConsumerConnections(GROUP), READ),
        (clients.GetProducerConnections(PRODUCERS), ONLY_ADMIN),
        (clients.GetAllProducers(), ONLY_ADMIN),
        # offsets
        (offsets.GetConsumerOffset(GROUP, TOPIC, 0), READ),
        (offsets.GetConsumerOffset(OTHER_GROUP, TOPIC, 0), ONLY_ADMIN),
        (offsets.UpdateConsumerOffset(GROUP, TOPIC, 0, QueueOffset(0)), READ),
        (offsets.UpdateConsumerOffset(GROUP, OTHER_TOPIC, 0, QueueOffset(0)), ONLY_ADMIN),
        (offsets.SearchOffset(TOPIC, 0, 0), KNOW),
        (offsets.GetMaxOffset(TOPIC, 0), KNOW),
        (offsets.GetMinOffset(TOPIC, 0), KNOW),
        (offsets.GetEarliestStoreTime(TOPIC, 0), KNOW),
        (offsets.GetAllConsumerOffsets(), EVERYBODY),
        (offsets.GetAllDelayOffsets(), ONLY_ADMIN),
        (offsets.GetTimerProgress(), ONLY_ADMIN),
        (offsets.GetCorrectionOffsets(compare_group=GROUP, topic=TOPIC), READ),
        (offsets.CloneGroupOffset(src_group=GROUP, dest_group=GROUP, topic=TOPIC), READ),
        (offsets.CloneGroupOffset(src_group=GROUP, dest_group=OTHER_GROUP, topic=TOPIC), ONLY_ADMIN),
        (offsets.ResetOffsets(topic=TOPIC, group=GROUP, timestamp=0, is_force=True), READ),
        (offsets.GetConsumerStatus(TOPIC, GROUP), READ),
        # groups and topics
        (groups.UpdateGroup(GroupConfig(group_name="made")), ONLY_ADMIN),
        (groups.DeleteGroup("made"), ONLY_ADMIN),
        (groups.GetGroupTable(), EVERYBODY),
        (groups.GetGroupConfig(GROUP), READ),
        (groups.GetConsumeStats(GROUP), READ),
        (groups.GetConsumeStats(GROUP, TOPIC), READ),
        (groups.GetBrokerConsumeStats(), EVERYBODY),
        (groups.ListGroupsOfTopic(TOPIC), KNOW),
        (groups.GetConsumeTimeSpans(TOPIC, GROUP), READ),
        (config, ONLY_ADMIN),
        (topics.DeleteTopicInBroker("made"), ONLY_ADMIN),
        (topics.GetTopicTable(), EVERYBODY),
        (topics.GetTopicConfig(TOPIC), KNOW),
        (topics.GetTopicStats(TOPIC), KNOW),
        (topics.ListSystemTopicsInBroker(), EVERYBODY),
        # the broker
        (brokers.GetBrokerSettings(), ONLY_ADMIN),
        (brokers.UpdateBrokerSettings(""), ONLY_ADMIN),
        (brokers.GetRuntimeInfo(), EVERYBODY),
        (replication.GetHaStatus(), ONLY_ADMIN),
        (brokers.GetBrokerStats("TOPIC_PUT_NUMS", TOPIC), KNOW),
        (brokers.GetBrokerStats("GROUP_GET_NUMS", f"{TOPIC}@{GROUP}"), READ),
        (brokers.CleanExpiredConsumeQueues(), ONLY_ADMIN),
        (brokers.CleanUnusedTopics(), ONLY_ADMIN),
        (brokers.DeleteExpiredCommitLog(), ONLY_ADMIN),
        # accounts; the last two are without effect
        (acl.GetAccessVersion(), ONLY_ADMIN),
        (acl.GetAccessRules(), ONLY_ADMIN),
        (acl.UpdateAccount(access_key="short"), ONLY_ADMIN),
        (acl.DeleteAccount("stranger"), ONLY_ADMIN),
        (acl.UpdateGlobalWhiteList(""), ONLY_ADMIN),
    ]


async def test_every_request_has_a_verdict_for_every_account(tmp_path: Path) -> None:
    wrong = []
    async with stage(tmp_path) as on:
        table, served = every_request(on), handler_table(on.broker.parts, on.broker.broker.replication).codes()
        for request, allowed in table:
            for key, name in ACCOUNT_NAMES.items():
                response = await on.client.call(request, key)
                if (response.code != ResponseCode.NO_PERMISSION) is not (key in allowed):
                    wrong.append(f"{request} by {name}: {response.code} {response.remark}")
    missing = served - {int(declaration_of(type(request)).code) for request, _ in table}
    assert not missing, f"requests without a verdict: {[RequestCode(code).name for code in missing]}"
    assert not wrong, "\n".join(wrong)


# --- what requests really touch ---------------------------------------------------------------------------------------


async def test_a_message_sent_back_cannot_be_read_by_another_tenant(tmp_path: Path) -> None:
    """The copy would be in a topic that follows the rights on the tenant's own group."""
    async with stage(tmp_path) as on:
        stolen = send.SendBack(offset=on.offset, group=OTHER_GROUP, delay_level=-1)
        assert (await on.client.call(stolen, OTHER)).code == ResponseCode.NO_PERMISSION
        assert not on.broker.parts.store.store.components.queues.of_topic(f"%DLQ%{OTHER_GROUP}")
        kept = send.SendBack(offset=on.offset, group=GROUP, delay_level=-1)
        await on.client.done(kept, READER)
        dead = await on.client.done(a_pull(consumer_group=GROUP, topic=f"%DLQ%{GROUP}"), READER)
        assert b"secret" in (await on.client.call(a_pull(consumer_group=GROUP, topic=f"%DLQ%{GROUP}"), READER)).body
        assert dead.max_offset == 1


async def test_a_transaction_is_ended_only_by_who_may_publish_to_its_topic(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        for key in (OTHER, READER):
            for decision in (8, 12):
                assert (await on.client.call(outcome(on.half, decision), key)).code == ResponseCode.NO_PERMISSION
        queue = on.broker.parts.store.store.components.queues.get(TOPIC, 0)
        assert queue is not None
        assert queue.max_offset == 1, "only the message that the stage sent"
        await on.client.done(outcome(on.half), WRITER)
        assert queue.max_offset == 2


async def test_a_refusal_does_not_tell_in_which_topic_a_message_is(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        back = send.SendBack(offset=on.offset, group=OTHER_GROUP, delay_level=0)
        for request in (messages.ViewMessage(on.offset), back, outcome(on.half)):
            response = await on.client.call(request, OTHER)
            assert response.code == ResponseCode.NO_PERMISSION
            assert TOPIC not in (response.remark or "")


async def test_a_half_message_is_not_sent_to_a_stranger_who_calls_himself_a_producer(tmp_path: Path) -> None:
    """A check request contains the message."""
    asked: dict[str, list[Command]] = {OTHER: [], WRITER: []}
    async with stage(tmp_path, transaction_timeout_s=0.0, transaction_check_max=100) as on:
        await on.client.done(half_message())
        beat = clients.Heartbeat(
            clients.HeartbeatData(client_id="c", producer_data_set=[clients.ProducerData(group_name=PRODUCERS)])
        )

        def receiver(key: str) -> Any:
            return lambda _, command: asked[key].append(command)

        async with (
            Pool.open(TransportSettings(), Clock(), receiver(OTHER)) as foreign,
            Pool.open(TransportSettings(), Clock(), receiver(WRITER)) as own,
        ):
            stranger, producer = Client(foreign, on.broker.address), Client(own, on.broker.address)
            await stranger.done(beat, OTHER)
            await on.broker.parts.checks.run_pass()
            await stranger.done(beat, OTHER)  # its response comes after everything that the pass has sent
            assert asked[OTHER] == []
            await producer.done(beat, WRITER)
            for _ in range(4):
                await on.broker.parts.checks.run_pass()
            await stranger.done(beat, OTHER)
            await producer.done(beat, WRITER)
        assert asked[OTHER] == []
        assert len(asked[WRITER]) >= 4
        assert all(command.code == RequestCode.CHECK_TRANSACTION_STATE for command in asked[WRITER])


async def test_a_reply_is_no_way_into_a_topic(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        forged = send.SendReplyV2(
            topic=TOPIC,
            producer_group="p",
            default_topic="TBW102",
            default_topic_queue_nums=1,
            queue_id=0,
            sys_flag=0,
            born_timestamp=0,
            flag=0,
            body=b"forged",
        )
        assert (await on.client.call(forged, OTHER)).code == ResponseCode.NO_PERMISSION
        assert on.broker.parts.store.store.components.queues.of_topic(TOPIC)[0].max_offset == 1


@pytest.mark.parametrize("topic", [TRANS_HALF, SCHEDULE, TRACE, OFFSET_MOVED_EVENT, "DefaultCluster_REPLY_TOPIC"])
async def test_default_permissions_do_not_open_system_topics(tmp_path: Path, topic: str) -> None:
    async with stage(tmp_path) as on:
        assert (await on.client.call(a_pull(consumer_group=GROUP, topic=topic), "default")).code == 16
        progress = offsets.UpdateConsumerOffset("CID_RMQ_SYS_TRANS", TOPIC, 0, QueueOffset(0))
        assert (await on.client.call(progress, "default")).code == 16
        assert (await on.client.call(a_pull(consumer_group=GROUP, topic=TOPIC), "default")).code == 0
        traces = a_send(b"trace", topic=TRACE)
        assert (await on.client.call(traces, "default")).code == 0, "every account may report traces"


async def test_lists_show_what_the_account_may_see(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        for group, topic in ((GROUP, TOPIC), (OTHER_GROUP, OTHER_TOPIC)):
            on.broker.parts.offsets.commit(group, topic, 0, 0)

        async def names(key: str) -> tuple[set[str], set[str], set[str], set[str]]:
            by = on.client
            all_topics = (await by.call(topics.GetTopicTable(), key)).body.decode()
            all_groups = (await by.call(groups.GetGroupTable(), key)).body.decode()
            all_offsets = (await by.call(offsets.GetAllConsumerOffsets(), key)).body.decode()
            progress = (await by.call(groups.GetBrokerConsumeStats(), key)).body.decode()
            every = (TOPIC, OTHER_TOPIC, TRANS_HALF, SCHEDULE, GROUP, OTHER_GROUP)
            found = [
                {name for name in every if name in text} for text in (all_topics, all_groups, all_offsets, progress)
            ]
            return found[0], found[1], found[2], found[3]

        assert await names(READER) == ({TOPIC}, {GROUP}, {TOPIC, GROUP}, {TOPIC, GROUP})
        assert await names(WRITER) == ({TOPIC}, set(), set(), set())
        assert (await names(OTHER))[:3] == ({OTHER_TOPIC}, {OTHER_GROUP}, {OTHER_TOPIC, OTHER_GROUP})
        everything = await names(ADMIN)
        assert {TOPIC, OTHER_TOPIC, SCHEDULE} <= everything[0]
        assert everything[1] == {GROUP, OTHER_GROUP}
        shown = (await on.client.call(groups.ListGroupsOfTopic(TOPIC), WRITER)).body
        assert GROUP.encode() not in shown
