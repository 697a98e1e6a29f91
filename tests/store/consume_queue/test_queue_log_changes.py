"""A queue follows the log: entries read again from it, and both ends cut with it."""

import logging
from pathlib import Path

import pytest

from ariane.errors import StoreCorrupt
from ariane.store.consume_queue.entry import ENTRY, ENTRY_BYTES, FILLER
from ariane.store.consume_queue.queue import ConsumeQueue
from tests.store.queues import (
    PER_FILE,
    RECORD_BYTES,
    bounds,
    directory,
    entry,
    file_names,
    fill,
    is_dirty,
    numbers,
    open_descriptors,
    open_queue,
    read,
)


@pytest.fixture
def queue(tmp_path: Path) -> ConsumeQueue:
    return open_queue(tmp_path)


# --- entries read from the log --------------------------------------------------------------------------------------


def test_an_entry_from_the_log_goes_to_its_offset_once(queue: ConsumeQueue) -> None:
    assert all(queue.append_at(number, *entry(number)) for number in range(12))
    assert not any(queue.append_at(number, *entry(number)) for number in range(12))
    assert numbers(queue) == list(range(12))


def test_a_queue_that_begins_past_0_has_fillers_before_it_in_its_first_file(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    assert queue.append_at(37, *entry(37))
    assert bounds(queue) == (37, 38, 3800)
    assert numbers(queue) == [37]
    queue.write()
    assert file_names(tmp_path) == [30]
    data = (directory(tmp_path) / f"{30 * ENTRY_BYTES:020d}").read_bytes()
    assert data == FILLER * 7 + ENTRY.pack(*entry(37)) + bytes(2 * ENTRY_BYTES)
    again = open_queue(tmp_path)
    assert bounds(again) == (37, 38, 3800)
    assert again.entries(36, 1) == b""


def test_a_queue_of_fillers_only_begins_where_the_log_says(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.append_at(37, *entry(37))
    queue.write()
    queue.truncate(0)
    assert bounds(queue) == (37, 37, 0)
    assert queue.append_at(55, *entry(55))
    queue.write()
    assert bounds(open_queue(tmp_path)) == (55, 56, 5600)
    assert file_names(tmp_path) == [50]


def test_offset_0_again_means_that_the_topic_was_made_anew(
    tmp_path: Path, queue: ConsumeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    fill(queue, 25)
    queue.write()
    assert queue.append_at(0, 9000, 100, 5)
    assert queue.append_at(1, 9100, 100, 6)
    assert bounds(queue) == (0, 2, 9200)
    assert "created again" in caplog.text
    queue.write()
    assert file_names(tmp_path) == [0]
    assert read(open_queue(tmp_path)) == [(9000, 100, 5), (9100, 100, 6)]


def test_another_offset_below_the_end_is_skipped(queue: ConsumeQueue, caplog: pytest.LogCaptureFixture) -> None:
    fill(queue, 25)
    with caplog.at_level(logging.ERROR):
        assert not queue.append_at(7, 9000, 100, 5)
    assert "entry skipped" in caplog.text
    assert numbers(queue) == list(range(25))


def test_entries_that_the_log_has_lost_point_to_the_next_record(
    tmp_path: Path, queue: ConsumeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    fill(queue, 8)
    with caplog.at_level(logging.ERROR):
        assert queue.append_at(12, *entry(12))
    assert "missing" in caplog.text
    assert numbers(queue) == [*range(8), 12, 12, 12, 12, 12]
    assert queue.max_physical == 1300
    assert queue.append_at(13, *entry(13))
    queue.write()
    assert numbers(open_queue(tmp_path)) == [*range(8), 12, 12, 12, 12, 12, 13]


@pytest.mark.parametrize("offset", [-1, 8 + PER_FILE + 1, 2**62])
def test_an_offset_out_of_all_proportion_is_store_corrupt(queue: ConsumeQueue, offset: int) -> None:
    fill(queue, 8)
    with pytest.raises(StoreCorrupt, match="is number"):
        queue.append_at(offset, 9000, 100, 0)
    assert numbers(queue) == list(range(8))


# --- cutting both ends ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0, 1, 9, 10, 11, 20, 24, 25, 26, 30])
def test_a_queue_is_cut_where_the_log_is(tmp_path: Path, kept: int) -> None:
    queue = open_queue(tmp_path)
    fill(queue, 25)
    queue.write()
    fill(queue, 5)
    queue.truncate(kept * RECORD_BYTES)
    assert numbers(queue) == list(range(kept))
    assert bounds(queue) == (0, kept, kept * RECORD_BYTES)
    queue.write()
    assert bounds(open_queue(tmp_path)) == (0, kept, kept * RECORD_BYTES)
    fill(queue, 30)
    assert numbers(queue) == list(range(kept + 30))
    queue.write()
    assert numbers(open_queue(tmp_path)) == list(range(kept + 30))


def test_cutting_leaves_only_zeros_behind(tmp_path: Path, queue: ConsumeQueue) -> None:
    fill(queue, 25)
    queue.write()
    queue.truncate(300)
    assert file_names(tmp_path) == [0]
    (path,) = directory(tmp_path).iterdir()
    assert path.read_bytes()[3 * ENTRY_BYTES :] == bytes(7 * ENTRY_BYTES)


def test_a_cut_through_a_record_drops_its_entry(queue: ConsumeQueue) -> None:
    fill(queue, 25)
    queue.truncate(1250)
    assert bounds(queue) == (0, 12, 1200)


def test_a_queue_cut_to_nothing_goes_on_where_it_was(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    fill(queue, 25)
    queue.write()
    queue.drop_before(2000)
    queue.truncate(0)
    assert bounds(queue) == bounds(open_queue(tmp_path)) == (20, 20, 0)
    assert queue.append(*entry(20)) == 20


@pytest.mark.parametrize(("log_min", "expected"), [(0, 0), (1, 1), (100, 1), (101, 2), (1999, 20), (2400, 24)])
def test_entries_before_the_logs_beginning_do_not_count(queue: ConsumeQueue, log_min: int, expected: int) -> None:
    fill(queue, 25)
    queue.correct_min(log_min)
    assert queue.min_offset == expected
    queue.correct_min(0)
    assert queue.min_offset == expected
    assert numbers(queue) == list(range(expected, 25))
    assert queue.entries(expected - 1, 2) == b""


def test_a_queue_whose_records_are_all_gone_is_empty_at_its_end(tmp_path: Path, queue: ConsumeQueue) -> None:
    fill(queue, 25)
    queue.write()
    assert queue.drop_before(9999) == 2
    assert bounds(queue) == (25, 25, 2500)
    assert file_names(tmp_path) == [20]
    assert queue.append(*entry(99)) == 25
    assert read(queue) == [entry(99)]


def test_files_go_when_all_their_records_are_gone(tmp_path: Path, queue: ConsumeQueue) -> None:
    fill(queue, 45)
    queue.write()
    assert queue.drop_before(950) == 1
    assert queue.drop_before(999) == 0
    assert queue.drop_before(3150) == 2
    assert file_names(tmp_path) == [30, 40]
    assert numbers(queue) == list(range(32, 45))
    again = open_queue(tmp_path)
    assert again.min_offset == 30
    again.correct_min(3150)
    assert bounds(again) == bounds(queue)


def test_the_fillers_do_not_count_wherever_the_log_begins(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.append_at(37, *entry(37))
    queue.write()
    for found in (queue, open_queue(tmp_path)):
        found.correct_min(0)
        assert found.min_offset == 37
        found.truncate(1)
        assert bounds(found) == (37, 37, 0)


def test_a_destroyed_queue_is_as_new(tmp_path: Path, queue: ConsumeQueue) -> None:
    fill(queue, 25)
    queue.write()
    fill(queue, 5)
    queue.destroy()
    assert bounds(queue) == (0, 0, 0)
    assert not is_dirty(queue)
    assert not directory(tmp_path).exists()
    assert open_descriptors(tmp_path) == 0
    fill(queue, 3)
    queue.write()
    assert numbers(open_queue(tmp_path)) == [0, 1, 2]
