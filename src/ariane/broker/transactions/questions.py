"""Questions to producers: what became of this half message?

One-way: the answer is an END_TRANSACTION, some time later or never. Any producer of the group is good enough, because
it asks its own database; they take turns.
"""

import asyncio
import logging

from ariane.broker.clients import Clients
from ariane.broker.transactions.half_messages import HalfMessage
from ariane.errors import TransportError, WireError
from ariane.transport.connection import Connection
from ariane.wire.exchange import request_command
from ariane.wire.host import encode_host
from ariane.wire.message_id import offset_message_id
from ariane.wire.record import encode
from ariane.wire.requests.transactions import CheckTransaction

log = logging.getLogger(__name__)

_READ_TIMEOUT_S = 3.0


def question(message: HalfMessage) -> CheckTransaction:
    """The numbers lead back to the half message; the body is the message as it will be, in its real topic."""
    stored = message.stored
    return CheckTransaction(
        tran_state_table_offset=stored.queue_offset,
        commit_log_offset=stored.physical_offset,
        msg_id=message.unique_key,
        transaction_id=message.unique_key,
        offset_msg_id=offset_message_id(encode_host(stored.store_host), stored.physical_offset),
        body=encode(message.as_real()),
    )


class Questions:
    """Those of one round."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._not_reading: set[Connection] = set()
        self._unanswerable: dict[str, int] = {}

    async def ask(self, message: HalfMessage) -> None:
        """Sends the question to one live producer. When there is none, the next round tries again."""
        member = self._clients.pick_producer(message.producer_group)
        if member is None or not await self._send(member.connection, message):
            self._unanswerable[message.producer_group] = self._unanswerable.get(message.producer_group, 0) + 1

    async def _send(self, connection: Connection, message: HalfMessage) -> bool:
        """Waits while the peer does not read, but not for long, and once in a round: it would hold up all others."""
        if connection in self._not_reading:
            return False
        try:
            command = request_command(question(message), opaque=0, oneway=True)
            async with asyncio.timeout(_READ_TIMEOUT_S):
                await connection.send(command)
        except WireError as error:  # larger than a frame may be: maxMessageSize was raised, the frame's limit was not
            log.warning("transaction cannot be asked about", extra={"key": message.unique_key, "reason": str(error)})
            return False
        except (TimeoutError, TransportError):
            self._not_reading.add(connection)
            return False
        return True

    def report(self) -> None:
        for group, count in self._unanswerable.items():
            log.warning(
                "no producer to ask about open transactions: start one of this group",
                extra={"group": group, "messages": count},
            )
