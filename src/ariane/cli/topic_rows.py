"""A topic as `ariane topic` tells it: what is known of it, and the rows that show it."""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from ariane.cli.render import Row
from ariane.client.admin import Admin
from ariane.client.admin.servers import Broker, Failure
from ariane.client.admin.topic_stats import TopicStats
from ariane.model.ids import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ariane.model.route import TopicRoute
from ariane.model.topic import Permission, TopicConfig
from ariane.store.annotate import time_text

Kind = Literal["topic", "retry", "dead letter", "system"]

STATS_COLUMNS = ("brokerName", "queueId", "minOffset", "maxOffset", "messages", "lastStored")

_PERMISSIONS = {"rw": 6, "r": 4, "w": 2, "none": 0}


class TopicView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    configs: Mapping[Broker, TopicConfig]
    stats: TopicStats
    groups: list[str]
    system: list[str]
    failures: tuple[Failure, ...]

    @property
    def messages(self) -> int | None:
        return self.stats.count

    def messages_at(self, broker: Broker) -> int | None:
        """None when that broker did not tell."""
        queues = [one for one in self.stats.queues if one.queue.broker_name == broker.name]
        return sum(one.count for one in queues) if queues or self.stats.is_complete else None


async def view_topic(admin: Admin, name: str) -> TopicView:
    """NoRoute when there is no such topic."""
    route = await admin.topics.route(name)
    stats, configs = await admin.topics.stats(name), await admin.topics.configs(name)
    known = {data.broker_name for data in route.broker_datas}
    missing = {failure.server: failure for failure in (*stats.failures, *configs.failures)}
    return TopicView(
        name=name,
        configs={broker: config for broker, config in configs.answers.items() if broker.name in known},
        stats=stats,
        groups=await admin.topics.groups(name),
        system=await admin.topics.system_names(),
        failures=tuple(missing.values()),
    )


def kind_of(name: str, system: set[str]) -> Kind:
    if name.startswith(RETRY_PREFIX):
        return "retry"
    if name.startswith(DEAD_LETTER_PREFIX):
        return "dead letter"
    return "system" if name in system else "topic"


def permission(text: str) -> int:
    return _PERMISSIONS[text]


def permission_text(perm: int) -> str:
    """In the words that --perm takes."""
    letters = ("r" if perm & Permission.READ else "") + ("w" if perm & Permission.WRITE else "")
    return letters or "none"


def list_rows(kinds: Mapping[str, Kind]) -> Iterable[Row]:
    return [{"topic": name, "kind": kind} for name, kind in kinds.items()]


def long_rows(views: Iterable[TopicView], kinds: Mapping[str, Kind]) -> Iterable[Row]:
    for view in views:
        configs = list(view.configs.values())
        yield {
            "topic": view.name,
            "kind": kinds[view.name],
            "brokers": [broker.name for broker in view.configs],
            "readQueueNums": sum(config.read_queue_nums for config in configs),
            "writeQueueNums": sum(config.write_queue_nums for config in configs),
            "perm": sorted({permission_text(config.perm) for config in configs}),
            "messages": view.messages,
            "groups": len(view.groups),
        }


def show_rows(view: TopicView) -> Iterable[Row]:
    for broker, config in view.configs.items():
        yield {
            "topic": view.name,
            "cluster": broker.cluster,
            "brokerName": broker.name,
            "address": broker.address,
            "readQueueNums": config.read_queue_nums,
            "writeQueueNums": config.write_queue_nums,
            "perm": permission_text(config.perm),
            "order": config.order,
            "messages": view.messages_at(broker),
            "groups": view.groups,
        }


def route_rows(route: TopicRoute) -> Iterable[Row]:
    queues = {one.broker_name: one for one in route.queue_datas}
    for data in sorted(route.broker_datas, key=lambda one: one.broker_name):
        told = queues.get(data.broker_name)
        yield {
            "cluster": data.cluster,
            "brokerName": data.broker_name,
            "addresses": {str(broker_id): address for broker_id, address in sorted(data.broker_addrs.items())},
            "readQueueNums": None if told is None else told.read_queue_nums,
            "writeQueueNums": None if told is None else told.write_queue_nums,
            "perm": None if told is None else permission_text(told.perm),
            "orderTopicConf": route.order_topic_conf,
        }


def stats_rows(stats: TopicStats) -> Iterable[Row]:
    for one in stats.queues:
        yield {
            "brokerName": one.queue.broker_name,
            "queueId": one.queue.queue_id,
            "minOffset": one.min_offset,
            "maxOffset": one.max_offset,
            "messages": one.count,
            "lastStored": None if one.last_stored_ms is None else time_text(one.last_stored_ms),
            "lastStoredTimestamp": one.last_stored_ms,
        }
