"""Transactional messages: visible only if a local transaction of the producer succeeds."""

import asyncio

from ariane import COMMIT, ROLLBACK, UNKNOWN, Decision, Message, TransactionProducer
from ariane.model.message import StoredMessage
from examples.demo_common import DemoCluster, Result, consuming


async def commit(cluster: DemoCluster) -> Result:
    """The consumer gets the message after the local transaction has committed, not before."""
    topic = await cluster.topic("tx-commit")
    visible_before_commit: list[int] = []

    async with consuming(cluster, topic) as collector:

        async def local_transaction(_message: Message, _arg: object) -> Decision:
            await asyncio.sleep(0.3)
            visible_before_commit.append(collector.count)
            return COMMIT

        async with _producer(cluster, "tx-commit") as producer:
            await producer.send_in_transaction(topic, b"paid", execute=local_transaction)
            await collector.wait_for(1)
    ok = visible_before_commit == [0] and collector.count == 1
    return Result(1, collector.count, "visible only after the commit", ok)


async def rollback(cluster: DemoCluster) -> Result:
    """A message of a transaction that is rolled back never becomes visible."""
    topic = await cluster.topic("tx-rollback", queues=1)
    async with consuming(cluster, topic) as collector, _producer(cluster, "tx-rollback") as producer:
        await producer.send_in_transaction(topic, b"never", execute=lambda _message, _arg: ROLLBACK)
        await producer.send(topic, b"after it")  # in the same queue, so it would arrive second
        await collector.wait_for(1)
    return Result(2, collector.count, "never visible; the next message is", collector.bodies == [b"after it"])


async def check_back(cluster: DemoCluster) -> Result:
    """The producer does not know the outcome of its transaction, so the broker checks later."""
    topic = await cluster.topic("tx-unknown")
    checked: list[str | None] = []

    def check(message: StoredMessage) -> Decision:
        checked.append(message.unique_key)
        return COMMIT

    async with (
        consuming(cluster, topic) as collector,
        TransactionProducer(cluster.nameserver, group="tx-unknown-senders", check=check) as producer,
    ):
        result = await producer.send_in_transaction(topic, b"later", execute=lambda _message, _arg: UNKNOWN)
        await collector.wait_for(1)
    ok = checked[:1] == [result.sent.message_id] and collector.bodies == [b"later"]
    return Result(1, collector.count, "visible after the broker's check", ok)


def _producer(cluster: DemoCluster, name: str) -> TransactionProducer:
    return TransactionProducer(cluster.nameserver, group=f"{name}-senders", check=lambda _message: UNKNOWN)
