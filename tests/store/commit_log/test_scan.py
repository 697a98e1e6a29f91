"""Offline scans of logs, queues and index files: resynchronisation after damage, and file sizes found by inspection."""

from itertools import pairwise
from pathlib import Path

import pytest

from ariane.errors import StoreMismatch
from ariane.store.commit_log import scan
from ariane.store.commit_log.scan import LogItem, first_nonzero, list_files, record_at, walk_files, walk_records
from ariane.store.consume_queue.entry import ENTRY, FILLER
from ariane.store.consume_queue.scan import is_filler, list_queues, queue_at
from ariane.store.disk import RealDisk
from ariane.store.index.entries import key_hash
from ariane.store.index.index import Index
from ariane.store.index.scan import list_index, open_index
from ariane.store.layout import Layout
from ariane.store.lock import lock_holder
from ariane.wire.record.read import BlankRecord, BrokenRecord, Fault, RecordView
from tests.store.golden_stores import flip, held_by_another_process, overwrite, unpack
from tests.store.stores import small
from tests.wire.golden import golden_store

DISK = RealDisk()


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return unpack("clean", tmp_path)


def items(layout: Layout, start: int = 0) -> list[LogItem]:
    return list(walk_files(DISK, list_files(DISK, layout.commit_log), start))


def offsets(layout: Layout, start: int = 0) -> list[int]:
    return [record.view.physical_offset for record in walk_records(DISK, list_files(DISK, layout.commit_log), start)]


def broken(layout: Layout) -> list[LogItem]:
    return [item for item in items(layout) if isinstance(item.verdict, BrokenRecord)]


def test_a_walk_finds_every_message_that_java_found(layout: Layout) -> None:
    assert {message["physicalOffset"] for message in golden_store("clean").messages} <= set(offsets(layout))


def test_the_items_of_a_walk_follow_each_other_without_a_gap(layout: Layout) -> None:
    found = items(layout)
    assert found[0].offset == 0
    assert all(item.offset + item.size == after.offset for item, after in pairwise(found))
    assert isinstance(found[-1].verdict, BrokenRecord)
    assert found[-1].is_zeros
    assert sum(isinstance(item.verdict, BlankRecord) for item in found) == 2


