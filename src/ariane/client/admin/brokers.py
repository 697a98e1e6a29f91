"""Brokers one by one: their settings, and house-keeping on demand."""

from collections.abc import Mapping

from ariane.client.admin.desk import Desk
from ariane.client.admin.properties import properties_text, read_table
from ariane.client.admin.servers import Broker, PerBroker
from ariane.wire.requests.configs import GetBrokerSettings, UpdateBrokerSettings
from ariane.wire.requests.runtime import CleanExpiredConsumeQueues, CleanUnusedTopics, DeleteExpiredCommitLog


class BrokerAdmin:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def config(self, *, cluster: str | None = None, broker: str | None = None) -> PerBroker[dict[str, str]]:
        """The settings in force, under RocketMQ's names."""
        brokers = await self._desk.brokers(cluster=cluster, broker=broker, slaves=True)
        answers = (await self._desk.each(brokers, GetBrokerSettings())).some("reading settings")
        return answers.mapped(lambda answer: read_table(answer.body))

    async def set_config(
        self, settings: Mapping[str, str], *, cluster: str | None = None, broker: str | None = None
    ) -> list[Broker]:
        """Changes settings of running brokers. Ours take those marked live, until the next start; Apache's take any."""
        brokers = await self._desk.brokers(cluster=cluster, broker=broker)
        answers = await self._desk.each(brokers, UpdateBrokerSettings(properties_text(settings)))
        return answers.all("changing settings")

    async def clean_expired_queues(self, *, cluster: str | None = None, broker: str | None = None) -> list[Broker]:
        """Removes queues whose messages have all gone from the log."""
        brokers = await self._desk.brokers(cluster=cluster, broker=broker)
        return (await self._desk.each(brokers, CleanExpiredConsumeQueues())).all("removing expired queues")

    async def clean_unused_topics(self, *, cluster: str | None = None, broker: str | None = None) -> list[Broker]:
        """Removes the queues of topics that no longer exist."""
        brokers = await self._desk.brokers(cluster=cluster, broker=broker)
        return (await self._desk.each(brokers, CleanUnusedTopics())).all("removing unused topics")

    async def delete_expired_files(self, *, cluster: str | None = None, broker: str | None = None) -> list[Broker]:
        """Removes commit log files that are past their time now, and not at the hour set for it."""
        brokers = await self._desk.brokers(cluster=cluster, broker=broker)
        return (await self._desk.each(brokers, DeleteExpiredCommitLog())).all("removing expired files")
