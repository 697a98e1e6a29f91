"""Request-reply: a reply on its way through the broker to the client that waits for it.

    replier ── SEND_REPLY_MESSAGE ──► broker ── PUSH_REPLY_MESSAGE_TO_CLIENT ──► the client named in REPLY_TO_CLIENT
            ◄── its send's answer ──         ◄── code 0: the reply met its request ──

The reply names the client that waits; which of its requests is meant, the client sees by CORRELATION_ID.
"""

import logging
from dataclasses import dataclass

from ariane.broker.clients import Clients
from ariane.broker.incoming import Incoming
from ariane.clock import Clock
from ariane.errors import ArianeError
from ariane.model.message import Property
from ariane.rpc.caller import ask_peer
from ariane.wire.host import decode_host
from ariane.wire.properties import encode_properties
from ariane.wire.requests.send import PushReply, Send

log = logging.getLogger(__name__)

PUSH_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class ReplyPusher:
    clients: Clients
    clock: Clock
    store_host: bytes
    """The advertised address as a record holds it. Clients get `ip:port`, without the slash of Apache's 4.7."""

    async def push(self, ask: Send, message: Incoming, peer: str) -> str | None:
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
            await ask_peer(member.connection, self._push_of(ask, message, peer), PUSH_TIMEOUT_S)
        except ArianeError as error:  # gone, silent, or it refused: the replier is told, and may send again
            log.warning("reply not pushed", extra={"client": client_id, "reason": str(error)})
            return f"client {client_id} did not take the reply: {error}"
        return None

    def _push_of(self, ask: Send, message: Incoming, peer: str) -> PushReply:
        return PushReply(
            producer_group=ask.producer_group,
            topic=ask.topic,
            default_topic=ask.default_topic,
            default_topic_queue_nums=ask.default_topic_queue_nums,
            queue_id=ask.queue_id,
            sys_flag=ask.sys_flag,
            born_timestamp=ask.born_timestamp,
            flag=ask.flag,
            properties=encode_properties(message.properties).decode(),
            reconsume_times=ask.reconsume_times,
            unit_mode=ask.unit_mode,
            born_host=peer,
            store_host=str(decode_host(self.store_host)),
            store_timestamp=self.clock.now_ms(),
            body=ask.body,
        )
