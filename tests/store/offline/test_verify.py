"""Verification of whole stores: sound ones of Apache and of Ariane, and every kind of damage."""

import errno
import random
import shutil
from functools import partial
from pathlib import Path

import pytest

from ariane.errors import StoreMismatch
from ariane.store.checkpoint import Checkpoint, write_checkpoint
from ariane.store.commit_log.scan import LocatedRecord, list_files, walk_records
from ariane.store.config.journal import Journal
from ariane.store.config.table_file import save_config
from ariane.store.consume_queue.entry import ENTRY
from ariane.store.disk import RealDisk, RealFile
from ariane.store.index.entries import entries_position
from ariane.store.layout import Layout
from ariane.store.offline.annotate_record import annotate_record
from ariane.store.offline.verify import verify_store
from ariane.store.offline.verify_report import FAULTS_KEPT, Report
from ariane.testing import FakeClock
from tests.simulation.simulated_disk import PowerCut, SimulatedDisk
from tests.store.golden_stores import flip, held_by_another_process, overwrite, unpack
from tests.store.offline.checksum_coverage import UNCOVERED, covered_positions
from tests.store.stores import ROOT, draft, opened, put

DISK = RealDisk()
PAGE = Path(__file__).parents[3] / "docs" / "data_files.md"


@pytest.fixture
def clean(tmp_path: Path) -> Layout:
    return unpack("clean", tmp_path)


@pytest.fixture
def killed(tmp_path: Path) -> Layout:
    return unpack("killed", tmp_path)


def check(layout: Layout) -> Report:
    return verify_store(DISK, layout)


def records(layout: Layout) -> list[LocatedRecord]:
    return list(walk_records(DISK, list_files(DISK, layout.commit_log)))


def whats(report: Report) -> str:
    return "\n".join(fault.what for fault in report.faults)


def crash(layout: Layout) -> None:
    layout.abort.write_bytes(b"")


# --- sound stores


def test_apaches_store_after_a_clean_stop_is_sound(clean: Layout) -> None:
    report = check(clean)
    assert report.is_sound
    (uncovered,) = report.notes
    assert uncovered.startswith("block checksums cover 0 of 724533 bytes of the log")
    summary = report.summary
    assert (summary.log_bytes, summary.summed_bytes) == (724533, 0)
    assert (summary.records, summary.queue_entries, summary.index_entries) == (1914, 1914, 3940)
    assert (summary.topics, summary.queues, summary.index_files) == (13, 54, 1)
    assert (summary.log_begins, summary.log_ends) == (0, 724533)
    assert (summary.oldest_ms, summary.newest_ms) == (1794777979389, 1794778102879)
    assert (summary.files, summary.bytes) == (82, 1020891)


def test_apaches_store_after_a_kill_is_sound_and_explained(killed: Layout) -> None:
    report = check(killed)
    assert report.is_sound
    abort, ready, uncovered = report.notes
    assert ["abort" in abort, "created ahead" in ready, "block checksums cover 0 of" in uncovered] == [True, True, True]
    assert (report.summary.records, report.summary.queue_entries, report.summary.index_entries) == (3826, 3826, 7876)


def test_our_own_store_after_a_clean_stop_is_sound() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    for number in range(40):
        put(store, draft(bytes(500), queue_id=number % 3, key=f"k{number}", tag="t"))
    store.close()
    report = verify_store(disk, Layout.under(ROOT))
    assert report.is_sound
    assert report.notes == []
    assert (report.summary.records, report.summary.queue_entries, report.summary.index_entries) == (40, 40, 40)


@pytest.mark.parametrize("seed", range(20))
def test_after_a_power_cut_nothing_is_a_fault_that_recovery_repairs(seed: int) -> None:
    rng = random.Random(seed)
    disk = SimulatedDisk()
    disk.crash_at(rng.randrange(30, 140))
    with pytest.raises(PowerCut):
        fill(disk)
    after = disk.cut_power(rng)
    if "commitlog" in after.names(ROOT):
        assert verify_store(after, Layout.under(ROOT)).is_sound
    opened(after, boot="boot-2").close()
    assert verify_store(after, Layout.under(ROOT)).is_sound


