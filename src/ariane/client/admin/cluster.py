"""The cluster as a whole: which brokers there are, and how each is doing."""

import re
from collections.abc import Mapping

import msgspec

from ariane.client.admin.requests import AdminRequests, Broker, PerBroker, PerNameserver, absent_is_none
from ariane.errors import ClientError
from ariane.model.route import ClusterMap
from ariane.settings.properties_file import read_properties
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.brokers import (
    AddWritePermission,
    BrokerStats,
    CleanExpiredConsumeQueues,
    CleanUnusedTopics,
    DeleteExpiredCommitLog,
    DeleteKeyValue,
    GetBrokerSettings,
    GetBrokerStats,
    GetKeyValue,
    GetNameserverSettings,
    GetRuntimeInfo,
    ListKeyValues,
    PutKeyValue,
    UpdateBrokerSettings,
    UpdateNameserverSettings,
    WipeWritePermission,
)

_FREE = re.compile(r"Free : ([\d.]+) ([KMGTPE]?)i?B")
_UNITS = ("", *"KMGTPE")


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker says of itself. Brokers do not all tell the same: what one does not tell is None here."""

    table: Mapping[str, str]
    """Everything, under Apache's names."""

    @property
    def version(self) -> str | None:
        return self.table.get("brokerVersionDesc")

    @property
    def booted_ms(self) -> int | None:
        booted = self._number("bootTimestamp")
        return None if booted is None else int(booted)

    @property
    def put_tps(self) -> float | None:
        """Messages stored a second, over the last ten seconds."""
        return self._number("putTps")

    @property
    def get_tps(self) -> float | None:
        """Messages given to consumers a second, over the last ten seconds."""
        return self._number("getTransferedTps")

    @property
    def commit_log_disk_ratio(self) -> float | None:
        return self._number("commitLogDiskRatio")

    @property
    def commit_log_free_bytes(self) -> int | None:
        """Free on the disk of the commit log, as exactly as a broker writes it: `Free : 1.5 GiB`."""
        told = _FREE.search(self.table.get("commitLogDirCapacity", ""))
        return None if told is None else int(float(told[1]) * 1024 ** _UNITS.index(told[2]))

    @property
    def earliest_message_ms(self) -> int | None:
        earliest = self._number("earliestMessageTimeStamp")
        return int(earliest) if earliest is not None and earliest >= 0 else None

    def _number(self, name: str) -> float | None:
        """Rates are three numbers: over 10 s, a minute and ten minutes. The first is wanted."""
        try:
            return float(self.table[name].split()[0])
        except (KeyError, IndexError, ValueError):
            return None


class ClusterAdmin:
    def __init__(self, desk: AdminRequests) -> None:
        self._desk = desk

    async def map(self) -> ClusterMap:
        """As the nameserver has it."""
        return await self._desk.cluster_map()

    async def names(self) -> list[str]:
        return sorted((await self._desk.cluster_map()).cluster_addr_table)

    async def brokers(self, *, cluster: str | None = None, slaves: bool = True) -> list[Broker]:
        return await self._desk.brokers(cluster=cluster, slaves=slaves)

    async def runtime(self, *, cluster: str | None = None, broker: str | None = None) -> PerBroker[Runtime]:
        """How each broker is doing, slaves too. One that is down is among the failures."""
        brokers = await self._desk.brokers(cluster=cluster, broker=broker, slaves=True)
        return (await self._desk.each(brokers, GetRuntimeInfo())).mapped(
            lambda response: Runtime(table=response.body.table)
        )

    async def stats(
        self, name: str, key: str, *, cluster: str | None = None, broker: str | None = None
    ) -> PerBroker[BrokerStats]:
        """A counter such as TOPIC_PUT_NUMS for a key such as a topic, by minute, hour and day."""
        brokers = await self._desk.brokers(cluster=cluster, broker=broker)
        return (await self._desk.each(brokers, GetBrokerStats(name, key))).mapped(lambda response: response.body)

    async def wipe_write_permission(self, broker_name: str) -> dict[str, int]:
        """Takes a broker out of all sends, so that it can be stopped without a failed one. Topics, by nameserver."""
        responses = await self._desk.each_nameserver(WipeWritePermission(broker_name))
        responses.all(f"taking {broker_name} out of sends")
        return {nameserver: response.wipe_topic_count for nameserver, response in responses.responses.items()}

    async def add_write_permission(self, broker_name: str) -> dict[str, int]:
        responses = await self._desk.each_nameserver(AddWritePermission(broker_name))
        responses.all(f"taking {broker_name} into sends")
        return {nameserver: response.add_topic_count for nameserver, response in responses.responses.items()}


