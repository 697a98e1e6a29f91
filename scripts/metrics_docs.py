"""Writes docs/metrics.md from the declarations. With --check it only says whether the page is up to date."""

import sys
from collections.abc import Iterator
from pathlib import Path

from ariane.broker.metrics.exposition import BASE_LABELS, METRICS, Metric

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"

HEAD = """\
# Metrics

<!-- Made by scripts/metrics_docs.py from src/ariane/broker/metrics/exposition.py: change it there. -->

`metricsExporterType=PROM` in a `broker.conf` (`metrics_exporter = "PROM"` in TOML) serves a page for Prometheus at
`http://HOST:5557/metrics`; `metricsPromExporterHost` and `metricsPromExporterPort` change the address. It is off by
default, as in Apache: the page names topics and groups, and asks nobody who they are.

```yaml
scrape_configs:
  - job_name: rocketmq
    static_configs:
      - targets: ["broker-a:5557"]
```

Each metric below also has the labels {base}: the cluster, `broker`, and the
broker's name. Names with `rocketmq_` are those of RocketMQ 5.x. Where 5.3 adds a unit to a name and earlier releases do
not, both are there. Counters begin at 0 when the broker starts. Those of topics and groups that are no more leave the
page within ten minutes. Beside these the page has what Prometheus clients tell of every process
(`process_cpu_seconds_total`, `process_resident_memory_bytes`, ...).

A page is gathered in small steps and written in a thread, so that sends do not wait for it. Of one metric it has at
most `metricsOtelCardinalityLimit` label sets, and it looks up the ages of 2000 messages; what is left out is counted in
`ariane_metrics_cut_series`.

Rates by minute, hour and day are answered to `mqadmin statsAll` and `mqadmin brokerStatus` without any of this.
"""

TABLE = "| metric | kind | labels | what it tells |\n| --- | --- | --- | --- |"
SECTIONS = (("RocketMQ's", "rocketmq_"), ("Ariane's own", "ariane_"))


def page() -> str:
    head = HEAD.format(base=", ".join(f"`{label}`" for label in BASE_LABELS))
    return "\n".join([head, *(line for title, prefix in SECTIONS for line in _section(title, prefix))])


def _section(title: str, prefix: str) -> Iterator[str]:
    yield f"## {title}\n"
    yield TABLE
    yield from (_row(metric) for metric in METRICS if metric.name.startswith(prefix))
    yield ""


def _row(metric: Metric) -> str:
    names = ", ".join(f"`{name}`" for name in metric.names)
    return f"| {names} | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels)} | {metric.doc} |"


def main() -> int:
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page()
    print("docs/metrics.md is up to date" if fresh else "docs/metrics.md is stale: run python scripts/metrics_docs.py")
    return 0 if fresh else 1


if __name__ == "__main__":
    sys.exit(main())