def fill(disk: SimulatedDisk) -> None:
    store = opened(disk, FakeClock())
    for number in range(200):
        put(store, draft(bytes(700), queue_id=number % 3, key=f"k{number}"))
        store.flusher.flushed(store.flusher.sync_now())
        if number % 3 == 2:
            store.make_durable()
        if number % 2:
            store.derived.write()


def test_a_new_store_has_nothing_and_is_sound(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    report = check(Layout.under(tmp_path))
    assert report.is_sound
    assert report.summary.records == 0


def test_a_directory_that_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreMismatch, match="--commit-log"):
        check(Layout.under(tmp_path))


def test_a_commit_log_elsewhere_is_found(clean: Layout, tmp_path: Path) -> None:
    elsewhere = shutil.move(clean.commit_log, tmp_path / "fast-disk")
    report = check(Layout.under(clean.root, Path(elsewhere)))
    assert report.is_sound
    assert report.summary.records == 1914


def test_nothing_is_written(clean: Layout) -> None:
    def state() -> dict[Path, tuple[int, int]]:
        return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in clean.root.rglob("*")}

    before = state()
    check(clean)
    assert state() == before


def test_a_running_broker_is_named_because_the_end_moves(killed: Layout) -> None:
    with held_by_another_process(killed.lock) as process:
        assert f"process {process} runs" in check(killed).notes[0]


def test_entries_of_records_that_retention_removed_are_no_faults(clean: Layout) -> None:
    (clean.commit_log / "00000000000000000000").unlink()
    report = check(clean)
    assert report.is_sound
    assert report.summary.log_begins == 262144


def test_records_of_a_topic_that_was_deleted_are_a_note(clean: Layout) -> None:
    shutil.rmtree(clean.consume_queues / "GoldenSql")
    assert not check(clean).is_sound
    topics = clean.config / "topics.json"
    topics.write_text(topics.read_text().replace("GoldenSql", "GoldenOther"))
    report = check(clean)
    assert report.is_sound
    assert len([note for note in report.notes if "deleted" in note]) == 4


def test_records_of_a_queue_that_was_made_again_are_a_note() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    put(store, *(draft(b"old") for _ in range(30)))
    store.derived.write()
    store.components.queues.delete_topic("orders")
    put(store, *(draft(b"new") for _ in range(5)))
    store.close()
    report = verify_store(disk, Layout.under(ROOT))
    assert report.is_sound, report.faults
    assert ["30 records are of a queue that was deleted" in note for note in report.notes] == [True]


# --- damage


def test_any_bit_that_a_check_covers_is_missed_by_none(clean: Layout) -> None:
    rng = random.Random(498)
    positions = [*rng.sample(covered_positions(clean), 100), *_derived_positions(clean, rng)]
    for path, position in positions:
        bit = rng.randrange(8)
        flip(path, position, bit)
        assert not check(clean).is_sound, (path, position, bit)
        flip(path, position, bit)
    assert len(positions) == 200
    assert check(clean).is_sound


def _derived_positions(layout: Layout, rng: random.Random) -> list[tuple[Path, int]]:
    queues = [path for path in layout.consume_queues.rglob("*") if path.is_file()]
    (index,) = layout.index.iterdir()
    in_use = [*range(entries_position(1000)), *range(entries_position(1000) + 20, entries_position(1000) + 20 * 3941)]
    return [(rng.choice(queues), rng.randrange(2000)) for _ in range(50)] + [
        (index, rng.choice(in_use)) for _ in range(50)
    ]


