"""Admin API for clusters, brokers and nameservers: state, statistics and settings."""

import re
from collections.abc import Mapping

import msgspec

from ariane.client.admin.replicas import ReplicaSet, replica_sets
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
from ariane.wire.requests.replication import GetHaStatus, HaStatus

_FREE = re.compile(r"Free : ([\d.]+) ([KMGTPE]?)i?B")
_UNITS = ("", *"KMGTPE")
_DIGITS_MAX = 19


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime statistics of a broker. Brokers do not all report the same: a missing value is None."""

    table: Mapping[str, str]
    """All values, under Apache's names."""

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
        """Messages delivered to consumers a second, over the last ten seconds."""
        return self._number("getTransferedTps")

    @property
    def commit_log_disk_ratio(self) -> float | None:
        return self._number("commitLogDiskRatio")

    @property
    def commit_log_free_bytes(self) -> int | None:
        """Free bytes on the disk of the commit log, as precise as the broker's text: `Free : 1.5 GiB`."""
        match = _FREE.search(self.table.get("commitLogDirCapacity", ""))
        return None if match is None else int(float(match[1]) * 1024 ** _UNITS.index(match[2]))

    @property
    def log_end(self) -> int | None:
        """Where the commit log ends. A float could not hold it."""
        text = self.table.get("commitLogMaxOffset", "")
        return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX else None

    @property
    def earliest_message_ms(self) -> int | None:
        earliest = self._number("earliestMessageTimeStamp")
        return int(earliest) if earliest is not None and earliest >= 0 else None

    def _number(self, name: str) -> float | None:
        """Rates are three numbers: over 10 s, a minute and ten minutes. Returns the first."""
        try:
            return float(self.table[name].split()[0])
        except (KeyError, IndexError, ValueError):
            return None


class ClusterAdmin:
    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def map(self) -> ClusterMap:
        """As the nameserver has it."""
        return await self._requests.cluster_map()

    async def names(self) -> list[str]:
        return sorted((await self._requests.cluster_map()).cluster_addr_table)

    async def brokers(self, *, cluster: str | None = None, slaves: bool = True) -> list[Broker]:
        return await self._requests.brokers(cluster=cluster, slaves=slaves)

    async def runtime(self, *, cluster: str | None = None, broker: str | None = None) -> PerBroker[Runtime]:
        """The runtime statistics of each broker, including slaves. A broker that is down is among the failures."""
        brokers = await self._requests.brokers(cluster=cluster, broker=broker, slaves=True)
        return (await self._requests.each(brokers, GetRuntimeInfo())).mapped(
            lambda response: Runtime(table=response.body.table)
        )

    async def replicas(self, name: str | None = None, *, cluster: str | None = None) -> tuple[ReplicaSet, ...]:
        """The master and slaves of each broker name, or of one: who is connected, and how far each is behind."""
        return await replica_sets(self._requests, name, cluster=cluster)

    async def ha_status(
        self, *, cluster: str | None = None, broker: str | None = None, slaves: bool = False
    ) -> PerBroker[HaStatus]:
        """What brokers of 5.x and of Ariane say about replication; those of 4.x do not know the request."""
        brokers = await self._requests.brokers(cluster=cluster, broker=broker, slaves=slaves)
        return (await self._requests.each(brokers, GetHaStatus())).mapped(lambda response: response.body)

    async def stats(
        self, name: str, key: str, *, cluster: str | None = None, broker: str | None = None
    ) -> PerBroker[BrokerStats]:
        """A counter such as TOPIC_PUT_NUMS for a key such as a topic, by minute, hour and day."""
        brokers = await self._requests.brokers(cluster=cluster, broker=broker)
        return (await self._requests.each(brokers, GetBrokerStats(name, key))).mapped(lambda response: response.body)

    async def wipe_write_permission(self, broker_name: str) -> dict[str, int]:
        """Stops sends to a broker, so that it can be stopped without a failed send. Number of topics, by nameserver."""
        responses = await self._requests.each_nameserver(WipeWritePermission(broker_name))
        responses.all(f"removing the write permission of {broker_name}")
        return {nameserver: response.wipe_topic_count for nameserver, response in responses.responses.items()}

    async def add_write_permission(self, broker_name: str) -> dict[str, int]:
        responses = await self._requests.each_nameserver(AddWritePermission(broker_name))
        responses.all(f"adding the write permission of {broker_name}")
        return {nameserver: response.add_topic_count for nameserver, response in responses.responses.items()}


