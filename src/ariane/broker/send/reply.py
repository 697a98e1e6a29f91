"""Request-reply: the broker pushes a reply to the client that waits for it, and stores it if the settings say so.

    replier ── SEND_REPLY_MESSAGE ──► broker ── PUSH_REPLY_MESSAGE_TO_CLIENT ──► the client named in REPLY_TO_CLIENT
            ◄── send response ──             ◄── code 0: the reply met its request ──

The reply names the waiting client in REPLY_TO_CLIENT; the client finds its request by CORRELATION_ID. The response is
about the push: SYSTEM_ERROR when it failed, even when the reply was stored. A reply that was pushed and could not be
stored is a success all the same, as in Apache's broker: the client that waits has it.
"""

import logging
from dataclasses import dataclass

from ariane.broker.acl.rights import RightsOf, all_rights
from ariane.broker.groups.members import Clients
from ariane.broker.send.checks import SendChecks, born_host, queue_of
from ariane.broker.settings import BrokerSettings
from ariane.broker.writer import InboundMessage, MessageWriter, store_error_response
from ariane.clock import Clock
from ariane.errors import ArianeError, MessageRefused, StoreError
from ariane.model.ids import QueueOffset
from ariane.model.message import Property
from ariane.model.system_topics import reply_topic
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
        """Pushes the reply to the client that waits for it; returns the error, or None.

        `message` gets the property PUSH_REPLY_TIME when its client is found, and is stored with it.
        """
        client_id = message.properties.get(Property.REPLY_TO_CLIENT)
        if client_id is None:
            return f"the reply has no property {Property.REPLY_TO_CLIENT}, so the client that waits for it is unknown"
        member = self.clients.find(client_id)
        if member is None:
            return f"client {client_id} is not connected to this broker, or no longer: its reply cannot be pushed"
        message.properties[Property.PUSH_REPLY_TIME] = str(self.clock.now_ms())
        try:
            await call_peer(member.connection, self._push_of(request, message, peer), PUSH_TIMEOUT_S)
        except ArianeError as error:  # gone, silent, or it refused: the replier gets the error, and may send again
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


# --- handlers ---------------------------------------------------------------------------------------------------------

_TRANSACTION_BITS = int(SysFlag.TRANSACTION_TYPE)
_NOT_STORED = "0"
"""The message id of a reply that is not stored, as in Apache's broker."""


@dataclass(frozen=True)
class ReplyHandlers:
    settings: BrokerSettings
    store: MessageStore
    writer: MessageWriter
    checks: SendChecks
    pusher: ReplyPusher
    store_host: bytes
    """The advertised address as a record holds it."""
    rights_of: RightsOf = all_rights

    @handles(SendReply)
    async def reply(self, request: SendReply, call: Call) -> SendResponse:
        return await self._reply(request, call)

    @handles(SendReplyV2)
    async def reply_v2(self, request: SendReplyV2, call: Call) -> SendResponse:
        return await self._reply(request, call)

    async def _reply(self, request: Send, call: Call) -> SendResponse:
        """A reply is stored in the topic that it names: in another than the broker's own for replies, that is a send.

        Who may reply is not checked: only a consumer of the request message knows its correlation id, and the client
        that waits drops a reply without it.
        """
        if request.topic != reply_topic(self.settings.cluster):
            self.rights_of(call).require_publish(request.topic)
        queue_id = queue_of(request, self.checks.destination(request, call.connection))
        message = self._inbound(request, call, queue_id)
        failure = await self.pusher.push(request, message, call.connection.peer)
        return self._response(queue_id, failure, self._stored(message) if self.settings.store_replies else None)

    def _inbound(self, request: Send, call: Call, queue_id: int) -> InboundMessage:
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
            sys_flag=request.sys_flag & ~_TRANSACTION_BITS,  # a record with these bits gets no queue entry
            reconsume_times=request.reconsume_times or 0,
        )

    def _stored(self, message: InboundMessage) -> Appended | None:
        """Does not wait for a sync, even with SYNC_FLUSH: the reply has arrived, and is stored only for queries."""
        try:
            return self.writer.put(message)
        except StoreError as error:
            log.warning("reply not stored", extra={"topic": message.topic, "reason": str(error)})
            return None

    def _response(self, queue_id: int, failure: str | None, stored: Appended | None) -> SendResponse:
        return SendResponse(
            code=ResponseCode.SUCCESS if failure is None else ResponseCode.SYSTEM_ERROR,
            remark=failure,
            msg_id=_NOT_STORED if stored is None else offset_message_id(self.store_host, stored.physical_offset),
            queue_id=queue_id,
            queue_offset=QueueOffset(0 if stored is None else stored.queue_offset),
            msg_region=self.settings.region_id,
            trace_on=self.settings.trace_on,
        )