def test_windows_of_any_size_show_the_same(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [(item.offset, item.size, type(item.verdict)) for item in items(layout)]
    monkeypatch.setattr(scan, "WINDOW_BYTES", 16 * 1024)  # a little more than the largest record
    assert [(item.offset, item.size, type(item.verdict)) for item in items(layout)] == whole


def test_what_is_found_is_in_the_buffer(layout: Layout) -> None:
    log = golden_store("clean").commit_log
    for record in walk_records(DISK, list_files(DISK, layout.commit_log)):
        offset = record.view.physical_offset
        assert record.file.base + record.position == offset
        assert record.raw == log[offset : offset + record.view.size]


def test_from_inside_a_record_the_next_one_is_found(layout: Layout) -> None:
    known = offsets(layout)
    assert offsets(layout, known[5] + 1) == known[6:]
    assert offsets(layout, known[5]) == known[5:]


def test_a_walk_that_starts_behind_everything_finds_nothing(layout: Layout) -> None:
    assert offsets(layout, 10**12) == []


@pytest.mark.parametrize("window_bytes", [scan.WINDOW_BYTES, 16 * 1024])
@pytest.mark.parametrize("at", [0, 4, 28])  # size, magic: the walk must find its way back by itself
def test_after_damage_the_next_record_is_found(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, at: int, window_bytes: int
) -> None:
    monkeypatch.setattr(scan, "WINDOW_BYTES", window_bytes)
    known = offsets(layout)
    flip(layout.commit_log / "00000000000000000000", known[100] + at, 6)
    rest = known if at == 28 else known[:100] + known[101:]  # a wrong position is for the caller to see
    assert [item.offset for item in items(layout) if isinstance(item.verdict, RecordView)] == rest


def test_a_body_with_a_wrong_checksum_is_one_item_of_its_own_size(layout: Layout) -> None:
    record = next(walk_records(DISK, list_files(DISK, layout.commit_log)))
    flip(record.file.path, record.view.body_position)
    damaged = broken(layout)[0]
    assert isinstance(damaged.verdict, BrokenRecord)
    assert damaged.verdict.fault is Fault.BAD_CRC
    assert (damaged.offset, damaged.size) == (0, record.view.size)


def test_an_area_of_zeros_in_the_middle_is_one_item(layout: Layout) -> None:
    known = offsets(layout)
    overwrite(layout.commit_log / "00000000000000000000", known[10], bytes(known[20] - known[10]))
    hole = broken(layout)[0]
    assert (hole.offset, hole.size, hole.is_zeros) == (known[10], known[20] - known[10], True)


def test_a_file_without_its_blank_record_leads_to_the_next_file(layout: Layout) -> None:
    blank = next(item for item in items(layout) if isinstance(item.verdict, BlankRecord))
    flip(blank.file.path, blank.offset + 5)
    damaged = broken(layout)[0]
    assert (damaged.offset, damaged.size, damaged.is_zeros) == (blank.offset, blank.size, False)


def test_a_file_that_became_shorter_ends_the_walk_of_it(layout: Layout) -> None:
    files = list_files(DISK, layout.commit_log)
    with files[1].path.open("r+b") as file:
        file.truncate(1000)
    found = [item.offset for item in walk_files(DISK, files)]
    assert max(offset for offset in found if offset < files[2].base) < files[1].base + 1000
    assert found[-1] > files[2].base


def test_a_record_is_found_by_its_offset_and_nothing_between(layout: Layout) -> None:
    files = list_files(DISK, layout.commit_log)
    record = record_at(DISK, files, 267)
    assert record is not None
    assert record.view.physical_offset == 267
    assert record_at(DISK, files, 268) is None
    assert record_at(DISK, files, 10**12) is None


def test_names_that_are_no_offsets_are_no_files(tmp_path: Path) -> None:
    for name in ("00000000000000000000", "00000000000000000009.tmp", "lost+found", "9"):
        (tmp_path / name).write_bytes(b"x")
    assert [file.path.name for file in list_files(DISK, tmp_path)] == ["00000000000000000000"]


def test_the_first_byte_that_is_not_zero_is_found_behind_a_hole(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 24)
        file.seek((1 << 24) - 2)
        file.write(b"x")
    handle = DISK.open(path, writable=False)
    assert first_nonzero(handle, 0, 1 << 24) == (1 << 24) - 2
    assert first_nonzero(handle, 0, (1 << 24) - 2) is None
    assert first_nonzero(handle, (1 << 24) - 1, 1 << 24) is None
    handle.close()


def test_a_queue_is_read_across_its_files(layout: Layout) -> None:
    queue = queue_at(DISK, layout.queue("GoldenNormal", 0), "GoldenNormal", 0)
    messages = [m for m in golden_store("clean").messages if (m["topic"], m["queueId"]) == ("GoldenNormal", 0)]
    wanted = [message["physicalOffset"] for message in sorted(messages, key=lambda message: message["queueOffset"])]
    assert queue.read(0, 10**6)["offset"].tolist()[: len(wanted)] == wanted
    assert queue.read(95, 10)["offset"].tolist() == wanted[95:105]
    assert queue.count() == len(wanted)
    assert [(number, ENTRY.unpack(raw)[0]) for number, raw in queue.written(290)] == list(enumerate(wanted[290:], 290))


def test_a_queue_without_files_is_empty(layout: Layout) -> None:
    queue = queue_at(DISK, layout.queue("nobody", 0), "nobody", 0)
    assert (queue.first, queue.count(), list(queue.written()), queue.find(0)) == (0, 0, [], None)


def test_fillers_differ_from_entries(tmp_path: Path) -> None:
    directory = tmp_path / "orders" / "0"
    directory.mkdir(parents=True)
    (directory / "00000000000000000200").write_bytes(FILLER * 2 + ENTRY.pack(5, 100, 7) + bytes(140))
    (queue,) = list_queues(DISK, tmp_path)
    assert (queue.first, queue.count()) == (10, 3)
    assert is_filler(queue.read(10, 3)).tolist() == [True, True, False]


@pytest.mark.parametrize(("slots", "entries"), [(16, 64), (7, 200), (300, 64), (1, 50)])
def test_the_slots_of_an_index_file_are_found_out(tmp_path: Path, slots: int, entries: int) -> None:
    layout = Layout.under(tmp_path)
    settings = small(tmp_path, index_slots=slots, index_entries=entries)
    index = Index.open(DISK, layout, settings, lambda: "20261115212619400")
    index.put([(offset, 1000, "orders", (f"order-{offset}",)) for offset in range(1, 40)])
    index.close()
    (path,) = list_index(DISK, layout.index)
    found = open_index(DISK, path)
    assert (found.slots, found.capacity, found.end) == (slots, entries, 40)
    assert 7 in [number for number, _ in found.chain(key_hash("orders", "order-7"))]


def test_an_empty_index_file_has_the_usual_shape(tmp_path: Path) -> None:
    path = tmp_path / "20261115212619400"
    path.write_bytes(bytes(40 + 84 * 10))
    assert open_index(DISK, path).slots == 10


def test_slots_that_cannot_be_found_out_must_be_given(tmp_path: Path) -> None:
    path = tmp_path / "20261115212619400"
    path.write_bytes(bytes(36) + (9).to_bytes(4, "big") + b"\xff" * 1000)
    with pytest.raises(StoreMismatch, match="--index-slots"):
        open_index(DISK, path)
    assert open_index(DISK, path, 5).slots == 5


def test_a_file_that_is_too_short_is_no_index(tmp_path: Path) -> None:
    path = tmp_path / "20261115212619400"
    path.write_bytes(bytes(40))
    with pytest.raises(StoreMismatch, match="at least"):
        open_index(DISK, path)


def test_a_chain_that_turns_back_ends(layout: Layout) -> None:
    (path,) = list_index(DISK, layout.index)
    index = open_index(DISK, path)
    wanted = key_hash("GoldenNormal", "key-4")
    numbers = [number for number, _ in index.chain(wanted)]
    overwrite(path, index.position(numbers[3]) + 16, numbers[1].to_bytes(4, "big"))
    assert [number for number, _ in index.chain(wanted)] == numbers[:4]


def test_the_holder_of_a_lock_is_named(layout: Layout) -> None:
    assert lock_holder(layout.lock) is None
    with held_by_another_process(layout.lock) as process:
        assert lock_holder(layout.lock) == process
    assert lock_holder(layout.root / "nothing") is None