@pytest.mark.parametrize("name", UNCOVERED)
def test_what_no_check_covers_is_what_the_page_says(clean: Layout, name: str) -> None:
    record = records(clean)[3]
    field = next(field for field in annotate_record(record.raw, record.view, record.position) if field.name == name)
    flip(record.file.path, field.position + (0 if name.endswith("Host") else len(field.raw) - 1), 1)
    assert check(clean).is_sound
    assert f"`{name}`" in PAGE.read_text(encoding="utf-8").partition("What no check covers")[2]


def test_a_damaged_body_is_reported_with_its_place_and_its_fix(clean: Layout) -> None:
    record = records(clean)[700]
    flip(record.file.path, record.position + 90)
    (fault,) = check(clean).faults
    assert fault.file == f"commitlog/{record.file.path.name}"
    assert fault.position == record.position
    assert "checksum" in fault.what
    assert "restore" in fault.cure


def test_a_record_that_claims_another_place_is_reported(clean: Layout) -> None:
    record = records(clean)[3]
    flip(record.file.path, record.position + 35)
    assert f"says it is at {record.view.physical_offset ^ 1}" in whats(check(clean))


def test_a_message_that_turns_into_a_prepared_one_is_reported(clean: Layout) -> None:
    record = records(clean)[0]
    flip(record.file.path, record.position + 39, 2)
    assert "prepared or rolled back" in whats(check(clean))


def test_a_port_that_no_host_has_is_reported(clean: Layout) -> None:
    record = records(clean)[0]
    flip(record.file.path, record.position + 52)
    assert "port above 65535" in whats(check(clean))


def test_properties_that_are_no_text_are_reported(clean: Layout) -> None:
    record = records(clean)[0]
    flip(record.file.path, record.position + record.view.size - 1, 7)
    assert "not UTF-8" in whats(check(clean))


def test_a_hole_in_the_log_is_reported_with_all_that_led_there(clean: Layout) -> None:
    lost = records(clean)[10:13]
    overwrite(lost[0].file.path, lost[0].position, bytes(sum(record.view.size for record in lost)))
    report = check(clean)
    assert "zeros: nothing was written here" in report.faults[0].what
    assert sum("no valid record at" in fault.what for fault in report.faults) == 3
    assert all("rebuild" in fault.cure for fault in report.faults if fault.file.startswith("consumequeue"))


def test_a_blank_record_of_the_wrong_length_is_reported(clean: Layout) -> None:
    flip(clean.commit_log / "00000000000000000000", 261980 + 3)
    assert "a blank record of 165 bytes, 164 are left" in whats(check(clean))


def test_a_missing_commit_log_file_is_reported(clean: Layout) -> None:
    (clean.commit_log / "00000000000000262144").unlink()
    assert "00000000000000262144 is missing" in whats(check(clean))


def test_a_file_of_another_size_is_reported(clean: Layout) -> None:
    with (clean.commit_log / "00000000000000000000").open("r+b") as file:
        file.truncate(100_000)
    assert "100000 bytes, the other files have 262144" in whats(check(clean))


def test_a_missing_queue_file_is_reported(clean: Layout) -> None:
    (clean.queue("GoldenNormal", 0) / "00000000000000002000").unlink()
    assert "00000000000000002000 is missing" in whats(check(clean))


def test_a_foreign_file_is_a_note(clean: Layout) -> None:
    (clean.commit_log / "notes.txt").write_text("mine")
    report = check(clean)
    assert report.is_sound
    assert "notes.txt" in report.notes[0]


def test_what_no_check_knows_is_named(clean: Layout) -> None:
    (clean.root / "batchconsumequeue").mkdir()
    assert check(clean).notes[0] == "unknown files, not checked: batchconsumequeue"


def test_a_record_may_begin_right_behind_a_hole_of_the_file(clean: Layout) -> None:
    lost = records(clean)[5]
    data = lost.file.path.read_bytes()
    following = next(r for r in records(clean) if r.position >= 8192)
    with lost.file.path.open("wb") as file:  # a sparse copy: blocks of zeros were not written
        file.write(data[: lost.position])
        file.seek(following.position)
        file.write(data[following.position :])
    faults = [fault for fault in check(clean).faults if fault.file.startswith("commitlog")]
    assert [fault.position for fault in faults] == [lost.position]


