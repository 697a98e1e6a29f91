"""The Spark job `rebuild`: its queues and index are byte for byte those that the broker wrote."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ariane.clock import Clock
from ariane.errors import ArianeError, SettingsError, StoreInUse, StoreMismatch
from ariane.spark.jobs import rebuild
from ariane.spark.jobs.rebuild import replace_directory
from ariane.store.commit_log.scan import list_files, walk_files
from ariane.store.disk import RealDisk
from ariane.store.layout import Layout
from ariane.store.message_store import MessageStore
from ariane.store.offline.rebuild import rebuild_store
from ariane.store.offline.verify_report import infer_file_sizes
from ariane.wire.record.read import RecordView
from tests.store.golden_stores import flip, held_by_another_process, overwrite, unpack
from tests.store.stores import HOST, draft, put, small


def content(directory: Path) -> dict[Path, bytes]:
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def index(layout: Layout) -> list[bytes]:
    """The contents in the order of the names, which are the times of creation."""
    return [data for _, data in sorted(content(layout.index).items())]


def run(spark: SparkSession, layout: Layout, **options: Any) -> dict[str, object]:
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    return rebuild.run(spark, {"storePath": str(layout.root), **texts}, lambda progress: None)


def rebuilt_in_one_process(layout: Layout, copy: Path) -> Layout:
    """A copy of the store, rebuilt as `ariane store rebuild` does."""
    shutil.copytree(layout.root, copy)
    peer = Layout.under(copy)
    rebuild_store(
        RealDisk(),
        peer,
        infer_file_sizes(RealDisk(), peer),
        queues=True,
        index=True,
        discard_old=True,
        progress=lambda n: None,
    )
    return peer


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_rebuilt_queues_and_index_are_byte_for_byte_apaches(spark: SparkSession, tmp_path: Path, name: str) -> None:
    layout = unpack(name, tmp_path)
    queues, files = content(layout.consume_queues), index(layout)
    done = run(spark, layout)
    assert content(layout.consume_queues) == queues
    assert index(layout) == files
    assert (done["queues"], done["index_files"]) == (54, len(files))
    assert sorted(path.name for path in layout.root.iterdir() if path.suffix) == ["consumequeue.old", "index.old"]


def test_a_store_written_by_ariane_is_rebuilt_from_spans_that_begin_anywhere(
    spark: SparkSession, tmp_path: Path
) -> None:
    settings = small(tmp_path / "store", segment_bytes=32 * 1024, index_entries=100)
    store = MessageStore.open(settings, Clock(), HOST)
    for number in range(300):
        key, tag = f"größe-{number % 70}", "ABÄ"[number % 3]
        topic = "orders" if number % 4 else f"topic-{number % 5}"
        # A body that contains a record must not mislead a task.
        body = bytes(store.components.commit_log.read(0, 200) or b"") if number % 50 == 7 else b"%d" % number * 30
        put(store, draft(body, topic, number % 3, key, tag))
    store.close()
    layout = Layout.under(settings.root)
    before = content(layout.consume_queues)
    done = run(spark, layout, targetPath=tmp_path / "new", maxBytesPerPartition=10_000)
    new = Layout.under(tmp_path / "new")
    assert content(new.consume_queues) == before
    assert index(new) == index(layout)
    assert done["records"] == done["queue_entries"] == 300
    assert sorted(path.name for path in new.root.iterdir()) == ["consumequeue", "index"]


def test_a_damaged_log_is_rebuilt_as_in_one_process(spark: SparkSession, tmp_path: Path) -> None:
    layout = unpack("clean", tmp_path)
    first = layout.commit_log / "00000000000000000000"
    overwrite(first, 266, b"\xff")  # properties that are not UTF-8
    for number, offset in enumerate(_record_offsets(layout)[10:400:40]):
        flip(first, offset + (0, 91, 30)[number % 3], bit=2)  # a size, a body, a position
    (layout.queue("GoldenNormal", 0) / "00000000000000000000").unlink()
    peer = rebuilt_in_one_process(layout, tmp_path / "peer")
    run(spark, layout, discardOld=True, maxBytesPerPartition=65536)
    assert content(layout.consume_queues) == content(peer.consume_queues)
    assert index(layout) == index(peer)
    assert not [path for path in layout.root.iterdir() if path.suffix]


def test_a_log_that_lost_its_first_file_gives_queues_with_fillers(spark: SparkSession, tmp_path: Path) -> None:
    layout = unpack("killed", tmp_path)
    (layout.commit_log / "00000000000000000000").unlink()
    peer = rebuilt_in_one_process(layout, tmp_path / "peer")
    run(spark, layout, queues=True, index=False)
    assert content(layout.consume_queues) == content(peer.consume_queues)
    assert not (layout.root / "index.old").exists()


def test_a_rebuild_that_fails_or_is_killed_leaves_the_store_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    layout = unpack("clean", tmp_path)
    before = content(layout.root)

    def fail(progress: dict[str, object]) -> None:
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        rebuild.run(spark, {"storePath": str(layout.root)}, fail)
    assert content(layout.root) == {Path("lock"): b"lock", **before}
    for left in ("consumequeue.new", "rebuild.work"):  # left by a rebuild that was killed
        (layout.root / left).mkdir()
        (layout.root / left / "half").write_bytes(b"half")
    run(spark, layout, discardOld=True)
    assert content(layout.consume_queues) == content(layout.consume_queues)
    assert not [path for path in layout.root.iterdir() if path.suffix]


def test_directories_are_exchanged_in_one_step_and_both_are_kept(tmp_path: Path) -> None:
    new, target = tmp_path / "new", tmp_path / "target"
    for path in (new, target):
        path.mkdir()
        (path / path.name).touch()
    assert replace_directory(new, target)
    assert (target / "new").exists()
    assert (new / "target").exists()
    assert not replace_directory(new, tmp_path / "other")


def test_a_rebuild_that_is_not_possible_is_refused_with_a_reason(spark: SparkSession, tmp_path: Path) -> None:
    layout = unpack("clean", tmp_path)
    with held_by_another_process(layout.lock), pytest.raises(StoreInUse):
        run(spark, layout)
    (layout.root / "index.old").mkdir()
    cases: list[tuple[type[ArianeError], str, dict[str, object]]] = [
        (StoreMismatch, "earlier rebuild", {}),
        (StoreMismatch, "already exists", {"targetPath": layout.root}),
        (StoreMismatch, "does not exist", {"storePath": tmp_path / "nothing"}),
        (SettingsError, "nothing to rebuild", {"queues": False, "index": False}),
        (SettingsError, "did you mean storePath", {"storePth": "x"}),
    ]
    for kind, reason, options in cases:
        with pytest.raises(kind, match=reason):
            run(spark, layout, **options)
    with pytest.raises(SettingsError, match="needs the option storePath"):
        rebuild.run(spark, {}, lambda progress: None)


def _record_offsets(layout: Layout) -> list[int]:
    files = list_files(RealDisk(), layout.commit_log)[:1]
    return [item.offset for item in walk_files(RealDisk(), files) if isinstance(item.verdict, RecordView)]
