"""A page's rows as the text that Prometheus reads.

Apart from the page, because to import Prometheus's own library would be a tenth of a start: it comes with the first
scrape, in the thread that makes the text.
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


def text_of(page: Exposition) -> bytes:
    """Metric by metric: the interpreter would stop the loop, too, to make one text of a hundred thousand objects."""
    return b"".join(generate_latest(_Single(family)) for family in _families(page))


def _families(page: Exposition) -> Iterator[Family]:
    for metric in METRICS:
        for name in metric.names:
            yield _family(page, metric, name)
    yield from _PROCESS.collect()


def _family(page: Exposition, metric: Metric, name: str) -> Family:
    names = (*BASE_LABELS, *metric.labels)
    if metric.kind is MetricType.HISTOGRAM:
        return _histogram_family(page, metric)
    if metric.kind is MetricType.COUNTER:
        counter = CounterMetricFamily(name.removesuffix("_total"), metric.doc, labels=names)
        for labels, value in page.rows.get(metric, ()):
            counter.add_metric((*page.base, *labels), value)
        return counter
    gauge = GaugeMetricFamily(name, metric.doc, labels=names)
    for labels, value in page.rows.get(metric, ()):
        gauge.add_metric((*page.base, *labels), value)
    return gauge


def _histogram_family(page: Exposition, metric: Metric) -> Family:
    family = HistogramMetricFamily(metric.name, metric.doc, labels=BASE_LABELS)
    histogram = page.histograms.get(metric)
    if histogram is not None:
        family.add_metric(page.base, _buckets(histogram), histogram.total)
    return family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """With what is below each bound added up, as the format wants it."""
    buckets, below = [], 0
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        below += count
        buckets.append((bound, float(below)))
    return buckets
