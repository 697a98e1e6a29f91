"""docs/metrics.md contains every metric; names of client releases."""

import subprocess
import sys
from pathlib import Path

import pytest

from ariane.broker.metrics.collect import version_name
from ariane.broker.metrics.exposition import METRICS

ROOT = Path(__file__).parents[3]


def test_the_metrics_documentation_is_up_to_date() -> None:
    script = ROOT / "scripts" / "metrics_docs.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_metric_has_a_unique_name_and_a_full_sentence() -> None:
    names = [name for metric in METRICS for name in metric.names]
    assert len(set(names)) == len(names) > 40
    assert all(metric.doc.endswith(".") and "|" not in metric.doc for metric in METRICS)


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (0, "0"),
        (231, "231"),
        (232, "v4_1_0_snapshot"),
        (233, "v4_1_0"),
        (355, "v4_7_1"),
        (399, "v4_9_3"),
        (411, "v4_9_9"),
        (413, "v5_0_0"),
        (611, "v5_9_9"),
        (612, "612"),
    ],
)
def test_the_release_of_a_client_has_apache_s_name(number: int, name: str) -> None:
    assert version_name(number) == name
