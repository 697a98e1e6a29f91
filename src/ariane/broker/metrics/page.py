"""Rows of numbers, and the text that Prometheus reads.

Rows are gathered on the event loop, where the tables are; the text is made of them in a thread, because twenty thousand
lines take a tenth of a second. A page belongs to one of them at a time.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from ariane.broker.metrics.declared import BASE_LABELS, CUT_SERIES, METRICS, Kind, Metric
from ariane.broker.tallies import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The form that every scraper reads; Prometheus takes it too when it asks for a newer one first."""

_PROCESS = ProcessCollector(registry=None)
"""process_cpu_seconds_total, process_resident_memory_bytes and the like, of the whole process."""


class _Single(Collector):
    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterator[Family]:
        yield self._family


class Page:
    def __init__(self, base: Sequence[str], series_max: int) -> None:
        """`base`: the values of BASE_LABELS. Beyond `series_max` rows of one metric the rest is only counted."""
        self._base = tuple(base)
        self._series_max = series_max
        self._rows: dict[Metric, list[tuple[tuple[str, ...], float]]] = {}
        self._histograms: dict[Metric, Histogram] = {}
        self.cut: Counter[str] = Counter()

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        rows = self._rows.setdefault(metric, [])
        if len(rows) < self._series_max:
            rows.append((labels, value))
        else:
            self.cut[metric.name] += 1

    def add_histogram(self, metric: Metric, histogram: Histogram) -> None:
        """A copy: the loop counts on while the thread writes."""
        copy = Histogram(histogram.bounds)
        copy.counts, copy.total = list(histogram.counts), histogram.total
        self._histograms[metric] = copy

    # --- in a thread ------------------------------------------------------------------------------------------------

    def text(self) -> bytes:
        for name, left_out in self.cut.items():
            self._rows.setdefault(CUT_SERIES, []).append(((name,), left_out))
        # Metric by metric: the interpreter would stop the loop, too, to make one text of a hundred thousand objects.
        return b"".join(generate_latest(_Single(family)) for family in self._families())

    def _families(self) -> Iterator[Family]:
        for metric in METRICS:
            for name in metric.names:
                yield self._family(metric, name)
        yield from _PROCESS.collect()

    def _family(self, metric: Metric, name: str) -> Family:
        names = (*BASE_LABELS, *metric.labels)
        if metric.kind is Kind.HISTOGRAM:
            return self._histogram_family(metric)
        if metric.kind is Kind.COUNTER:
            counter = CounterMetricFamily(name.removesuffix("_total"), metric.doc, labels=names)
            for labels, value in self._rows.get(metric, ()):
                counter.add_metric((*self._base, *labels), value)
            return counter
        gauge = GaugeMetricFamily(name, metric.doc, labels=names)
        for labels, value in self._rows.get(metric, ()):
            gauge.add_metric((*self._base, *labels), value)
        return gauge

    def _histogram_family(self, metric: Metric) -> Family:
        family = HistogramMetricFamily(metric.name, metric.doc, labels=BASE_LABELS)
        histogram = self._histograms.get(metric)
        if histogram is not None:
            family.add_metric(self._base, _buckets(histogram), histogram.total)
        return family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """With what is below each bound added up, as the format wants it."""
    buckets, below = [], 0
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        below += count
        buckets.append((bound, float(below)))
    return buckets
