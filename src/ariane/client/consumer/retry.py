"""Send back: returns a message that failed to the broker, which redelivers it later or makes it a dead letter.

First choice is the broker that stored the message: it has the body and needs only the offset. If that broker is down, a
copy is sent like a new message to %RETRY%group at any broker that is up.
"""

import logging
import random
from dataclasses import dataclass

from ariane.client.consumer.message import Received
from ariane.client.core.instance import Instance
from ariane.client.core.queue_bounds import owner_of
from ariane.errors import ArianeError, NoRoute
from ariane.model.ids import RETRY_PREFIX
from ariane.model.message import Property
from ariane.model.route import MASTER_ID, TopicRoute
from ariane.model.topic import AUTO_CREATE_TEMPLATE, Permission
from ariane.wire.properties import encode_properties
from ariane.wire.requests.send import SendBack, SendMessageV2

log = logging.getLogger(__name__)

DEAD_LETTER = -1
"""The delay level that means: no further attempt."""

_TIMEOUT_S = 5.0  # as in Apache's clients
_FIRST_RETRY_LEVEL = 3  # 10 s, as brokers choose

# Properties that the copy must not have: a retry is not a half message, and the broker sets the others again.
_NOT_COPIED = frozenset({Property.TRANSACTION_PREPARED, Property.RECONSUME_TIME, Property.MAX_RECONSUME_TIMES})


@dataclass(frozen=True, slots=True)
class SendBacks:
    instance: Instance
    group: str
    attempts_max: int
    """How often a message is redelivered before it becomes a dead letter."""

    async def send_back(self, message: Received, delay_level: int = 0) -> bool:
        """Whether a broker has accepted the message. If not, the consumer must keep it and try again."""
        try:
            await self._by_offset(message, delay_level)
        except ArianeError as error:
            extra = {"message_id": message.message_id, "queue": message.queue, "reason": str(error)}
            log.warning("broker did not accept the message back; sending a copy to the retry topic", extra=extra)
            return await self.send_copy(message, delay_level)
        return True

    async def send_copy(self, message: Received, delay_level: int = 0) -> bool:
        try:
            await self._by_copy(message, delay_level)
        except ArianeError as error:
            extra = {"message_id": message.message_id, "queue": message.queue, "reason": str(error)}
            log.warning("message not sent to the retry topic", extra=extra)
            return False
        return True

    async def _by_offset(self, message: Received, delay_level: int) -> None:
        request = SendBack(
            offset=message.physical_offset,
            group=self.group,
            delay_level=delay_level,
            origin_msg_id=message.offset_message_id,
            origin_topic=message.queue.topic,
            unit_mode=self.instance.settings.unit_mode,
            max_reconsume_times=self.attempts_max,
        )
        await self.instance.call(await owner_of(self.instance, message.queue), request, _TIMEOUT_S)

    async def _by_copy(self, message: Received, delay_level: int) -> None:
        topic = f"{RETRY_PREFIX}{self.group}"
        address, queue_id = _any_writable(topic, await self.instance.routes.route(topic))
        await self.instance.call(address, self._copy(topic, queue_id, message, delay_level), _TIMEOUT_S)

    def _copy(self, topic: str, queue_id: int, message: Received, delay_level: int) -> SendMessageV2:
        # One more than the maximum makes it a dead letter in every release, whether it compares by > or by >=.
        dead = delay_level < 0
        attempts = self.attempts_max + 1 if dead else message.reconsume_times + 1
        return SendMessageV2(
            producer_group=self.group,
            topic=topic,
            default_topic=AUTO_CREATE_TEMPLATE,
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=message.sys_flag,
            born_timestamp=self.instance.clock.now_ms(),
            flag=message.flag,
            properties=_properties_of_copy(message, delay_level or _FIRST_RETRY_LEVEL + message.reconsume_times),
            reconsume_times=attempts,
            max_reconsume_times=self.attempts_max,
            unit_mode=self.instance.settings.unit_mode,
            body=message.body,
        )


def _properties_of_copy(message: Received, delay_level: int) -> str:
    properties = {name: value for name, value in message.properties.items() if name not in _NOT_COPIED}
    properties.setdefault(Property.RETRY_TOPIC, message.topic)
    properties.setdefault(Property.ORIGIN_MESSAGE_ID, message.offset_message_id)
    properties[Property.DELAY] = str(max(delay_level, 0))
    return encode_properties(properties).decode()


def _any_writable(topic: str, route: TopicRoute) -> tuple[str, int]:
    masters = {data.broker_name: data.broker_addrs.get(MASTER_ID) for data in route.broker_datas}
    choices = [
        (address, queue_id)
        for data in route.queue_datas
        if data.perm & Permission.WRITE and (address := masters.get(data.broker_name)) is not None
        for queue_id in range(data.write_queue_nums)
    ]
    if not choices:
        raise NoRoute(f"no broker with {topic} accepts messages now: its masters are down or not writable")
    return random.choice(choices)  # noqa: S311 - spreads load, protects nothing
