"""Rebuilding queues and index from the log: the result has the bytes that Apache's broker had written."""

import shutil
from pathlib import Path

import pytest

from ariane.errors import StoreInUse, StoreMismatch
from ariane.store.disk import RealDisk
from ariane.store.layout import Layout
from ariane.store.offline.rebuild import Rebuilt, rebuild_store
from ariane.store.offline.verify import verify_store
from ariane.store.offline.verify_report import infer_file_sizes
from tests.store.golden_stores import held_by_another_process, overwrite, unpack

DISK = RealDisk()


@pytest.fixture(params=["clean", "killed"])
def layout(request: pytest.FixtureRequest, tmp_path: Path) -> Layout:
    return unpack(request.param, tmp_path)


def rebuild(layout: Layout, *, queues: bool = True, index: bool = True, discard_old: bool = False) -> Rebuilt:
    progress_bytes: list[int] = []
    settings = infer_file_sizes(DISK, layout)
    rebuilt = rebuild_store(
        DISK, layout, settings, queues=queues, index=index, discard_old=discard_old, progress=progress_bytes.append
    )
    assert sum(progress_bytes) == sum(path.stat().st_size for path in layout.commit_log.iterdir())
    return rebuilt


def content(directory: Path) -> dict[Path, bytes]:
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_the_shape_of_a_store_is_read_from_its_files(layout: Layout) -> None:
    settings = infer_file_sizes(DISK, layout)
    assert (settings.queue_segment_bytes, settings.index_slots, settings.index_entries) == (2000, 1000, 4000)


def test_a_store_without_queues_and_index_has_the_default_shape(layout: Layout) -> None:
    shutil.rmtree(layout.consume_queues)
    shutil.rmtree(layout.index)
    settings = infer_file_sizes(DISK, layout, index_slots=77)
    assert (settings.queue_segment_bytes, settings.index_slots, settings.index_entries) == (6_000_000, 77, 20_000_000)


def test_rebuilt_queues_and_index_are_byte_for_byte_apaches(layout: Layout) -> None:
    queues, index = content(layout.consume_queues), content(layout.index)
    rebuilt = rebuild(layout)
    assert content(layout.consume_queues) == queues
    assert sorted(content(layout.index).values()) == sorted(index.values())  # files are named by their time of making
    assert (rebuilt.queues, rebuilt.queue_entries, rebuilt.index_files) == (54, rebuilt.records, len(index))


def test_the_old_ones_are_kept_until_they_are_not_wanted(layout: Layout) -> None:
    queues = content(layout.consume_queues)
    rebuild(layout)
    assert content(layout.root / "consumequeue.old") == queues
    with pytest.raises(StoreMismatch, match="earlier rebuild"):
        rebuild(layout)
    rebuild(layout, discard_old=True)
    assert not [path.name for path in layout.root.iterdir() if path.suffix in (".old", ".new")]


def test_only_what_was_asked_for_is_replaced(layout: Layout) -> None:
    (old,) = {path.stat().st_ino for path in [layout.consume_queues]}
    rebuild(layout, queues=False)
    assert layout.consume_queues.stat().st_ino == old
    assert (layout.root / "index.old").exists()
    assert not (layout.root / "consumequeue.old").exists()


def test_a_rebuild_repairs_what_verify_finds_in_queues_and_index(layout: Layout) -> None:
    for path in layout.queue("GoldenNormal", 1).iterdir():
        overwrite(path, 100, bytes(1000))
    for path in layout.index.iterdir():
        overwrite(path, 5000, b"\1" * 1000)
    assert not verify_store(DISK, layout).is_sound or verify_store(DISK, layout).is_unclean
    rebuild(layout, discard_old=True)
    report = verify_store(DISK, layout)
    assert report.is_sound
    assert not [note for note in report.notes if "next start fixes" in note]


def test_queues_and_index_that_are_gone_come_back(layout: Layout) -> None:
    queues = content(layout.consume_queues)
    settings = infer_file_sizes(DISK, layout)
    shutil.rmtree(layout.consume_queues)
    shutil.rmtree(layout.index)
    rebuild_store(DISK, layout, settings, queues=True, index=True, discard_old=False, progress=lambda count: None)
    assert content(layout.consume_queues) == queues


def test_what_an_interrupted_rebuild_left_is_cleared_away(layout: Layout) -> None:
    half = layout.root / "consumequeue.new" / "orders" / "0"
    half.mkdir(parents=True)
    (half / "00000000000000000000").write_bytes(b"half")
    queues = content(layout.consume_queues)
    rebuild(layout)
    assert content(layout.consume_queues) == queues


def test_a_store_in_use_is_left_alone(layout: Layout) -> None:
    before = content(layout.root)
    with held_by_another_process(layout.lock), pytest.raises(StoreInUse):
        rebuild(layout)
    assert content(layout.root) == before


def test_a_rebuild_that_fails_leaves_the_old_ones_in_place(layout: Layout) -> None:
    before = content(layout.root)

    def fail(count: int) -> None:
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        rebuild_store(
            DISK, layout, infer_file_sizes(DISK, layout), queues=True, index=True, discard_old=False, progress=fail
        )
    assert content(layout.root) == before


def test_queues_are_rebuilt_whatever_the_index_looks_like(layout: Layout) -> None:
    for path in layout.index.iterdir():
        path.write_bytes(b"\xff" * 1000)
    with pytest.raises(StoreMismatch, match="--index-slots"):
        infer_file_sizes(DISK, layout)
    settings = infer_file_sizes(DISK, layout, with_index=False)
    rebuilt = rebuild_store(
        DISK, layout, settings, queues=True, index=False, discard_old=False, progress=lambda count: None
    )
    assert (rebuilt.queues, rebuilt.index_files) == (54, 0)


def test_a_record_whose_properties_are_no_text_is_queued_without_tags_and_reported(
    layout: Layout, caplog: pytest.LogCaptureFixture
) -> None:
    overwrite(layout.commit_log / "00000000000000000000", 266, b"\xff")  # the last byte of its properties
    rebuild(layout)
    (warning,) = [record for record in caplog.records if record.message == "record without tags and keys"]
    assert "not UTF-8" in vars(warning)["reason"]


def test_a_log_that_does_not_begin_at_0_gives_queues_with_fillers(layout: Layout) -> None:
    (layout.commit_log / "00000000000000000000").unlink()
    rebuild(layout, discard_old=True)
    assert verify_store(DISK, layout).is_sound
