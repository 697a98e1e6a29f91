"""docs/pipelines.md: every block is run here, or names the test that runs it."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep

import pytest
from pyspark.sql import SparkSession

from tests.cli.command_line import ENVIRONMENT, HANG_S, PROGRAM, Outcome
from tests.examples.snippets import ROOT
from tests.spark.cluster_fixture import ClusterFixture
from tests.spark.pipeline.pipeline_runs import Recorder, run_file

PAGE = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
DEMO, FILE, PROBLEMS, PROJECT = re.findall(r"^```\w+\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)

SHOP = """\
pipeline: shop
sources:
  orders:
    topic: orders
    schema: id BIGINT, amount DOUBLE
    options:
      startingOffset: earliest
  customers:
    files: customers.csv
    format: csv
    schema: id BIGINT, name STRING
steps:
  large:
    sql: SELECT * FROM ordres WHERE amount > 100
sinks:
  table: {from: larg, console: 5}
"""
"""The file with the problems that the page shows."""


def ariane(directory: Path, *words: str) -> Outcome:
    done = subprocess.run(
        [*PROGRAM, *words], cwd=directory, capture_output=True, text=True, env=ENVIRONMENT, timeout=10 * HANG_S
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.mark.long
def test_the_file_runs_and_keeps_dead_letters(spark: SparkSession, cluster: ClusterFixture, tmp_path: Path) -> None:
    topic = cluster.topic(queues=1, brokers=["broker-a"])
    file = tmp_path / "orders.yaml"
    file.write_text(FILE.replace("    topic: orders\n", f"    topic: {topic}\n"))
    orders = [
        {"order_id": f"o-{number}", "amount": 2.5, "currency": currency, "at": "2026-01-31T08:00:10Z"}
        for number, currency in enumerate(["EUR", "EUR", "USD"])
    ]
    cluster.send(topic, [*(json.dumps(order).encode() for order in orders), b"no order"])
    screen = Recorder()
    run_file(spark, cluster, file, {"work": str(tmp_path)}, screen)
    assert [(row["orders"], row["amount"]) for row in screen.tables["totals"]] == [(2, 5.0)]
    assert spark.read.parquet(str(tmp_path / "bad")).count() == 1


def test_problems_are_reported_as_the_page_shows_them(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(SHOP)
    command, expected = PROBLEMS.split("\n", 1)
    done = ariane(tmp_path, *command.split()[2:])
    assert (done.status, done.err) == (2, expected)


def test_the_project_is_written_as_the_page_shows_it(tmp_path: Path) -> None:
    """Its first line would fetch packages, its last one is run in test_project.py."""
    install, init, run = PROJECT.splitlines()
    assert install.startswith("pip install ")
    done = ariane(tmp_path, *init.split()[1:])
    assert done.status == 0, done.err
    assert os.access(tmp_path / run, os.X_OK)


@pytest.mark.long
def test_the_first_two_commands_show_what_the_orders_amount_to(tmp_path: Path) -> None:
    up, run = (line.split("#")[0].split()[1:] for line in DEMO.splitlines())
    with running_up(tmp_path, up) as nameserver:
        while ariane(tmp_path, "topic", "show", "orders", "-n", nameserver).status:
            sleep(0.1)  # the demo has just begun
        done = ariane(tmp_path, *run)
    assert done.status == 0, done.err
    assert "region" in done.out


@contextmanager
def running_up(directory: Path, words: list[str]) -> Iterator[str]:
    """On free ports, and otherwise as it is typed: commands in the same directory find it."""
    command = [*PROGRAM, *words, "--port", "0", "--broker-port", "0"]
    with subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        try:
            first = process.stdout.readline()
            found = re.search(r"127\.0\.0\.1:\d+", first)
            assert found is not None, first
            yield found[0]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(HANG_S)
