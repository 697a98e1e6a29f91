"""The dead letters of a group: how many there are, and how far they were sent again."""

from collections.abc import Mapping

import msgspec

from ariane.cli.render import Form, Row
from ariane.cli.tail_rows import row_of, table_row
from ariane.client.admin import Admin
from ariane.client.admin.servers import Failure
from ariane.client.admin.topic_stats import TopicStats
from ariane.client.received import Received
from ariane.errors import ClientError, NoRoute
from ariane.model.ids import DEAD_LETTER_PREFIX
from ariane.model.message import Property
from ariane.model.route import MessageQueue
from ariane.store.annotate import time_text

LETTER_COLUMNS = ("storeTime", "originTopic", "reconsumeTimes", "tags", "keys", "msgId", "text")


class LettersView(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    topic: str
    stats: TopicStats
    done: Mapping[MessageQueue, int]
    """By queue: those before this offset were sent again."""
    failures: tuple[Failure, ...]

    @property
    def count(self) -> int | None:
        return self.stats.count

    def left(self, *, again: bool) -> int:
        queues = self.stats.queues
        return sum(
            max(0, one.max_offset - max(one.min_offset, 0 if again else self.done.get(one.queue, 0))) for one in queues
        )

    def row(self) -> Row:
        last = [one.last_stored_ms for one in self.stats.queues if one.last_stored_ms is not None]
        return {
            "group": self.group,
            "deadLetters": self.count,
            "notSentAgain": None if self.count is None else self.left(again=False),
            "newest": time_text(max(last)) if last else None,
        }


async def view_letters(admin: Admin, group: str, redrive_group: str) -> LettersView:
    """ClientError when the group never had a dead letter."""
    topic = f"{DEAD_LETTER_PREFIX}{group}"
    try:
        stats = await admin.topics.stats(topic)
    except NoRoute:
        await admin.cluster.map()  # fails when no nameserver answers, which is the trouble then
        raise ClientError(f"group {group} has no dead letters") from None
    done = await admin.offsets.get(redrive_group, topic)
    missing = {failure.server: failure for failure in (*stats.failures, *done.failures)}
    return LettersView(group=group, topic=topic, stats=stats, done=done.offsets, failures=tuple(missing.values()))


async def views_of_all(admin: Admin, redrive_group: str) -> list[LettersView]:
    names = await admin.topics.names()
    groups = [name.removeprefix(DEAD_LETTER_PREFIX) for name in names if name.startswith(DEAD_LETTER_PREFIX)]
    return [await view_letters(admin, group, redrive_group) for group in groups]


def letter_row(letter: Received, form: Form) -> Row:
    """A message's row, with the topic that it was sent to at first."""
    row = {**row_of(letter), "originTopic": letter.properties.get(Property.RETRY_TOPIC)}
    return table_row(row) if form is Form.TABLE else row
