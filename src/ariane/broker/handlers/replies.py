"""Replies: pushed to the client that waits, and stored if the settings say so.

The answer tells of the push: SYSTEM_ERROR when nobody got the reply, even when it was stored. A reply that was pushed
and could not be stored is a success all the same, as in Apache's broker: the one who waits for it has it.
"""

import logging
from dataclasses import dataclass

from ariane.broker.incoming import Incoming
from ariane.broker.intake import Intake
from ariane.broker.property_text import read_property_text
from ariane.broker.put_failures import put_failure
from ariane.broker.replies import ReplyPusher
from ariane.broker.send_checks import SendChecks, born_host, queue_of
from ariane.broker.settings import BrokerSettings
from ariane.errors import MessageRefused, StoreError
from ariane.model.ids import QueueOffset
from ariane.rpc.handlers import Call, handles
from ariane.store.draft import Appended
from ariane.store.message_store import MessageStore
from ariane.wire.codes import ResponseCode
from ariane.wire.message_id import offset_message_id
from ariane.wire.requests.send import Send, SendAnswer, SendReply, SendReplyV2
from ariane.wire.sys_flag import SysFlag

log = logging.getLogger(__name__)

_TRANSACTION_BITS = int(SysFlag.TRANSACTION_TYPE)
_NOT_STORED = "0"
"""The message id of a reply that is nowhere, as Apache's broker says it."""


@dataclass(frozen=True)
class ReplyHandlers:
    settings: BrokerSettings
    store: MessageStore
    intake: Intake
    checks: SendChecks
    pusher: ReplyPusher
    store_host: bytes
    """The advertised address as a record holds it."""

    @handles(SendReply)
    async def reply(self, ask: SendReply, call: Call) -> SendAnswer:
        return await self._reply(ask, call)

    @handles(SendReplyV2)
    async def reply_v2(self, ask: SendReplyV2, call: Call) -> SendAnswer:
        return await self._reply(ask, call)

    async def _reply(self, ask: Send, call: Call) -> SendAnswer:
        queue_id = queue_of(ask, self.checks.destination(ask))
        message = self._incoming(ask, call, queue_id)
        failure = await self.pusher.push(ask, message, call.connection.peer)
        return self._answer(queue_id, failure, self._stored(message) if self.settings.store_replies else None)

    def _incoming(self, ask: Send, call: Call, queue_id: int) -> Incoming:
        try:
            properties, _ = read_property_text(ask.properties or "")
        except MessageRefused as error:
            raise put_failure(error, self.store) from error
        return Incoming(
            topic=ask.topic,
            queue_id=queue_id,
            body=ask.body,
            properties=properties,
            born_timestamp_ms=ask.born_timestamp,
            born_host=born_host(call.connection.peer),
            flag=ask.flag,
            sys_flag=ask.sys_flag & ~_TRANSACTION_BITS,  # or no queue would take it
            reconsume_times=ask.reconsume_times or 0,
        )

    def _stored(self, message: Incoming) -> Appended | None:
        """Not waited for, even with SYNC_FLUSH: the reply has arrived, what is stored is for looking it up."""
        try:
            return self.intake.put(message)
        except StoreError as error:
            log.warning("reply not stored", extra={"topic": message.topic, "reason": str(error)})
            return None

    def _answer(self, queue_id: int, failure: str | None, stored: Appended | None) -> SendAnswer:
        return SendAnswer(
            code=ResponseCode.SUCCESS if failure is None else ResponseCode.SYSTEM_ERROR,
            remark=failure,
            msg_id=_NOT_STORED if stored is None else offset_message_id(self.store_host, stored.physical_offset),
            queue_id=queue_id,
            queue_offset=QueueOffset(0 if stored is None else stored.queue_offset),
            msg_region=self.settings.region_id,
            trace_on=self.settings.trace_on,
        )
