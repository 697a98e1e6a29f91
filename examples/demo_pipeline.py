"""A Spark pipeline: orders from a topic, windowed SQL, results to a topic and to Parquet."""

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from ariane import Admin, Producer
from ariane.cli.up.demo_orders import OrderStream
from examples.demo_common import TIMEOUT_S

TOPIC = "orders"
RESULT_TOPIC = "orders-turnover"
EVENTS = 3_000
MINUTES = 1
COLUMNS = ("start", "region", "currency", "orders", "refused", "goods", "amount")


@dataclass(frozen=True, slots=True)
class Turnover:
    ok: bool
    summary: str
    rows: list[dict[str, object]]


async def send_orders(nameserver: str) -> None:
    """Sends the sample orders of one minute."""
    async with Admin(nameserver) as admin:
        for topic in (TOPIC, RESULT_TOPIC):
            await admin.topics.create(topic, queues=4, wait_s=TIMEOUT_S)
    stream, now_ms = OrderStream(), time.time_ns() // 1_000_000
    span_ms = MINUTES * 60_000
    messages = [stream.next(now_ms - span_ms + span_ms * number // EVENTS) for number in range(EVENTS)]
    async with Producer(nameserver, group="shop") as producer:
        for start in range(0, EVENTS, 500):
            for future in [producer.send_nowait(message) for message in messages[start : start + 500]]:
                await future


def run_pipeline(nameserver: str, work: Path) -> "subprocess.CompletedProcess[str]":
    """Runs `ariane pipeline run orders --once`."""
    command = [sys.executable, "-m", "ariane", "pipeline", "run", "orders", "--once", "-n", nameserver]
    return subprocess.run([*command, "--set", f"work={work}"], capture_output=True, text=True, check=False)


async def compare(nameserver: str, work: Path) -> Turnover:
    """Checks that Parquet and the result topic have the same rows, and that bad input went to dead letters."""
    rows = pq.read_table(work / "turnover").select(COLUMNS).sort_by([("start", "ascending"), ("region", "ascending")])
    bad = pq.read_table(work / "dead-letters").num_rows
    async with Admin(nameserver) as admin:
        sent = (await admin.topics.stats(RESULT_TOPIC)).count
    ok = rows.num_rows > 0 and rows.num_rows == sent and bad > 0
    summary = f"{EVENTS:,} events -> {rows.num_rows} windows in Parquet, {sent} in {RESULT_TOPIC}"
    summary += f"; {bad} bad rows to dead letters"
    return Turnover(ok, summary, rows.to_pylist())
