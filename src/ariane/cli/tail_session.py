"""One run of `ariane tail`, from the first message to the last."""

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

import click

from ariane.cli.tail_printer import Show
from ariane.cli.tail_reader import TopicReader
from ariane.client.instance import Instance
from ariane.client.received import Received
from ariane.client.settings import ClientSettings
from ariane.client.subscriptions import ALL, subscription_of
from ariane.errors import ArianeError
from ariane.model.route import MessageQueue


@dataclass(slots=True, kw_only=True)
class TailSession:
    topic: str
    start: int | str
    follow: bool
    limit: int | None
    tags: str | None
    sql: str | None
    shown: int = 0

    async def run(self, settings: ClientSettings, show: Show) -> str | None:
        """What has to be said at the end, when not everything was shown."""
        subscription = subscription_of(self.topic, self.tags or ALL, sql=self.sql)
        async with Instance.open(settings) as instance:
            reader = TopicReader(instance, self.topic, subscription, self.start, _tell_trouble)
            await reader.find_places()
            if await self._show_all(reader.stored(), show, at_once=False):
                return self._stopped(reader.left)
            sys.stdout.flush()
            if self.follow and await self._show_all(reader.arriving(), show, at_once=True):
                return self._stopped(reader.left)
        return None

    async def _show_all(self, messages: AsyncGenerator[Received, None], show: Show, *, at_once: bool) -> bool:
        """Whether the limit was reached."""
        async with aclosing(messages):
            async for message in messages:
                show(message)
                self.shown += 1
                if at_once:
                    sys.stdout.flush()
                if self.shown == self.limit:
                    return True
        return False

    def _stopped(self, left: int) -> str | None:
        if not left:
            return None if not self.follow else f"stopped at --limit {self.limit}; nothing more is stored"
        fitting = ", not all of which may fit" if self.tags or self.sql else ""
        return f"stopped at --limit {self.limit}: {left:,} more messages are stored{fitting}"


def _tell_trouble(queue: MessageQueue, error: ArianeError) -> None:
    click.echo(f"{queue.broker_name}:{queue.queue_id} cannot be read now and is tried again: {error}", err=True)
