"""Formats the collected values in Prometheus' text format.

Separate module: importing prometheus_client takes 10 % of the start-up time, so it is imported on the first scrape, in
the thread that formats the text.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from ariane.broker.metrics.exposition import BASE_LABELS, METRICS, Exposition, Metric, MetricType
from ariane.broker.stats.counters import Histogram

_PROCESS = ProcessCollector(registry=None)
"""process_cpu_seconds_total, process_resident_memory_bytes and the like, of the whole process."""


class _Single(Collector):
    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterator[Family]:
        yield self._family


def text_of(exposition: Exposition) -> bytes:
    """Metric by metric: formatting a hundred thousand objects in one call would hold the GIL too long."""
    return b"".join(generate_latest(_Single(family)) for family in _families(exposition))


def _families(exposition: Exposition) -> Iterator[Family]:
    for metric in METRICS:
        for name in metric.names:
            yield _family(exposition, metric, name)
    yield from _PROCESS.collect()


def _family(exposition: Exposition, metric: Metric, name: str) -> Family:
    names = (*BASE_LABELS, *metric.labels)
    if metric.kind is MetricType.HISTOGRAM:
        return _histogram_family(exposition, metric)
    if metric.kind is MetricType.COUNTER:
        counter = CounterMetricFamily(name.removesuffix("_total"), metric.doc, labels=names)
        for labels, value in exposition.rows.get(metric, ()):
            counter.add_metric((*exposition.base, *labels), value)
        return counter
    gauge = GaugeMetricFamily(name, metric.doc, labels=names)
    for labels, value in exposition.rows.get(metric, ()):
        gauge.add_metric((*exposition.base, *labels), value)
    return gauge


def _histogram_family(exposition: Exposition, metric: Metric) -> Family:
    family = HistogramMetricFamily(metric.name, metric.doc, labels=BASE_LABELS)
    histogram = exposition.histograms.get(metric)
    if histogram is not None:
        family.add_metric(exposition.base, _buckets(histogram), histogram.total)
    return family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Cumulative counts, as the format requires."""
    buckets, below = [], 0
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        below += count
        buckets.append((bound, float(below)))
    return buckets
