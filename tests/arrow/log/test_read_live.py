"""Reading stores while they are written, and after they were killed."""

import shutil
import subprocess
import sys
from pathlib import Path

from ariane.arrow.log.plan import plan_log
from ariane.store.checkpoint import read_checkpoint
from ariane.store.disk import RealDisk
from ariane.store.layout import Layout
from tests.arrow.log_fixtures import bodies, open_store, read_store, rows_of_plan, text
from tests.store.golden_stores import overwrite
from tests.store.stores import draft, put


def test_a_running_store_is_read_up_to_its_checkpoint(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, *(draft(text(number)) for number in range(10)))
    store.derived.write()
    put(store, *(draft(text(number)) for number in range(10, 20)))  # in the log, and not in any queue's file yet
    plan = plan_log(tmp_path, live=True)
    assert plan.is_live
    assert bodies(rows_of_plan(plan, ["body"])) == [text(number) for number in range(10)]
    assert bodies(read_store(tmp_path, ["body"], live=True, topics=["orders"])) == [text(n) for n in range(10)]
    assert plan.end == read_checkpoint(RealDisk(), Layout.under(tmp_path).checkpoint).written_to
    store.derived.write()
    assert len(read_store(tmp_path, ["body"], live=True)) == 20
    assert bodies(rows_of_plan(plan, ["body"])) == [
        text(number) for number in range(10)
    ]  # the old plan stays as it was
    store.close()


def test_reading_does_not_stop_the_writer(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for round_ in range(20):
        put(store, *(draft(text(round_ * 10 + number)) for number in range(10)))
        store.derived.write()
        assert bodies(read_store(tmp_path, ["body"], live=True)) == [text(n) for n in range(round_ * 10 + 10)]
    store.close()
    assert len(read_store(tmp_path, ["body"])) == 200


def test_after_a_kill_records_that_are_missing_in_the_queues_are_scanned(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, *(draft(text(number)) for number in range(10)))
    store.derived.write()
    put(store, *(draft(text(number), topic="late") for number in range(10, 20)))
    dead = tmp_path / "dead"
    shutil.copytree(tmp_path, dead)
    store.close()
    for topics, expected in ((None, range(20)), (["orders"], range(10)), (["late"], range(10, 20))):
        result = bodies(read_store(dead, ["body"], topics=topics))
        assert result == [text(number) for number in expected]


def test_a_torn_record_at_the_end_is_not_part_of_the_log(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, *(draft(text(number) * 10) for number in range(10)))
    last = put(store, draft(b"x" * 500))[0]
    dead = tmp_path / "dead"
    shutil.copytree(tmp_path, dead)
    store.close()
    file = sorted((dead / "commitlog").iterdir())[0]
    overwrite(file, last.physical_offset + 300, bytes(200))  # lengths still fit, the checksum does not
    assert bodies(read_store(dead, ["body"])) == [text(number) * 10 for number in range(10)]


_WRITER = """
import sys
from itertools import count
from pathlib import Path
from ariane.store.lock import locked
from tests.arrow.expected_rows import rows_of
from tests.arrow.log_fixtures import open_store
from tests.store.stores import draft, put
root = Path(sys.argv[1])
with locked(root / "lock"):
    store = open_store(root, segment_bytes=1 << 16)
    print("open", flush=True)
    for number in count():
        put(store, *(draft(b"%d" % (number * 10 + place), queue_id=place % 3) for place in range(10)))
        store.derived.write()
"""


def test_another_process_may_write_while_the_log_is_read(tmp_path: Path) -> None:
    """Every read finds the messages from the first one on without a hole, and more of them than the read before."""
    counts = [0]
    with subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"open\n"
        while counts[-1] < 2000 or len(counts) < 5:
            plan = plan_log(tmp_path, topics=["orders"] if len(counts) % 2 else None)
            assert plan.is_live
            result = bodies(rows_of_plan(plan, ["body"]))
            assert result == [b"%d" % number for number in range(len(result))]
            assert len(result) >= counts[-1]
            counts.append(len(result))
        writer.kill()


def test_a_checkpoint_that_apache_has_not_updated_is_not_used(tmp_path: Path) -> None:
    """Apache's broker ran on our store: it moves the times of the checkpoint on, and knows nothing of our mark."""
    store = open_store(tmp_path)
    put(store, *(draft(text(number)) for number in range(10)))
    store.close()
    checkpoint = Layout.under(tmp_path).checkpoint
    old = checkpoint.read_bytes()
    store = open_store(tmp_path)
    put(store, *(draft(text(number)) for number in range(10, 20)))
    store.close()
    times = (int.from_bytes(old[:8], "big") + 5000).to_bytes(8, "big") * 3
    checkpoint.write_bytes(times + old[24:])
    for live in (True, False):
        assert bodies(read_store(tmp_path, ["body"], live=live)) == [text(number) for number in range(20)]
