"""The names that a query may use: of a cluster, or of store directories."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from ariane.arrow.log_queues import open_queues, topics_with_queues
from ariane.client.settings import ClientSettings
from ariane.errors import NoRoute, StoreMismatch
from ariane.spark.cluster import Cluster
from ariane.sql.broker_table import BrokerTable
from ariane.sql.cluster_tables import CLUSTER_TABLES, cluster_table
from ariane.sql.store_table import StoreTable
from ariane.sql.wanted import Wanted
from ariane.store.layout import Layout
from ariane.wire.requests.topics import ListTopics


class ClusterCatalog:
    def __init__(self, settings: ClientSettings, wanted: Wanted) -> None:
        self._settings = settings
        self._wanted = wanted
        self.place = settings.nameservers

    def topics(self) -> list[str]:
        cluster = Cluster(self._settings)
        with closing(cluster.calls):
            try:
                return sorted(cluster.ask_nameserver(ListTopics()).body.topic_list)
            except NoRoute as error:  # whose text is for those who give options to Spark
                raise NoRoute(str(error).replace("the option nameServer", "the address given with -n")) from error

    def messages(self, topic: str) -> BrokerTable:
        return BrokerTable(self._settings, topic, self._wanted)

    def facts(self, name: str) -> pa.Table | None:
        return cluster_table(self._settings, name) if name in CLUSTER_TABLES else None

    def fact_names(self) -> tuple[str, ...]:
        return tuple(CLUSTER_TABLES)


class StoreCatalog:
    def __init__(self, roots: Sequence[Path], wanted: Wanted) -> None:
        self._roots = roots
        self._wanted = wanted
        self.place = ", ".join(map(str, roots))
        for root in roots:
            if not (root / "commitlog").is_dir():
                raise StoreMismatch(f"{root} is no store: name the directory that holds `commitlog`")

    def topics(self) -> list[str]:
        return sorted({topic for root in self._roots for topic in topics_with_queues(Layout.under(root))})

    def messages(self, topic: str) -> StoreTable:
        return StoreTable(self._roots, topic, self._wanted)

    def facts(self, name: str) -> pa.Table | None:
        """Queues as the files have them. Groups are not in there: offsets are the broker's own file."""
        return pa.Table.from_pylist(self._queues(), schema=_STORE_QUEUES) if name == "queues" else None

    def fact_names(self) -> tuple[str, ...]:
        return ("queues",)

    def _queues(self) -> list[dict[str, object]]:
        return [
            {
                "store": str(root),
                "topic": queue.topic,
                "queueId": queue.queue_id,
                "minOffset": queue.first,
                "maxOffset": queue.end,
                "messages": len(queue),
            }
            for root in self._roots
            for queue in open_queues(Layout.under(root), topics_with_queues(Layout.under(root)))
        ]


_STORE_QUEUES = pa.schema(
    [
        ("store", pa.string()),
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("minOffset", pa.int64()),
        ("maxOffset", pa.int64()),
        ("messages", pa.int64()),
    ]
)
