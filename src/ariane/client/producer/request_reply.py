"""Request-reply: a message whose sender waits for a reply, and the reply that a consumer sends.

The request has a correlation id and the sender's client id. The consumer sends its reply to the reply topic of the
cluster; the broker finds the waiting client by its client id and pushes the reply over the client's connection.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping

from ariane.client.core.instance import Instance, Reply
from ariane.errors import MessageRejected, NoReply
from ariane.model.message import HostPort, Message, Property, StoredMessage

SendWithProperties = Callable[[Mapping[str, str]], Awaitable[object]]
"""Sends the request message with these reserved properties added."""

_REPLY_TOPIC_SUFFIX = "REPLY_TOPIC"


async def request_and_wait(instance: Instance, topic: str, send: SendWithProperties, timeout_s: float) -> Reply:
    """The reply; NoReply when none comes in time. The timeout includes the send."""
    correlation_id = str(uuid.uuid4())
    waiter = instance.replies.expect(correlation_id)
    try:
        async with asyncio.timeout(timeout_s):
            # The reply may come through any broker of the topic, so each must know this client by then.
            await instance.ensure_registered()
            await send(_request_properties(instance.client_id, correlation_id, timeout_s))
            return await waiter
    except TimeoutError:
        raise NoReply(
            f"no reply to request {correlation_id} to topic {topic} within {timeout_s} s: check that a consumer "
            "of the topic runs and replies, or wait longer (timeout_s)"
        ) from None
    finally:
        instance.replies.forget(correlation_id)
        waiter.cancel()


def _request_properties(client_id: str, correlation_id: str, timeout_s: float) -> dict[str, str]:
    return {
        Property.CORRELATION_ID: correlation_id,
        Property.REPLY_TO_CLIENT: client_id,
        Property.TTL: str(round(timeout_s * 1000)),
    }


class ReplyMessage(Message, frozen=True, kw_only=True):
    """A reply to a request message, made by `reply_message`. `Producer.send` sends it to the right broker."""

    correlation_id: str
    reply_to_client: str
    ttl: str
    asked_through: HostPort
    """The broker that stored the request: the requesting client is certainly connected to it."""

    def reserved_properties(self) -> dict[str, str]:
        return {
            Property.MESSAGE_TYPE: "reply",
            Property.CORRELATION_ID: self.correlation_id,
            Property.REPLY_TO_CLIENT: self.reply_to_client,
            Property.TTL: self.ttl,
        }


def reply_message(request: StoredMessage, body: bytes, *, properties: Mapping[str, str] | None = None) -> ReplyMessage:
    """The reply to `request`; MessageRejected if the message is not a request."""
    fields = request.properties
    missing = [
        name for name in (Property.CORRELATION_ID, Property.REPLY_TO_CLIENT, Property.CLUSTER) if name not in fields
    ]
    if missing:
        raise MessageRejected(
            f"the message is not a request, it has no {', '.join(missing)}: only messages of request() take a reply"
        )
    return ReplyMessage(
        topic=f"{fields[Property.CLUSTER]}_{_REPLY_TOPIC_SUFFIX}",
        body=body,
        properties=properties or {},
        correlation_id=fields[Property.CORRELATION_ID],
        reply_to_client=fields[Property.REPLY_TO_CLIENT],
        ttl=fields.get(Property.TTL, "3000"),
        asked_through=request.store_host,
    )
