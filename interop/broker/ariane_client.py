"""Ariane's own client as a driver of the checks (commands of client.py). It runs inside this process."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ariane.client.admin import Admin
from ariane.client.consumer.lite_pull import LitePullConsumer
from ariane.client.consumer.message import Received
from ariane.client.consumer.pull import PullConsumer
from ariane.client.consumer.push import PushConsumer
from ariane.client.producer.producer import Producer
from ariane.client.producer.result import SendResult
from ariane.client.producer.transactional import COMMIT, ROLLBACK, UNKNOWN, TransactionProducer
from ariane.client.settings import ClientSettings
from ariane.errors import ArianeError
from ariane.model.message import Message, StoredMessage
from ariane.wire.requests.send import Decision
from interop.broker.client import Delivery, Inbox
from interop.report import CheckFailed

DECISIONS = {"commit": COMMIT, "rollback": ROLLBACK, "unknown": UNKNOWN}
Fields = Mapping[str, str]
Verb = Callable[["ArianeClient", Fields], Awaitable[dict[str, str]]]


@dataclass(slots=True)
class ArianeClient:
    settings: ClientSettings
    work: Path
    stack: AsyncExitStack
    name: str = "Ariane"
    inboxes: dict[str, Inbox] = field(default_factory=dict)
    consumers: dict[str, PushConsumer] = field(default_factory=dict)
    producers: dict[str, Producer] = field(default_factory=dict)
    checks: dict[str, Decision] = field(default_factory=dict)
    starting: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: ClientSettings, work: Path) -> AsyncIterator["ArianeClient"]:
        async with AsyncExitStack() as stack:
            yield cls(settings, work, stack)

    async def call(self, verb: str, **fields: object) -> Mapping[str, str]:
        texts = {name.replace("__", "."): str(value) for name, value in fields.items()}
        try:
            return await VERBS[verb](self, texts)
        except ArianeError as error:
            raise CheckFailed(f"Ariane could not {verb}: {type(error).__name__}: {error}") from error

    def inbox(self, name: str) -> Inbox:
        return self.inboxes.setdefault(name, Inbox())

    # --- sending ----------------------------------------------------------------------------------------------------

    async def producer(self, kind: str) -> Producer:
        async with self.starting:
            if kind not in self.producers:
                producer = (
                    TransactionProducer(settings=self.settings, group="ariane_transactions", check=self.check)
                    if kind == "transactions"
                    else Producer(
                        settings=self.settings, group=f"interop_{kind}", trace=kind == "traced", send_timeout_s=10.0
                    )
                )
                await producer.start()
                self.stack.push_async_callback(producer.close)
                self.producers[kind] = producer
        return self.producers[kind]

    async def check(self, message: StoredMessage) -> Decision:
        body = message.body.decode()
        await self.inbox("checks").add(Delivery(body=body, at_s=time.time()))
        return self.checks.get(body, UNKNOWN)

    async def send(self, fields: Fields) -> dict[str, str]:
        producer = await self.producer("traced" if fields.get("trace") == "true" else "plain")
        message = message_of(fields)
        queue = None
        if "queue" in fields:
            queue = (await producer.queues(message.topic))[int(fields["queue"])]
        if fields.get("mode") == "oneway":
            await producer.send_oneway(message)
            return {}
        if fields.get("mode") == "async":
            return send_result_fields(await producer.send_nowait(message))
        return send_result_fields(await producer.send(message, queue=queue))

    async def batch(self, fields: Fields) -> dict[str, str]:
        producer = await self.producer("plain")
        bodies = [text for name, text in fields.items() if name.startswith("body")]
        results = await producer.send_batch([Message(topic=fields["topic"], body=body.encode()) for body in bodies])
        return send_result_fields(results[0])

    async def transaction(self, fields: Fields) -> dict[str, str]:
        self.checks[fields["body"]] = DECISIONS[fields.get("check", "commit")]
        producer = await self.producer("transactions")
        assert isinstance(producer, TransactionProducer)
        decision = DECISIONS[fields["decision"]]
        done = await producer.send_in_transaction(message_of(fields), execute=lambda _message, _arg: decision)
        return send_result_fields(done.sent)

    async def request(self, fields: Fields) -> dict[str, str]:
        producer = await self.producer("plain")
        reply = await producer.request(message_of(fields), timeout_s=float(fields["seconds"]))
        return {"body": reply.body.decode()}

    async def query(self, fields: Fields) -> dict[str, str]:
        async with Admin(settings=self.settings) as admin:
            found = await admin.messages.by_key(fields["topic"], fields["key"])
        return numbered([message.body for message in found.messages])

    async def view(self, fields: Fields) -> dict[str, str]:
        """By the offset id if a message of this topic is there, else by the unique key, as Apache's clients do."""
        async with Admin(settings=self.settings) as admin:
            with contextlib.suppress(ArianeError):
                message = await admin.messages.by_id(fields["id_to_view"])
                if message.topic == fields["topic"]:
                    return numbered([message.body])
            found = await admin.messages.by_unique_key(fields["topic"], fields["id_to_view"])
        return numbered([message.body for message in found.messages])

    # --- consuming --------------------------------------------------------------------------------------------------

    async def consume(self, fields: Fields) -> dict[str, str]:
        inbox = self.inbox(fields["inbox"])

        async def handle(message: Received) -> bool:
            await inbox.add(seen_of(message))
            if "reply" in fields:
                await (await self.producer("plain")).reply(message, fields["reply"].encode() + message.body)
            return message.attempt > int(fields.get("fail", 0))

        consumer = PushConsumer(
            settings=self.settings,
            group=fields["group"],
            handler=handle,
            model=fields.get("model", "CLUSTERING"),
            ordered=fields.get("ordered") == "true",
            start="earliest",
            max_reconsume=int(fields.get("max_reconsume", 16)),
            suspend_s=0.2,
            offsets_root=self.work / "offsets" / fields["inbox"],
            trace=fields.get("trace") == "true",
        )
        consumer.subscribe(fields["topic"], fields.get("expression", "*"), sql=fields.get("sql"))
        await consumer.start()
        self.consumers[fields["inbox"]] = consumer
        self.stack.push_async_callback(consumer.close)
        return {"client_id": consumer.client_id}

    async def stop(self, fields: Fields) -> dict[str, str]:
        await self.consumers.pop(fields["inbox"]).close()
        return {}

    async def pull(self, fields: Fields) -> dict[str, str]:
        bodies: list[bytes] = []
        async with PullConsumer(settings=self.settings, group=fields["group"]) as consumer:
            for queue in await consumer.queues(fields["topic"]):
                offset = await consumer.min_offset(queue)
                while (result := await consumer.pull(queue, offset)).messages:
                    bodies += [message.body for message in result.messages]
                    offset = result.next_offset
        return numbered(bodies)

    async def poll(self, fields: Fields) -> dict[str, str]:
        bodies: list[bytes] = []
        deadline = time.monotonic() + float(fields.get("seconds", 30))
        async with LitePullConsumer(settings=self.settings, group=fields["group"], start="earliest") as consumer:
            consumer.subscribe(fields["topic"])
            while len(bodies) < int(fields["count"]) and time.monotonic() < deadline:
                bodies += [message.body for message in await consumer.poll(1.0)]
            await consumer.commit()
        return numbered(bodies)


