"""A broker's parts around transactions and replies, on a disk in memory and with a real socket; and its peers."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ariane.broker.groups.configs import Groups
from ariane.broker.groups.members import Clients
from ariane.broker.groups.offsets import ConsumerOffsets
from ariane.broker.heartbeats import ClientHandlers
from ariane.broker.json_table import JsonTable
from ariane.broker.send.checks import SendChecks
from ariane.broker.send.flow_control import FlowControl
from ariane.broker.send.handler import SendHandlers
from ariane.broker.send.reply import ReplyHandlers, ReplyPusher
from ariane.broker.send.responses import SendResponses
from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.broker.transactions import TransactionChecks, Transactions
from ariane.broker.transactions.handler import TransactionHandlers
from ariane.broker.writer import MessageWriter
from ariane.model.message import Property, StoredMessage
from ariane.rpc.dispatcher import Dispatcher
from ariane.rpc.handlers import HandlerTable
from ariane.store.maintenance.group_commit import GroupCommit
from ariane.store.message_store import MessageStore
from ariane.store.service import StoreService
from ariane.testing import FakeClock
from ariane.transport.server import Server
from ariane.transport.settings import TlsSettings, TransportSettings
from ariane.wire.codes import HeaderFlag
from ariane.wire.exchange import declaration_of, read_request, read_response, request_command, response_command
from ariane.wire.fields import Request, Response
from ariane.wire.frame import Command, encode_frame
from ariane.wire.properties import encode_properties
from ariane.wire.record.read import decode
from ariane.wire.requests.clients import Heartbeat, HeartbeatData, ProducerData
from ariane.wire.requests.send import CheckTransaction, Decision, EndTransaction, SendMessageV2, SendResponse
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import BOOT, HOST, ROOT, small
from tests.transport.peers import LOOPBACK, RawClient, connected

GROUP = "payers"
TOPIC = "orders"


@dataclass
class TransactionBroker:
    settings: BrokerSettings
    clock: FakeClock
    disk: SimulatedDisk
    store: MessageStore
    offsets: ConsumerOffsets
    topics: Topics
    clients: Clients
    transactions: Transactions
    checks: TransactionChecks
    server: Server
    dispatcher: Dispatcher
    writer: MessageWriter

    def messages(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        """What the queue holds, from its beginning to its end."""
        found, offset = [], 0
        while (result := self.store.reader.read(topic, queue_id, offset, 32)).slices:
            found += [decode(record) for record in result.slices]
            offset = result.next_offset
        return found

    def bodies(self, topic: str = TOPIC, queue_id: int = 0) -> list[bytes]:
        return [message.body for message in self.messages(topic, queue_id)]

    async def run_pass(self, after_s: float = 60) -> None:
        """Time passes, then a round of checks."""
        await self.clock.advance(after_s)
        await self.checks.run_pass()


@asynccontextmanager
async def transaction_broker(
    disk: SimulatedDisk | None = None,
    clock: FakeClock | None = None,
    store: dict[str, Any] | None = None,
    boot: str = BOOT,
    fast_path: bool = True,
    gated: bool = False,
    **changes: Any,
) -> AsyncIterator[TransactionBroker]:
    """Ends without closing the store, as a process that is killed; what it wrote is on the disk."""
    clock, disk = clock or FakeClock(), disk or SimulatedDisk()
    settings = BrokerSettings(
        name="broker-a", store=small(ROOT, **{"segment_bytes": 65536, **(store or {})}), **changes
    )
    message_store = MessageStore.open(settings.store, clock, HOST, disk=disk, boot=boot, gated=gated)
    with ThreadPoolExecutor(max_workers=1) as executor:
        async with GroupCommit.running(message_store.flusher, settings.store) as group_commit:
            service = StoreService(message_store, group_commit, executor)
            offsets = ConsumerOffsets(JsonTable(disk, message_store.components.layout.config / "consumerOffset.json"))
            topics, clients = Topics(settings, None, clock), Clients()
            topics.ensure(TOPIC, 4)
            writer = MessageWriter(service, settings, clock)
            transactions = Transactions(message_store, writer, offsets, clock)
            checks = TransactionChecks(transactions, service, settings, clients, topics, offsets, clock)
            groups, send_checks = Groups(settings, None, clock), SendChecks(settings, topics, clock)
            table = HandlerTable.of(
                SendHandlers(
                    settings=settings,
                    topics=topics,
                    groups=groups,
                    store=message_store,
                    writer=writer,
                    flow=FlowControl(message_store, writer, settings),
                    checks=send_checks,
                    responses=SendResponses(settings, HOST),
                ),
                ClientHandlers(settings, clients, groups, topics, clock),
                TransactionHandlers(transactions, message_store, writer),
                ReplyHandlers(settings, message_store, writer, send_checks, ReplyPusher(clients, clock, HOST), HOST),
            )
            dispatcher = Dispatcher(table)
            async with Server.open(
                LOOPBACK,
                dispatcher.receive,
                TransportSettings(),
                TlsSettings(),
                clock,
                dispatcher.fast_path if fast_path else None,
            ) as server:
                yield TransactionBroker(
                    settings,
                    clock,
                    disk,
                    message_store,
                    offsets,
                    topics,
                    clients,
                    transactions,
                    checks,
                    server,
                    dispatcher,
                    writer,
                )


class Peer:
    """A client byte by byte: it asks, and it is asked."""

    def __init__(self, raw: RawClient) -> None:
        self.raw = raw
        self._opaque = 0
        self._unread: list[Command] = []

    async def call(self, call: Request[Any]) -> Any:
        """The answer as a struct; RequestFailed when it is a refusal."""
        return read_response(call, await self.exchange(call))

    async def exchange(self, call: Request[Any]) -> Command:
        """The answer as it came."""
        await self.send(call)
        return await self.next_response()

    async def send(self, call: Request[Any]) -> None:
        """Asks; `heard` gives the answer."""
        self._opaque += 1
        await self.raw.send(encode_frame(request_command(call, opaque=self._opaque)))

    async def next_response(self) -> Command:
        """The answer to the last question."""
        while True:
            command = await self.raw.read()
            if command.flag & HeaderFlag.RESPONSE and command.opaque == self._opaque:
                return command
            self._unread.append(command)

    async def oneway(self, call: Request[Any]) -> None:
        await self.raw.send(encode_frame(request_command(call, opaque=0, oneway=True)))

    async def next_request(self, request: type[Request[Any]]) -> Any:
        """The next question of the broker, as a struct."""
        self.command = self._unread.pop(0) if self._unread else await self.raw.read()
        declaration = declaration_of(request)
        assert self.command.code == declaration.code
        return read_request(declaration, self.command)

    async def respond(self, response: Response) -> None:
        """To the question that `asked` gave last."""
        await self.raw.send(encode_frame(response_command(self.command, response)))

    async def heartbeat(self, client_id: str = "client-1", group: str = GROUP) -> None:
        await self.call(Heartbeat(HeartbeatData(client_id=client_id, producer_data_set=[ProducerData(group)])))

    # --- transactions

    async def send_half(self, body: bytes = b"paid", queue_id: int = 0, **properties: str) -> SendResponse:
        response = await self.call(half_send(body, queue_id, **properties))
        assert isinstance(response, SendResponse)
        return response

    async def end(self, sent: SendResponse, decision: int, **changes: Any) -> Any:
        return await self.call(outcome_of(sent, decision, **changes))

    async def end_checked(self, check_request: CheckTransaction, decision: Decision) -> Any:
        return await self.call(checked_outcome(check_request, decision))


@asynccontextmanager
async def peer(on: TransactionBroker, group: str | None = GROUP, client_id: str = "client-1") -> AsyncIterator[Peer]:
    async with connected(on.server) as raw:
        one = Peer(raw)
        if group is not None:
            await one.heartbeat(client_id, group)
        yield one


def half_send(body: bytes = b"paid", queue_id: int = 0, **properties: str) -> SendMessageV2:
    """As Java's TransactionMQProducer sends it."""
    texts = {
        Property.TRANSACTION_PREPARED: "true",
        Property.PRODUCER_GROUP: GROUP,
        Property.UNIQUE_KEY: f"7F0000010000000000000000{body.hex().upper():0>8}"[:32],
        **properties,
    }
    return SendMessageV2(
        producer_group=GROUP,
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=4,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties=encode_properties(texts).decode(),
        body=body,
    )


def outcome_of(sent: SendResponse, decision: int, **changes: Any) -> EndTransaction:
    fields: dict[str, Any] = {
        "producer_group": GROUP,
        "tran_state_table_offset": sent.queue_offset,
        "commit_log_offset": int(sent.msg_id[-16:], 16),
        "commit_or_rollback": int(decision),
        "msg_id": sent.transaction_id or "",
    }
    return EndTransaction(**{**fields, **changes})


def checked_outcome(check_request: CheckTransaction, decision: int) -> EndTransaction:
    return EndTransaction(
        producer_group=GROUP,
        tran_state_table_offset=check_request.tran_state_table_offset,
        commit_log_offset=check_request.commit_log_offset,
        commit_or_rollback=int(decision),
        msg_id=check_request.msg_id or "",
        from_transaction_check=True,
    )
