"""Answers to request messages, on their way from a broker to the caller who waits for them."""

import asyncio
import logging

from ariane.errors import WireError
from ariane.model.message import Property
from ariane.wire.compression import decompress
from ariane.wire.properties import decode_properties
from ariane.wire.requests.send import PushReply

log = logging.getLogger(__name__)

_BODY_BYTES_MAX = 16 * 1024 * 1024


class Reply:
    """What a replier sent: `body` and `properties`."""

    __slots__ = ("body", "properties", "topic")

    def __init__(self, topic: str, body: bytes, properties: dict[str, str]) -> None:
        self.topic = topic
        self.body = body
        self.properties = properties


class Replies:
    """Who waits for which correlation id."""

    def __init__(self) -> None:
        self._waiters: dict[str, asyncio.Future[Reply]] = {}

    def expect(self, correlation_id: str) -> asyncio.Future[Reply]:
        waiter: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiters[correlation_id] = waiter
        return waiter

    def forget(self, correlation_id: str) -> None:
        self._waiters.pop(correlation_id, None)

    def arrived(self, pushed: PushReply) -> None:
        """Bytes from a stranger: what cannot be read is refused, what nobody waits for is dropped."""
        properties = decode_properties((pushed.properties or "").encode())
        waiter = self._waiters.pop(properties.get(Property.CORRELATION_ID, ""), None)
        if waiter is None or waiter.done():
            log.info("reply dropped: nobody waits for it any more", extra={"topic": pushed.topic})
            return
        try:
            body = decompress(pushed.body, pushed.sys_flag, _BODY_BYTES_MAX)
        except WireError as error:
            waiter.set_exception(error)
            raise
        waiter.set_result(Reply(pushed.topic, body, properties))
