"""Every kind of send with a complete broker: Ariane's, and Apache's 4.9.7 if ARIANE_INTEROP=1."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from ariane.client.core.instance import Instance
from ariane.client.producer.producer import Producer
from ariane.client.producer.result import SendResult
from ariane.client.producer.transactional import COMMIT, ROLLBACK, UNKNOWN, TransactionProducer
from ariane.client.settings import ClientSettings
from ariane.errors import MessageRejected, NoRoute, SendFailed
from ariane.model.ids import QueueOffset
from ariane.model.message import Message, StoredMessage
from ariane.model.route import MessageQueue
from ariane.settings import Secret
from ariane.wire.compression import decompress
from ariane.wire.message_id import decode_offset_message_id
from ariane.wire.record.read import decode, decode_all
from ariane.wire.requests.messages import ViewMessage
from ariane.wire.requests.pull import PullMessage, PullSysFlag
from ariane.wire.requests.send import Decision
from tests.broker.brokers import running_cluster
from tests.client.apache_servers import apache, needs_apache

PATIENCE_S = 60


@dataclass
class Servers:
    nameserver: str
    reader: Instance

    def producer(self, **options: object) -> Producer:
        return Producer(self.nameserver, group="pg", **options)  # type: ignore[arg-type]

    async def stored(self, result: SendResult) -> StoredMessage:
        """The message that the result says was stored there."""
        place = decode_offset_message_id(result.offset_message_id)
        response = await self.reader.call(str(place.store_host), ViewMessage(place.physical_offset))
        return decode(response.body, check_crc=True)

    async def next_in(self, queue: MessageQueue, offset: int = 0) -> StoredMessage:
        """The message at this offset of the queue; waits until it is there."""
        await self.reader.routes.route(queue.topic)
        address = self.reader.routes.master_of(queue.broker_name)
        assert address is not None
        async with asyncio.timeout(PATIENCE_S):
            while True:
                response = await self.reader.call(address, _pull(queue, offset), 30)
                messages = decode_all(response.body)
                if messages:
                    return messages[0]


def _pull(queue: MessageQueue, offset: int) -> PullMessage:
    return PullMessage(
        consumer_group="readers",
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=QueueOffset(offset),
        max_msg_nums=1,
        sys_flag=PullSysFlag.SUSPEND | PullSysFlag.SUBSCRIPTION,
        commit_offset=QueueOffset(0),
        suspend_timeout_millis=5000,
        sub_version=0,
        subscription="*",
    )


@pytest.fixture(params=["ours", pytest.param("apache", marks=needs_apache)])
async def servers(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Servers]:
    if request.param == "apache":
        names: str = request.getfixturevalue("apache_servers").nameserver
        async with Instance.open(ClientSettings(nameservers=names)) as reader:
            yield Servers(names, reader)
        return
    async with running_cluster(
        tmp_path, transaction_timeout_s=1, transaction_check_interval_s=1, auto_create_topics=True
    ) as ours:
        async with Instance.open(ClientSettings(nameservers=ours.nameserver)) as reader:
            yield Servers(ours.nameserver, reader)


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid4().hex[:8]}"


async def test_a_message_is_stored_with_all_its_fields(servers: Servers, topic: str) -> None:
    async with servers.producer() as producer:
        result = await producer.send(
            topic, b"hello", tags="A", keys=["k1", "k2"], properties={"colour": "grün"}, flag=5, sharding_key="s"
        )
    message = await servers.stored(result)
    assert (message.topic, message.body, message.flag) == (topic, b"hello", 5)
    assert (message.tags, message.keys, message.unique_key) == ("A", ("k1", "k2"), result.message_id)
    assert (message.properties["colour"], message.properties["__SHARDINGKEY"]) == ("grün", "s")
    assert (message.queue_id, message.queue_offset) == (result.queue.queue_id, result.queue_offset)


async def test_a_large_body_is_sent_compressed(servers: Servers, topic: str) -> None:
    body = b"all work and no play " * 10_000
    async with servers.producer() as producer:
        message = await servers.stored(await producer.send(topic, body))
    assert len(message.body) < 10_000
    assert decompress(message.body, message.sys_flag, 1 << 20) == body


async def test_every_message_of_a_batch_is_where_its_result_says(servers: Servers, topic: str) -> None:
    async with servers.producer() as producer:
        await producer.send(topic, b"first")  # creates the topic
        results = await producer.send_batch([Message(topic=topic, body=b"%d" % n, tags=f"t{n}") for n in range(600)])
    for number in (0, 1, 499, 500, 599):
        message = await servers.stored(results[number])
        assert (message.body, message.tags) == (b"%d" % number, f"t{number}")
        assert (message.unique_key, message.queue_offset) == (results[number].message_id, results[number].queue_offset)


async def test_accumulated_messages_are_where_their_results_say(servers: Servers, topic: str) -> None:
    async with servers.producer(batch_linger_ms=5) as producer:
        await producer.send(topic, b"first")
        results = await asyncio.gather(*(producer.send(topic, b"%d" % number) for number in range(50)))
    for number, result in enumerate(results):
        message = await servers.stored(result)
        assert (message.body, message.unique_key) == (b"%d" % number, result.message_id)
        assert message.queue_offset == result.queue_offset


async def test_messages_of_one_sharding_key_stay_in_order(servers: Servers, topic: str) -> None:
    async with servers.producer() as producer:
        await producer.send(topic, b"first")
        results = [await producer.send(topic, b"%d" % number, sharding_key="user-1") for number in range(5)]
    assert len({result.queue for result in results}) == 1
    first = results[0].queue_offset
    assert [result.queue_offset for result in results] == list(range(first, first + 5))


async def test_a_one_way_message_arrives(servers: Servers, topic: str) -> None:
    async with servers.producer() as producer:
        queue = (await producer.send(topic, b"first")).queue
        await producer.send_oneway(topic, b"second", queue=queue)
        assert (await servers.next_in(queue, 1)).body == b"second"


async def test_a_delayed_message_arrives_later(servers: Servers, topic: str) -> None:
    async with servers.producer() as producer:
        await producer.send(topic, b"first")
        queue = (await producer.queues(topic))[0]
        offset = (await producer.send(topic, b"now", queue=queue)).queue_offset
        await producer.send(topic, b"later", queue=queue, delay_level=1)
        message = await servers.next_in(queue, offset + 1)
    assert message.body == b"later"
    assert message.store_timestamp_ms - message.born_timestamp_ms >= 1000


async def test_a_transaction_is_visible_only_after_its_commit(servers: Servers, topic: str) -> None:
    async with (
        servers.producer() as plain,
        TransactionProducer(servers.nameserver, group="tx", check=lambda message: UNKNOWN) as producer,
    ):
        queue = (await plain.send(topic, b"first")).queue
        await producer.send_in_transaction(topic, b"roll back", queue=queue, execute=lambda _m, _a: ROLLBACK)
        await producer.send_in_transaction(topic, b"commit", queue=queue, execute=lambda _m, _a: COMMIT)
        message = await servers.next_in(queue, 1)
    assert message.body == b"commit"


async def test_an_unknown_transaction_is_decided_by_the_check(servers: Servers, topic: str) -> None:
    checked: list[StoredMessage] = []

    async def check(message: StoredMessage) -> Decision:
        checked.append(message)
        return COMMIT

    async with (
        servers.producer() as plain,
        TransactionProducer(servers.nameserver, group=f"tx-{topic}", check=check) as producer,
    ):
        queue = (await plain.send(topic, b"first")).queue
        result = await producer.send_in_transaction(
            topic, b"x" * 5000, keys=["k"], queue=queue, execute=lambda _m, _a: UNKNOWN
        )
        message = await servers.next_in(queue, 1)
    assert message.unique_key == result.sent.message_id
    assert (checked[0].body, checked[0].keys, checked[0].topic) == (b"x" * 5000, ("k",), topic)


async def test_a_request_gets_its_reply(servers: Servers, topic: str) -> None:
    async with servers.producer() as requester, Producer(servers.nameserver, group="replier") as replier:
        queue = (await requester.send(topic, b"first")).queue
        waiting = asyncio.ensure_future(requester.request(topic, b"6 * 7?", queue=queue, timeout_s=20))
        request = await servers.next_in(queue, 1)
        await replier.reply(request, b"42")
        assert (await waiting).body == b"42"


async def test_traces_reach_the_trace_topic(servers: Servers, topic: str) -> None:
    async with servers.producer() as plain, servers.producer(trace=True) as producer:
        result = await producer.send(topic, b"hello", keys=["k1"])
        await producer.close()
        (queue, *_rest) = await plain.queues("RMQ_SYS_TRACE_TOPIC")
        body = b""
        offset = 0
        while result.message_id.encode() not in body:
            message = await servers.next_in(queue, offset)
            body = decompress(message.body, message.sys_flag, 1 << 20)
            offset += 1
    assert b"Pub\x01" in body
    assert "k1" in message.keys


async def test_the_vip_port_accepts_messages(servers: Servers, topic: str) -> None:
    settings = ClientSettings(nameservers=servers.nameserver, vip_channel=True)
    async with Producer(group="pg", settings=settings) as producer:
        assert (await servers.stored(await producer.send(topic, b"hello"))).body == b"hello"


async def test_a_message_too_large_for_the_broker_is_rejected(servers: Servers, topic: str) -> None:
    async with servers.producer(message_bytes_max=6 << 20, compress_over_bytes=8 << 20) as producer:
        with pytest.raises(MessageRejected, match="broker"):
            await producer.send(topic, b"x" * (5 << 20))


async def test_without_auto_creation_a_missing_topic_is_a_clear_error(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, auto_create_topics=False) as ours:
        async with Producer(ours.nameserver, group="pg") as producer:
            with pytest.raises(NoRoute, match="ariane topic create nowhere"):
                await producer.send("nowhere", b"x")


# --- access control

ACCOUNTS = """
globalWhiteRemoteAddresses: []
accounts:
  - accessKey: rocketmq-user
    secretKey: "12345678"
    admin: false
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: SUB
"""


@needs_apache
async def test_apaches_access_control_accepts_the_signature(tmp_path: Path) -> None:
    conf = tmp_path / "broker-0" / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(ACCOUNTS)
    with apache(tmp_path, aclEnable="true") as servers:
        for secret, is_right in (("12345678", True), ("87654321", False)):
            settings = ClientSettings(
                nameservers=servers.nameserver, access_key="rocketmq-user", secret_key=Secret(secret)
            )
            async with Producer(group="pg", settings=settings, trace=True, batch_linger_ms=1) as producer:
                if is_right:
                    assert (await producer.send("T", b"hello", keys=["k"], properties={"ä": "ö"})).is_ok
                    assert (await producer.send("T", b"x" * 9000)).is_ok
                else:
                    with pytest.raises(SendFailed, match="ignature"):
                        await producer.send("T", b"hello")
