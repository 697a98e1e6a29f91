"""Filter pushdown: reads less by the conditions of a query. Only with the option pushdown=true.

In Spark 4.3.0 a pushed condition stays with the data frame: a later query on the same one, with another condition or
none, gets only the rows of the first. A reader that has `pushFilters` at all is affected, so the default reader has
none. With the option, create a new data frame for each query.
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
        for condition in filters:
            if isinstance(condition, (EqualTo, In)):
                self._equal(condition.attribute, condition.value if isinstance(condition, In) else (condition.value,))
            elif isinstance(condition, (GreaterThan, GreaterThanOrEqual, LessThan, AtMost)):
                self._compare(condition)
        return filters

    def _equal(self, attribute: tuple[str, ...], values: tuple[Any, ...]) -> None:
        if attribute == ("tags",) and self._options.tags is None and self._options.sql_filter is None:
            # `||` and blanks have a meaning in a subscription: leave such tags to Spark.
            if all(isinstance(tag, str) and tag and not set(tag) & set("| *") for tag in values):
                self._options = replace(self._options, tags=" || ".join(values))
        elif attribute == ("queueOffset",):
            self._first = max(self._first, min(values))
            self._end = min(self._end, max(values) + 1)
        elif len(attribute) == 1 and attribute[0] in _NAMES:
            self._queues = (*self._queues, (_NAMES[attribute[0]], frozenset(values)))

    def _compare(self, condition: GreaterThan | GreaterThanOrEqual | LessThan | AtMost) -> None:
        if condition.attribute != ("queueOffset",):
            return
        if isinstance(condition, (GreaterThan, GreaterThanOrEqual)):
            self._first = max(self._first, condition.value + isinstance(condition, GreaterThan))
        else:
            self._end = min(self._end, condition.value + isinstance(condition, AtMost))

    def partitions(self) -> list[InputPartition]:
        planner = Planner(cluster_for(self._options.client_settings()), self._options)
        ranges = [self._narrowed(part) for part in planner.batch_ranges() if self._is_selected(part)]
        return [InputPartition(part) for part in planner.split(ranges)]

    def _is_selected(self, part: QueueRange) -> bool:
        return all(getattr(part.queue, name) in values for name, values in self._queues)

    def _narrowed(self, part: QueueRange) -> QueueRange:
        start = max(part.start, self._first)
        return QueueRange(part.queue, start, max(start, min(part.end, self._end)))