# --- settings as `name=value` lines, as in Java's properties files ---

# Java's broker splits each line at the first "=" and knows escapes; Ariane's broker reads by the same rules.
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def read_table(text: str) -> dict[str, str]:
    return {entry.key: entry.value for entry in read_properties(text)}


def properties_text(settings: Mapping[str, str]) -> str:
    for name in settings:
        if not name or not name.replace(".", "").replace("_", "").isalnum():
            raise ClientError(f"{name!r} is not a valid setting name: letters, digits, '.' and '_' expected")
    return "".join(f"{name}={value.translate(_ESCAPES)}\n" for name, value in settings.items())


class BrokerAdmin:
    """Settings of brokers, and housekeeping on demand."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def config(self, *, cluster: str | None = None, broker: str | None = None) -> PerBroker[dict[str, str]]:
        """The settings in force, under RocketMQ's names."""
        brokers = await self._requests.brokers(cluster=cluster, broker=broker, slaves=True)
        responses = (await self._requests.each(brokers, GetBrokerSettings())).some("reading settings")
        return responses.mapped(lambda response: read_table(response.body))

    async def set_config(
        self, settings: Mapping[str, str], *, cluster: str | None = None, broker: str | None = None
    ) -> list[Broker]:
        """Changes settings of running brokers. Ariane accepts live settings, until the next start; Apache's all."""
        brokers = await self._requests.brokers(cluster=cluster, broker=broker)
        responses = await self._requests.each(brokers, UpdateBrokerSettings(properties_text(settings)))
        return responses.all("changing settings")

    async def clean_expired_queues(self, *, cluster: str | None = None, broker: str | None = None) -> list[Broker]:
        """Removes queues whose messages have all been deleted from the log."""
        brokers = await self._requests.brokers(cluster=cluster, broker=broker)
        return (await self._requests.each(brokers, CleanExpiredConsumeQueues())).all("removing expired queues")

    async def clean_unused_topics(self, *, cluster: str | None = None, broker: str | None = None) -> list[Broker]:
        """Removes the queues of topics that no longer exist."""
        brokers = await self._requests.brokers(cluster=cluster, broker=broker)
        return (await self._requests.each(brokers, CleanUnusedTopics())).all("removing unused topics")

    async def delete_expired_files(self, *, cluster: str | None = None, broker: str | None = None) -> list[Broker]:
        """Removes expired commit log files now, instead of at the configured hour."""
        brokers = await self._requests.brokers(cluster=cluster, broker=broker)
        return (await self._requests.each(brokers, DeleteExpiredCommitLog())).all("removing expired files")


class NameserverAdmin:
    """Key-value pairs and settings of nameservers. They do not replicate, so a change is sent to each of them."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._requests.instance.settings.nameserver_list

    async def get(self, namespace: str, key: str) -> str | None:
        call = self._requests.call_nameserver(GetKeyValue(namespace, key))
        response = await absent_is_none(call, ResponseCode.QUERY_NOT_FOUND)
        return None if response is None else response.value

    async def pairs(self, namespace: str) -> dict[str, str]:
        """All pairs of a namespace; empty if there is no such namespace."""
        call = self._requests.call_nameserver(ListKeyValues(namespace))
        response = await absent_is_none(call, ResponseCode.QUERY_NOT_FOUND)
        return {} if response is None else response.body.table

    async def put(self, namespace: str, key: str, value: str) -> list[str]:
        return (await self._requests.each_nameserver(PutKeyValue(namespace, key, value))).all(f"putting {key}")

    async def delete(self, namespace: str, key: str) -> list[str]:
        return (await self._requests.each_nameserver(DeleteKeyValue(namespace, key))).all(f"deleting {key}")

    async def config(self) -> PerNameserver[dict[str, str]]:
        """The settings in force, under RocketMQ's names."""
        responses = (await self._requests.each_nameserver(GetNameserverSettings())).some("reading settings")
        return responses.mapped(lambda response: read_table(response.body))

    async def set_config(self, settings: Mapping[str, str]) -> list[str]:
        """Only Apache's nameservers accept it. Ariane's refuse it: this request once allowed writing any file."""
        responses = await self._requests.each_nameserver(UpdateNameserverSettings(properties_text(settings)))
        return responses.all("changing settings")
