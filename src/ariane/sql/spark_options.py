"""Where Spark finds a table, as the options of its data source; and what it will be told to read.

From brokers the offsets are settled here, so that what is said about a scan is what Spark reads, and every task reads
the same however many messages come meanwhile.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ariane.arrow.log_queues import open_queues
from ariane.client.settings import ClientSettings
from ariane.errors import SettingsError
from ariane.settings import Secret
from ariane.spark.ranges import QueueRange
from ariane.sql.broker_table import plan_ranges
from ariane.sql.catalogs import ClusterCatalog, StoreCatalog
from ariane.sql.progress import counted
from ariane.sql.tables import Catalog
from ariane.sql.wanted import Wanted
from ariane.store.layout import Layout

Options = dict[str, str]


@dataclass(frozen=True, slots=True)
class SparkPlace:
    settings: ClientSettings
    stores: Sequence[Path]
    wanted: Wanted

    def __post_init__(self) -> None:
        if self.wanted.limit is not None:
            raise SettingsError("--limit-scan is for the embedded engine: Spark is for reading all; leave it out")

    @property
    def catalog(self) -> Catalog:
        if self.stores:
            return StoreCatalog(self.stores, self.wanted)
        return ClusterCatalog(self.settings, self.wanted)

    def table(self, topic: str, columns: Sequence[str]) -> tuple[list[Options], str]:
        """The options of each part of the table, and a sentence on what is scanned, true when no part has failed."""
        chosen = {"topic": topic, "columns": ",".join(columns), **_chosen(self.wanted)}
        if self.stores:
            return self._of_stores(topic, chosen)
        ranges = plan_ranges(self.settings, topic, self.wanted)
        options = {**chosen, **_connection(self.settings), **_offsets(ranges)}
        return [options], _scanned(topic, sum(map(len, ranges)), len(ranges))

    def _of_stores(self, topic: str, chosen: Options) -> tuple[list[Options], str]:
        """One part for each store that has the topic."""
        times = {"startingTimestamp": self.wanted.since_ms, "endingTimestamp": self.wanted.until_ms}
        given = {name: str(value) for name, value in times.items() if value is not None}
        queues = {root: list(open_queues(Layout.under(root), [topic])) for root in self.stores}
        parts = [{**chosen, **given, "storePath": str(root)} for root, found in queues.items() if found]
        every = [queue for found in queues.values() for queue in found]
        return parts, _scanned(topic, sum(map(len, every)), len(every))


def _scanned(topic: str, messages: int, queues: int) -> str:
    """Spark does not tell how many of them it needed. Had one been gone or damaged, there would be no answer."""
    return f"scanned up to {messages:,} messages of {topic} ({counted(queues, 'queue')}) by Spark, complete"


def _chosen(wanted: Wanted) -> Options:
    tags = {"tags": " || ".join(sorted(wanted.tags))} if wanted.tags else {}
    return tags | ({"keys": ",".join(sorted(wanted.keys))} if wanted.keys else {})


def _offsets(ranges: Sequence[QueueRange]) -> Options:
    starts: dict[str, dict[str, dict[str, int]]] = {}
    ends: dict[str, dict[str, dict[str, int]]] = {}
    for one in ranges:
        queue = one.queue
        for table, offset in ((starts, one.start), (ends, one.end)):
            table.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    return {"startingOffsets": json.dumps(starts), "endingOffsets": json.dumps(ends)}


def _connection(settings: ClientSettings) -> Options:
    tls = settings.tls
    told: dict[str, object] = {
        "nameServer": settings.nameservers,
        "accessKey": settings.access_key,
        "secretKey": settings.secret_key,
        "securityToken": settings.security_token,
        "useTLS": "true" if tls.enable else None,
        "tls.client.trustCertPath": tls.trust,
        "tls.client.certPath": tls.certificate,
        "tls.client.keyPath": tls.key,
        "tls.client.authServer": None if tls.verify else "false",
    }
    return {name: _text(value) for name, value in told.items() if value is not None}


def _text(value: object) -> str:
    return value.reveal() if isinstance(value, Secret) else str(value)
