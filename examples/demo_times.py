"""Messages that are not for now: after a delay, at a time, or when a transaction has succeeded."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

from ariane.client.consumer.message import Received
from ariane.client.producer.transactional import COMMIT, ROLLBACK, UNKNOWN, TransactionProducer
from ariane.model.message import Message, StoredMessage
from ariane.wire.requests.send import Decision
from examples.demo_stage import Inbox, Row, Stage, bodies, consuming


class TimedInbox(Inbox):
    """Notes how far behind its time each message came. The handlers run where the messages were made: one clock."""

    def __init__(self) -> None:
        super().__init__()
        self.due_ms: dict[bytes, float] = {}
        self.late_ms: list[float] = []

    async def take(self, message: Received) -> None:
        self.late_ms.append(time.time() * 1000 - self.due_ms[message.body])
        await super().take(message)

    def row(self) -> Row:
        ok = self.count == len(self.due_ms) and min(self.late_ms) >= 0
        shown = (
            f"never early; {min(self.late_ms):.0f} to {max(self.late_ms):.0f} ms late" if self.late_ms else "none came"
        )
        return Row(len(self.due_ms), self.count, shown, ok)


async def delay_level(stage: Stage) -> Row:
    """Level 1 is one second with this broker (messageDelayLevel)."""
    topic = await stage.topic("delay-level")
    inbox = TimedInbox()
    async with consuming(stage, topic, handler=inbox.take):
        for body in bodies(5):
            inbox.due_ms[body] = time.time() * 1000 + 1000
            await stage.producer.send(topic, body, delay_level=1)
        await inbox.wait_for(5)
    return inbox.row()


async def deliver_at(stage: Stage) -> Row:
    topic = await stage.topic("deliver-at")
    inbox = TimedInbox()
    async with consuming(stage, topic, handler=inbox.take):
        for number, body in enumerate(bodies(5)):
            moment = datetime.now(UTC) + timedelta(seconds=1, milliseconds=130 * number)
            inbox.due_ms[body] = int(moment.timestamp() * 1000)
            await stage.producer.send(topic, body, deliver_at=moment)
        await inbox.wait_for(5)
    return inbox.row()


async def commit(stage: Stage) -> Row:
    topic = await stage.topic("tx-commit")
    seen_before_commit: list[int] = []

    async with consuming(stage, topic) as inbox:

        async def local_transaction(_message: Message, _arg: object) -> Decision:
            await asyncio.sleep(0.3)
            seen_before_commit.append(inbox.count)
            return COMMIT

        async with _producer(stage, "tx-commit") as producer:
            await producer.send_in_transaction(topic, b"paid", execute=local_transaction)
            await inbox.wait_for(1)
    return Row(1, inbox.count, "visible only after the commit", seen_before_commit == [0] and inbox.count == 1)


async def rollback(stage: Stage) -> Row:
    topic = await stage.topic("tx-rollback", queues=1)
    async with consuming(stage, topic) as inbox, _producer(stage, "tx-rollback") as producer:
        await producer.send_in_transaction(topic, b"never", execute=lambda _message, _arg: ROLLBACK)
        await producer.send(topic, b"behind it")  # in the same queue: when this is there, the other is not coming
        await inbox.wait_for(1)
    return Row(2, inbox.count, "never visible; a message behind it is", inbox.bodies == [b"behind it"])


async def check_back(stage: Stage) -> Row:
    """The producer does not say what became of its transaction, so the broker asks."""
    topic = await stage.topic("tx-unknown")
    asked: list[str | None] = []

    def check(message: StoredMessage) -> Decision:
        asked.append(message.unique_key)
        return COMMIT

    async with (
        consuming(stage, topic) as inbox,
        TransactionProducer(stage.nameserver, group="tx-unknown-senders", check=check) as producer,
    ):
        result = await producer.send_in_transaction(topic, b"later", execute=lambda _message, _arg: UNKNOWN)
        await inbox.wait_for(1)
    ok = asked[:1] == [result.sent.message_id] and inbox.bodies == [b"later"]
    return Row(1, inbox.count, "the broker asked; visible after the answer", ok)


def _producer(stage: Stage, name: str) -> TransactionProducer:
    return TransactionProducer(stage.nameserver, group=f"{name}-senders", check=lambda _message: UNKNOWN)
