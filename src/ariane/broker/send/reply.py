"""Request-reply: a reply on its way through the broker to the client that waits for it.

    replier ── SEND_REPLY_MESSAGE ──► broker ── PUSH_REPLY_MESSAGE_TO_CLIENT ──► the client named in REPLY_TO_CLIENT
            ◄── its send's answer ──         ◄── code 0: the reply met its request ──

The reply names the client that waits; which of its requests is meant, the client sees by CORRELATION_ID.
"""

import logging
from dataclasses import dataclass

from ariane.broker.groups.members import Clients
from ariane.broker.send.checks import SendChecks, born_host, queue_of
from ariane.broker.settings import BrokerSettings
from ariane.broker.writer import InboundMessage, MessageWriter, store_error_response
from ariane.clock import Clock
from ariane.errors import ArianeError, MessageRefused, StoreError
from ariane.model.ids import QueueOffset
from ariane.model.message import Property
from ariane.rpc.caller import call_peer
from ariane.rpc.handlers import Call, handles
from ariane.store.append.draft import Appended
from ariane.store.message_store import MessageStore
from ariane.wire.codes import ResponseCode
from ariane.wire.host import decode_host
from ariane.wire.message_id import offset_message_id
from ariane.wire.properties import encode_properties, read_property_text
from ariane.wire.requests.send import PushReply, Send, SendReply, SendReplyV2, SendResponse
from ariane.wire.sys_flag import SysFlag

log = logging.getLogger(__name__)

PUSH_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class ReplyPusher:
    clients: Clients
    clock: Clock
    store_host: bytes
    """The advertised address as a record holds it. Clients get `ip:port`, without the slash of Apache's 4.7."""

    async def push(self, request: Send, message: InboundMessage, peer: str) -> str | None:
        """Hands the reply to the client that waits for it; why it could not be handed over, or None.

        `message` gets the property PUSH_REPLY_TIME when its client is found, so that a stored reply tells that too.
        """
        client_id = message.properties.get(Property.REPLY_TO_CLIENT)
        if client_id is None:
            return f"the reply has no property {Property.REPLY_TO_CLIENT}, so nobody can be found who waits for it"
        member = self.clients.find(client_id)
        if member is None:
            return f"client {client_id} is not connected to this broker, or no longer: its reply cannot be pushed"
        message.properties[Property.PUSH_REPLY_TIME] = str(self.clock.now_ms())
        try:
            await call_peer(member.connection, self._push_of(request, message, peer), PUSH_TIMEOUT_S)
        except ArianeError as error:  # gone, silent, or it refused: the replier is told, and may send again
            log.warning("reply not pushed", extra={"client": client_id, "reason": str(error)})
            return f"client {client_id} did not take the reply: {error}"
        return None

    def _push_of(self, request: Send, message: InboundMessage, peer: str) -> PushReply:
        return PushReply(
            producer_group=request.producer_group,
            topic=request.topic,
            default_topic=request.default_topic,
            default_topic_queue_nums=request.default_topic_queue_nums,
            queue_id=request.queue_id,
            sys_flag=request.sys_flag,
            born_timestamp=request.born_timestamp,
            flag=request.flag,
            properties=encode_properties(message.properties).decode(),
            reconsume_times=request.reconsume_times,
            unit_mode=request.unit_mode,
            born_host=peer,
            store_host=str(decode_host(self.store_host)),
            store_timestamp=self.clock.now_ms(),
            body=request.body,
        )


# --- replies ---
#
# Replies: pushed to the client that waits, and stored if the settings say so.
#
# The answer tells of the push: SYSTEM_ERROR when nobody got the reply, even when it was stored. A reply that was pushed
# and could not be stored is a success all the same, as in Apache's broker: the one who waits for it has it.

_TRANSACTION_BITS = int(SysFlag.TRANSACTION_TYPE)
_NOT_STORED = "0"
"""The message id of a reply that is nowhere, as Apache's broker says it."""


@dataclass(frozen=True)
class ReplyHandlers:
    settings: BrokerSettings
    store: MessageStore
    writer: MessageWriter
    checks: SendChecks
    pusher: ReplyPusher
    store_host: bytes
    """The advertised address as a record holds it."""

    @handles(SendReply)
    async def reply(self, request: SendReply, call: Call) -> SendResponse:
        return await self._reply(request, call)

    @handles(SendReplyV2)
    async def reply_v2(self, request: SendReplyV2, call: Call) -> SendResponse:
        return await self._reply(request, call)

    async def _reply(self, request: Send, call: Call) -> SendResponse:
        queue_id = queue_of(request, self.checks.destination(request))
        message = self._incoming(request, call, queue_id)
        failure = await self.pusher.push(request, message, call.connection.peer)
        return self._answer(queue_id, failure, self._stored(message) if self.settings.store_replies else None)

    def _incoming(self, request: Send, call: Call, queue_id: int) -> InboundMessage:
        try:
            properties, _ = read_property_text(request.properties or "")
        except MessageRefused as error:
            raise store_error_response(error, self.store) from error
        return InboundMessage(
            topic=request.topic,
            queue_id=queue_id,
            body=request.body,
            properties=properties,
            born_timestamp_ms=request.born_timestamp,
            born_host=born_host(call.connection.peer),
            flag=request.flag,
            sys_flag=request.sys_flag & ~_TRANSACTION_BITS,  # or no queue would take it
            reconsume_times=request.reconsume_times or 0,
        )

    def _stored(self, message: InboundMessage) -> Appended | None:
        """Not waited for, even with SYNC_FLUSH: the reply has arrived, what is stored is for looking it up."""
        try:
            return self.writer.put(message)
        except StoreError as error:
            log.warning("reply not stored", extra={"topic": message.topic, "reason": str(error)})
            return None

    def _answer(self, queue_id: int, failure: str | None, stored: Appended | None) -> SendResponse:
        return SendResponse(
            code=ResponseCode.SUCCESS if failure is None else ResponseCode.SYSTEM_ERROR,
            remark=failure,
            msg_id=_NOT_STORED if stored is None else offset_message_id(self.store_host, stored.physical_offset),
            queue_id=queue_id,
            queue_offset=QueueOffset(0 if stored is None else stored.queue_offset),
            msg_region=self.settings.region_id,
            trace_on=self.settings.trace_on,
        )