def test_a_torn_record_at_the_end_is_a_note_after_a_crash(killed: Layout) -> None:
    last = records(killed)[-1]
    overwrite(last.file.path, last.position + last.view.size, last.raw[:100])
    report = check(killed)
    assert report.is_sound
    assert any("bytes after the last record that are not zero" in note for note in report.notes)


def test_what_an_old_recovery_left_behind_the_end_is_a_note(clean: Layout) -> None:
    last = records(clean)[-1]
    overwrite(last.file.path, last.position + last.view.size + 1000, b"left over")
    report = check(clean)
    assert report.is_sound
    assert "new records overwrite it" in report.notes[0]


def test_the_last_record_damaged_after_a_clean_stop_is_a_fault(clean: Layout) -> None:
    last = records(clean)[-1]
    flip(last.file.path, last.position + 4)
    assert "queues point behind it" in whats(check(clean))


def test_a_queue_that_lags_behind_is_a_note_after_a_crash_and_a_fault_otherwise(clean: Layout) -> None:
    overwrite(clean.queue("GoldenSql", 1) / "00000000000000000000", 20 * 20, bytes(20 * 5))
    report = check(clean)
    assert "5 records are not in the queue" in whats(report)
    assert report.faults[0].position == 400
    crash(clean)
    report = check(clean)
    assert report.is_sound
    assert any("5 records are not in the queue" in note for note in report.notes)


def test_a_queue_ahead_of_the_log_is_a_note_after_a_crash_and_a_fault_otherwise(clean: Layout) -> None:
    overwrite(clean.queue("GoldenSql", 1) / "00000000000000000000", 25 * 20, ENTRY.pack(724533, 200, 0))
    assert "1 entries point beyond the end of the log" in whats(check(clean))
    crash(clean)
    assert check(clean).is_sound


def test_an_entry_of_another_queue_is_reported(clean: Layout) -> None:
    queues = [clean.queue("GoldenOrder", queue) / "00000000000000000000" for queue in (0, 1)]
    overwrite(queues[0], 0, queues[1].read_bytes()[:20])
    report = check(clean)
    assert {fault.position for fault in report.faults} == {0}
    assert "is of GoldenOrder, queue 1" in whats(report)


def test_a_delivery_time_that_is_no_whole_number_of_seconds_away_is_reported(clean: Layout) -> None:
    flip(clean.queue("SCHEDULE_TOPIC_XXXX", 17) / "00000000000000000000", 19)
    assert "a delivery time" in whats(check(clean))


def test_an_index_entry_that_leads_to_another_message_is_reported(clean: Layout) -> None:
    (index,) = clean.index.iterdir()
    position = entries_position(1000) + 20 * 100
    overwrite(index, position + 4, (0).to_bytes(8, "big"))
    report = check(clean)
    assert report.faults[0].position == position
    assert "the record at 0 has no key of hash" in report.faults[0].what


def test_a_chain_that_turns_in_a_circle_is_reported(clean: Layout) -> None:
    (index,) = clean.index.iterdir()
    overwrite(index, entries_position(1000) + 20 * 100 + 16, (100).to_bytes(4, "big"))
    assert "entry 100: it names 100" in whats(check(clean))


def test_an_index_that_lacks_keys_is_a_note(clean: Layout) -> None:
    shutil.rmtree(clean.index)
    report = check(clean)
    assert report.is_sound
    assert "3940 of 3940 keys" in report.notes[0]


def test_an_index_of_unknown_shape_asks_for_its_slots(clean: Layout) -> None:
    (index,) = clean.index.iterdir()
    with index.open("ab") as file:
        file.write(b"\xff" * 4)
    assert "--index-slots" in whats(check(clean))


