"""Rows of numbers, as they are gathered for Prometheus.

Rows are gathered on the event loop, where the tables are; the text is made of them in a thread, because twenty thousand
lines take a tenth of a second. A page belongs to one of them at a time.
"""

from collections import Counter
from collections.abc import Sequence

from ariane.broker.metrics.declared import CUT_SERIES, Metric
from ariane.broker.tallies import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The form that every scraper reads; Prometheus takes it too when it asks for a newer one first."""


class Page:
    def __init__(self, base: Sequence[str], series_max: int) -> None:
        """`base`: the values of BASE_LABELS. Beyond `series_max` rows of one metric the rest is only counted."""
        self.base = tuple(base)
        self._series_max = series_max
        self.rows: dict[Metric, list[tuple[tuple[str, ...], float]]] = {}
        self.histograms: dict[Metric, Histogram] = {}
        self.cut: Counter[str] = Counter()

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        rows = self.rows.setdefault(metric, [])
        if len(rows) < self._series_max:
            rows.append((labels, value))
        else:
            self.cut[metric.name] += 1

    def add_histogram(self, metric: Metric, histogram: Histogram) -> None:
        """A copy: the loop counts on while the thread writes."""
        copy = Histogram(histogram.bounds)
        copy.counts, copy.total = list(histogram.counts), histogram.total
        self.histograms[metric] = copy

    def text(self) -> bytes:
        """For a thread. The first one of a process also imports Prometheus's library: no start should wait for that."""
        from ariane.broker.metrics.page_text import text_of

        for name, left_out in self.cut.items():
            self.rows.setdefault(CUT_SERIES, []).append(((name,), left_out))
        return text_of(self)