# --- properties ---
#
# Settings as text: `name=value` lines, as Java's properties files have them.

# Java's broker takes each line apart at the first "=" and knows escapes; ours reads by the same rules.
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def read_table(text: str) -> dict[str, str]:
    return {entry.key: entry.value for entry in read_properties(text)}


def properties_text(settings: Mapping[str, str]) -> str:
    for name in settings:
        if not name or not name.replace(".", "").replace("_", "").isalnum():
            raise ClientError(f"{name!r} is no name of a setting: letters, digits, '.' and '_' expected")
    return "".join(f"{name}={value.translate(_ESCAPES)}\n" for name, value in settings.items())


# --- brokers ---
#
# Brokers one by one: their settings, and house-keeping on demand.


class BrokerAdmin:
    def __init__(self, desk: AdminRequests) -> None:
        self._desk = desk

    async def config(self, *, cluster: str | None = None, broker: str | None = None) -> PerBroker[dict[str, str]]:
        """The settings in force, under RocketMQ's names."""
        brokers = await self._desk.brokers(cluster=cluster, broker=broker, slaves=True)
        responses = (await self._desk.each(brokers, GetBrokerSettings())).some("reading settings")
        return responses.mapped(lambda response: read_table(response.body))

    async def set_config(
        self, settings: Mapping[str, str], *, cluster: str | None = None, broker: str | None = None
    ) -> list[Broker]:
        """Changes settings of running brokers. Ours take those marked live, until the next start; Apache's take any."""
        brokers = await self._desk.brokers(cluster=cluster, broker=broker)
        responses = await self._desk.each(brokers, UpdateBrokerSettings(properties_text(settings)))
        return responses.all("changing settings")

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


# --- nameservers ---
#
# Nameservers: their key-value pairs and settings. They do not talk to each other, so a change goes to each of them.


class NameserverAdmin:
    def __init__(self, desk: AdminRequests) -> None:
        self._desk = desk

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._desk.instance.settings.nameserver_list

    async def get(self, namespace: str, key: str) -> str | None:
        asked = self._desk.ask_nameserver(GetKeyValue(namespace, key))
        response = await absent_is_none(asked, ResponseCode.QUERY_NOT_FOUND)
        return None if response is None else response.value

    async def pairs(self, namespace: str) -> dict[str, str]:
        """All pairs of a namespace; none when there is no such namespace."""
        asked = self._desk.ask_nameserver(ListKeyValues(namespace))
        response = await absent_is_none(asked, ResponseCode.QUERY_NOT_FOUND)
        return {} if response is None else response.body.table

    async def put(self, namespace: str, key: str, value: str) -> list[str]:
        return (await self._desk.each_nameserver(PutKeyValue(namespace, key, value))).all(f"putting {key}")

    async def delete(self, namespace: str, key: str) -> list[str]:
        return (await self._desk.each_nameserver(DeleteKeyValue(namespace, key))).all(f"deleting {key}")

    async def config(self) -> PerNameserver[dict[str, str]]:
        """The settings in force, under RocketMQ's names."""
        responses = (await self._desk.each_nameserver(GetNameserverSettings())).some("reading settings")
        return responses.mapped(lambda response: read_table(response.body))

    async def set_config(self, settings: Mapping[str, str]) -> list[str]:
        """Only Apache's nameservers take it; ours refuse, for the request once let anybody write any file."""
        responses = await self._desk.each_nameserver(UpdateNameserverSettings(properties_text(settings)))
        return responses.all("changing settings")