def test_config_that_cannot_be_read_is_reported(clean: Layout) -> None:
    (clean.config / "topics.json").write_text('{"dataVersion":')
    (fault,) = check(clean).faults
    assert (fault.file, fault.position) == ("config/topics.json", 0)
    assert ".bak" in fault.cure


def test_an_empty_table_is_reported(clean: Layout) -> None:
    (clean.config / "delayOffset.json").write_bytes(b"")
    assert whats(check(clean)) == "it is empty"


@pytest.mark.parametrize("name", ["topics.json", "topics.json.bak", "tables.json", "tables.json.bak"])
def test_every_flipped_bit_and_every_missing_copy_of_a_table_is_reported(tmp_path: Path, name: str) -> None:
    put_table = partial(save_config, DISK, tmp_path / "config" / "topics.json")
    (tmp_path / "commitlog").mkdir()
    put_table(b'{"topicConfigTable":{}}')
    assert check(Layout.under(tmp_path)).is_sound
    path = tmp_path / "config" / name
    whole = path.read_bytes()
    for position in range(len(whole)):
        flip(path, position, position % 8)
        assert [fault.file for fault in check(Layout.under(tmp_path)).faults] == [f"config/{name}"]
        path.write_bytes(whole)
    path.unlink()
    assert [fault.file for fault in check(Layout.under(tmp_path)).faults] == [f"config/{name}"]


def test_a_damaged_line_of_a_journal_is_reported(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    Journal(DISK, tmp_path / "config", "consumerOffset.journal", "boot").append("orders@billing 0 126")
    assert check(Layout.under(tmp_path)).is_sound
    flip(tmp_path / "config" / "consumerOffset.journal.1", 75, 3)
    (fault,) = check(Layout.under(tmp_path)).faults
    assert (fault.file, fault.what) == ("config/consumerOffset.journal.1", "a line does not match its checksum")


def test_a_checkpoint_of_another_size_is_reported(clean: Layout) -> None:
    clean.checkpoint.write_bytes(bytes(100))
    assert "100 bytes, not 4096" in whats(check(clean))


def test_a_log_that_ends_before_what_was_durable_is_reported(clean: Layout) -> None:
    write_checkpoint(DISK, clean.checkpoint, Checkpoint(flushed_to=724534))
    assert "durable up to 724534" in whats(check(clean))
    write_checkpoint(DISK, clean.checkpoint, Checkpoint(physic_timestamp_ms=1794778102880))
    assert "the newest in the log is of 1794778102879" in whats(check(clean))


def test_faults_are_counted_beyond_those_that_are_kept(clean: Layout) -> None:
    (index,) = clean.index.iterdir()
    overwrite(index, entries_position(1000) + 20, random.Random(1).randbytes(20 * 3000))
    report = verify_store(DISK, clean, index_slots=1000)
    assert len(report.faults) == FAULTS_KEPT
    assert report.fault_count > FAULTS_KEPT


class FailingDisk(RealDisk):
    """A disk with a bad sector in some files."""

    def __init__(self, *bad: str) -> None:
        self._bad = bad

    def open(self, path: Path, *, writable: bool) -> RealFile:
        file = super().open(path, writable=writable)
        return BadFile(file.descriptor, file.size) if any(part in str(path) for part in self._bad) else file


class BadFile(RealFile):
    def read(self, length: int, position: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")


def test_a_sector_that_cannot_be_read_is_a_fault_and_not_the_end(clean: Layout) -> None:
    bad = ("commitlog/00000000000000262144", "GoldenSql/2", str(clean.index))
    report = verify_store(FailingDisk(*bad), clean)
    unreadable = {fault.file for fault in report.faults if "cannot be read: Input/output error" in fault.what}
    assert {"commitlog/00000000000000262144", "consumequeue/GoldenSql/2"} <= unreadable
    assert any(file.startswith("index/") for file in unreadable)
