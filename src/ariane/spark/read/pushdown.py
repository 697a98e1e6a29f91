"""Conditions of a query, used to read less. Only with the option pushdown=true.

In Spark 4.3.0 a condition that was pushed stays with the data frame: a later query on the same one, with another
condition or none, gets only what the first one let through. A reader that has `pushFilters` at all is affected, so the
usual one has none. With the option, make a new data frame for each query.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, InputPartition, LessThan
from pyspark.sql.datasource import LessThanOrEqual as AtMost

from ariane.spark.cluster import cluster_for
from ariane.spark.offsets import QueueRange
from ariane.spark.read.broker import BrokerBatchReader
from ariane.spark.read.planning import Planner

_NAMES = {"topic": "topic", "brokerName": "broker_name", "queueId": "queue_id"}


class PushingReader(BrokerBatchReader):
    """Prunes by topic, broker, queue, offset and tag. Spark checks every condition again: pruning may be coarse."""

    _queues: tuple[tuple[str, frozenset[Any]], ...] = ()
    _first: int = 0
    _end: int = 2**63 - 1

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for one in filters:
            if isinstance(one, (EqualTo, In)):
                self._equal(one.attribute, one.value if isinstance(one, In) else (one.value,))
            elif isinstance(one, (GreaterThan, GreaterThanOrEqual, LessThan, AtMost)):
                self._compare(one)
        return filters

    def _equal(self, attribute: tuple[str, ...], values: tuple[Any, ...]) -> None:
        if attribute == ("tags",) and self._options.tags is None and self._options.sql_filter is None:
            # `||` and blanks mean something in a subscription; such tags are left to Spark.
            if all(isinstance(tag, str) and tag and not set(tag) & set("| *") for tag in values):
                self._options = replace(self._options, tags=" || ".join(values))
        elif attribute == ("queueOffset",):
            self._first = max(self._first, min(values))
            self._end = min(self._end, max(values) + 1)
        elif len(attribute) == 1 and attribute[0] in _NAMES:
            self._queues = (*self._queues, (_NAMES[attribute[0]], frozenset(values)))

    def _compare(self, one: GreaterThan | GreaterThanOrEqual | LessThan | AtMost) -> None:
        if one.attribute != ("queueOffset",):
            return
        if isinstance(one, (GreaterThan, GreaterThanOrEqual)):
            self._first = max(self._first, one.value + isinstance(one, GreaterThan))
        else:
            self._end = min(self._end, one.value + isinstance(one, AtMost))

    def partitions(self) -> list[InputPartition]:
        planner = Planner(cluster_for(self._options.client_settings()), self._options)
        ranges = [self._narrowed(one) for one in planner.batch_ranges() if self._wants(one)]
        return [InputPartition(one) for one in planner.split(ranges)]

    def _wants(self, one: QueueRange) -> bool:
        return all(getattr(one.queue, name) in values for name, values in self._queues)

    def _narrowed(self, one: QueueRange) -> QueueRange:
        start = max(one.start, self._first)
        return QueueRange(one.queue, start, max(start, min(one.end, self._end)))
