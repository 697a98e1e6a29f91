"""Helpers that read a whole store through a plan, and small stores to read."""

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ariane.arrow.log.plan import LogPlan, plan_log
from ariane.arrow.log.read import ReadReport, read_split
from ariane.arrow.schema import COLUMNS
from ariane.store.message_store import MessageStore
from ariane.testing import FakeClock
from tests.arrow.expected_rows import rows_of
from tests.store.stores import BOOT, HOST, draft, put, small


def rows_of_plan(
    plan: LogPlan, columns: Sequence[str] | None = None, report: ReadReport | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Every split is sent to its reader as Spark would: pickled."""
    splits = pickle.loads(pickle.dumps(plan.splits))
    batches = [batch for split in splits for batch in read_split(split, columns, report=report, **options)]
    return [row for batch in batches for row in rows_of(batch)]


def read_store(root: Path, columns: Sequence[str] | None = tuple(COLUMNS), **selection: Any) -> list[dict[str, Any]]:
    report = ReadReport()
    rows = rows_of_plan(plan_log(root, **selection), columns, report)
    assert (report.bad, report.rows) == ([], len(rows))
    return rows


def bodies(rows: list[dict[str, Any]]) -> list[bytes]:
    return [row["body"] for row in rows]


def open_store(root: Path, clock: FakeClock | None = None, **sizes: Any) -> MessageStore:
    """A store on the real disk, with tiny files."""
    return MessageStore.open(small(root, **sizes), clock or FakeClock(), HOST, boot=BOOT)


def text(number: int) -> bytes:
    return f"message {number}".encode()


def fill(root: Path, count: int = 200) -> None:
    """Two topics, three queues each, in many small files."""
    store = open_store(root)
    for number in range(count):
        topic = "orders" if number % 4 else "rare"
        put(store, draft(text(number), topic, number % 3, key=f"k{number % 7}", tag="ab"[number % 2]))
    store.close()