VERBS: dict[str, Verb] = {
    "send": ArianeClient.send,
    "batch": ArianeClient.batch,
    "transaction": ArianeClient.transaction,
    "request": ArianeClient.request,
    "query": ArianeClient.query,
    "view": ArianeClient.view,
    "consume": ArianeClient.consume,
    "stop": ArianeClient.stop,
    "pull": ArianeClient.pull,
    "poll": ArianeClient.poll,
}


def message_of(fields: Fields) -> Message:
    return Message(
        topic=fields["topic"],
        body=fields["body"].encode(),
        tags=fields.get("tags"),
        keys=fields.get("keys", ()),
        properties={name[2:]: text for name, text in fields.items() if name.startswith("p.")},
        delay_level=int(fields.get("delay_level", 0)),
        deliver_at=int(fields["deliver_at"]) if "deliver_at" in fields else None,
    )


def send_result_fields(result: SendResult) -> dict[str, str]:
    return {
        "status": result.status.value,
        "message_id": result.message_id,
        "offset_message_id": result.offset_message_id,
        "queue_id": str(result.queue.queue_id),
        "queue_offset": str(result.queue_offset),
    }


def seen_of(message: Received) -> Delivery:
    return Delivery(
        body=message.body.decode(),
        at_s=time.time(),
        tags=message.tags or "",
        keys=" ".join(message.keys),
        message_id=message.message_id,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        attempt=message.attempt,
    )


def numbered(bodies: list[bytes]) -> dict[str, str]:
    return {f"body{number}": body.decode() for number, body in enumerate(bodies)}
