"""Finding messages by what people have at hand: an id of either kind, a key, a place, or a time."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from ariane.client.admin import Admin
from ariane.client.admin.messages import FoundMessages
from ariane.client.admin.servers import Failure
from ariane.client.queue_ends import readable_queues
from ariane.client.received import Received
from ariane.client.subscriptions import ALL, passes, subscription_of
from ariane.errors import ClientError, NoRoute, RecordError
from ariane.model.ids import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ariane.model.route import MessageQueue
from ariane.wire.message_id import decode_offset_message_id


@dataclass(slots=True)
class Search:
    """What was found, and everything that keeps it from being all there is."""

    messages: list[Received]
    is_cut: bool = False
    failures: tuple[Failure, ...] = ()
    scanned: int | None = None
    """Messages that were looked at one by one; None when an index was asked."""
    total: int = 0

    @property
    def note(self) -> str | None:
        if not self.is_cut:
            return None
        if self.scanned is None:
            return f"stopped at --limit: {len(self.messages)} messages are shown, and there may be more"
        return f"scanned {self.scanned:,} of {self.total:,} messages, stopped at --limit"


async def by_any_id(admin: Admin, message_id: str, topic: str | None) -> Search:
    """Both kinds of id look alike: it is the broker's if it names the address of one; else a producer gave it."""
    if topic is None and await _names_a_broker(admin, message_id):
        return Search([await admin.messages.by_id(message_id)])
    found = await _in_topics(admin, message_id, [topic] if topic else await _searched(admin), is_key=False)
    if not found.messages and not found.failures:
        where = f"in topic {topic}" if topic else "in any topic, and its address is that of no broker"
        raise ClientError(f"there is no message {message_id} {where}: it may be past its time")
    return found


async def by_id_or_key(admin: Admin, text: str, topic: str | None, limit: int) -> Search:
    """Each of these ways in turn, until one of them finds something."""
    if topic is None and await _names_a_broker(admin, text):
        return Search([await admin.messages.by_id(text)])
    topics = [topic] if topic else await _searched(admin)
    found = await _in_topics(admin, text, topics, is_key=True)
    if not found.messages and not found.failures:
        where = f"topic {topic}" if topic else "any topic"
        raise ClientError(f"no message in {where} has the id or the key {text}: it may be past its time")
    return Search(found.messages[:limit], found.is_cut or len(found.messages) > limit, found.failures)


async def by_key(admin: Admin, topic: str, key: str, begin: int | None, end: int | None, limit: int) -> Search:
    found = await admin.messages.by_key(topic, key, begin=begin, end=end, count=limit)
    is_cut = found.is_cut or len(found.messages) > limit
    return Search(list(found.messages[:limit]), is_cut, found.failures)


async def by_place(admin: Admin, topic: str, place: str, offset: int) -> Search:
    queue = queue_named(place, readable_queues(topic, await admin.topics.route(topic)))
    message = await admin.messages.by_offset(queue, offset)
    if message is None:
        stats = (await admin.topics.stats(topic)).by_queue()[queue]
        raise ClientError(
            f"queue {place} of {topic} has no message {offset}: it goes from {stats.min_offset} to {stats.max_offset}"
        )
    return Search([message])


def queue_named(place: str, queues: Iterable[MessageQueue]) -> MessageQueue:
    """`[BROKER:]ID`."""
    known = list(queues)
    broker, _, queue_id = place.rpartition(":")
    fitting = [one for one in known if str(one.queue_id) == queue_id and broker in ("", one.broker_name)]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(f"{one.broker_name}:{one.queue_id}" for one in fitting or known)
    raise ClientError(f"queue {place} is {'on several brokers' if fitting else 'not there'}: choose one of {names}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Looks at every message of a topic, from one time to another."""

    topic: str
    begin: int | None = None
    end: int | None = None
    tags: str | None = None
    text: str | None = None
    limit: int = 20

    async def run(self, admin: Admin) -> Search:
        wanted = subscription_of(self.topic, self.tags or ALL)
        found = Search([], scanned=0, total=await self._total(admin))
        scanned = 0
        async for message in admin.queues.scan(self.topic, begin=self.begin, end=self.end):
            if len(found.messages) == self.limit:
                found.is_cut = True
                break
            scanned += 1
            if passes(wanted, message) and self._has_text(message):
                found.messages.append(message)
        found.scanned = scanned
        return found

    def _has_text(self, message: Received) -> bool:
        return self.text is None or self.text.encode() in message.body

    async def _total(self, admin: Admin) -> int:
        ends = (await admin.topics.stats(self.topic)).by_queue()
        begins = {queue: one.min_offset for queue, one in ends.items()}
        if self.begin is not None:
            begins = await admin.queues.at_time(self.topic, self.begin)
        until = {queue: one.max_offset for queue, one in ends.items()}
        if self.end is not None and self.end < time.time_ns() // 1_000_000:
            until = await admin.queues.at_time(self.topic, self.end)
        return sum(max(0, until[queue] - begins[queue]) for queue in ends)


async def _names_a_broker(admin: Admin, message_id: str) -> bool:
    try:
        address = str(decode_offset_message_id(message_id).store_host)
    except RecordError:
        return False
    return address in {broker.address for broker in await admin.cluster.brokers()}


async def _searched(admin: Admin) -> list[str]:
    """Retries and dead letters are copies of what is found elsewhere."""
    system = set(await admin.topics.system_names())
    names = await admin.topics.names()
    return [name for name in names if name not in system and not name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))]


async def _in_topics(admin: Admin, text: str, topics: list[str], *, is_key: bool) -> Search:
    found = Search([])
    for topic in topics:
        told = await _in_topic(admin, text, topic, is_key=is_key, is_only=len(topics) == 1)
        found.messages += told.messages
        found.is_cut |= told.is_cut
        found.failures += told.failures
    return found


async def _in_topic(admin: Admin, text: str, topic: str, *, is_key: bool, is_only: bool) -> FoundMessages:
    try:
        told = await admin.messages.by_unique_key(topic, text)
        return told if told.messages or not is_key else await admin.messages.by_key(topic, text)
    except NoRoute:
        if is_only:
            raise
        return FoundMessages(messages=())  # deleted since the list was made
