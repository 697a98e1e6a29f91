"""The cluster as a whole: which brokers there are, and how each is doing."""

import re
from collections.abc import Mapping

import msgspec

from ariane.client.admin.desk import Desk
from ariane.client.admin.servers import Broker, PerBroker
from ariane.model.route import ClusterMap
from ariane.wire.requests.brokers import AddWritePermission, WipeWritePermission
from ariane.wire.requests.runtime import BrokerStats, GetBrokerStats, GetRuntimeInfo

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
    def __init__(self, desk: Desk) -> None:
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
            lambda answer: Runtime(table=answer.body.table)
        )

    async def stats(
        self, name: str, key: str, *, cluster: str | None = None, broker: str | None = None
    ) -> PerBroker[BrokerStats]:
        """A counter such as TOPIC_PUT_NUMS for a key such as a topic, by minute, hour and day."""
        brokers = await self._desk.brokers(cluster=cluster, broker=broker)
        return (await self._desk.each(brokers, GetBrokerStats(name, key))).mapped(lambda answer: answer.body)

    async def wipe_write_permission(self, broker_name: str) -> dict[str, int]:
        """Takes a broker out of all sends, so that it can be stopped without a failed one. Topics, by nameserver."""
        answers = await self._desk.each_nameserver(WipeWritePermission(broker_name))
        answers.all(f"taking {broker_name} out of sends")
        return {nameserver: answer.wipe_topic_count for nameserver, answer in answers.answers.items()}

    async def add_write_permission(self, broker_name: str) -> dict[str, int]:
        answers = await self._desk.each_nameserver(AddWritePermission(broker_name))
        answers.all(f"taking {broker_name} into sends")
        return {nameserver: answer.add_topic_count for nameserver, answer in answers.answers.items()}
