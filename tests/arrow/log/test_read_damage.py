"""Missing and damaged files: reported, without the loss of other records."""

from pathlib import Path

import pytest

from ariane.arrow.log.plan import plan_log
from ariane.arrow.log.read import ReadReport
from ariane.arrow.log.split import ScanStrategy
from ariane.errors import StoreMismatch
from tests.arrow.log_fixtures import bodies, fill, read_store, rows_of_plan, text
from tests.store.golden_stores import flip, overwrite

BOTH = ["body", "topic", "queueId", "queueOffset", "physicalOffset"]


def test_a_damaged_index_is_not_used(tmp_path: Path) -> None:
    fill(tmp_path)
    for path in (tmp_path / "index").iterdir():
        overwrite(path, 40, b"\x7f" * 64)
    result = bodies(read_store(tmp_path, ["body"], keys=["k3"]))
    assert result == [text(number) for number in range(200) if number % 7 == 3]


def test_a_missing_file_in_the_middle_is_reported_and_the_others_are_read(tmp_path: Path) -> None:
    fill(tmp_path)
    files = sorted((tmp_path / "commitlog").iterdir())
    files[1].unlink()
    plan = plan_log(tmp_path)
    assert plan.gaps == [(8192, 16384)]
    rows = rows_of_plan(plan, ["physicalOffset"])
    assert rows
    assert not [row for row in rows if 8192 <= row["physicalOffset"] < 16384]
    with pytest.raises(StoreMismatch, match="no file of the commit log contains offset"):
        rows_of_plan(plan_log(tmp_path, topics=["rare"]), ["body"])


def test_files_that_retention_removed_after_planning_are_an_error(tmp_path: Path) -> None:
    fill(tmp_path)
    plans = [plan_log(tmp_path), plan_log(tmp_path, topics=["rare"])]
    sorted((tmp_path / "commitlog").iterdir())[0].unlink()
    for plan in plans:
        with pytest.raises(StoreMismatch):
            rows_of_plan(plan, ["body"])
    assert plan_log(tmp_path).begin == 8192
    assert len(read_store(tmp_path, ["body"])) > 100
    assert 0 < len(read_store(tmp_path, ["body"], topics=["rare"])) < 50  # the queues still list deleted records


def test_a_damaged_record_is_reported_by_every_scan_strategy(tmp_path: Path) -> None:
    fill(tmp_path)
    row = read_store(tmp_path, BOTH)[8]
    assert row["topic"] == "rare"
    flip(sorted((tmp_path / "commitlog").iterdir())[0], row["physicalOffset"] + 5)
    for topics, count in ((None, 199), (["rare"], 49)):
        report = ReadReport()
        rows = rows_of_plan(plan_log(tmp_path, topics=topics), ["body"], report)
        assert len(rows) == count
        assert [bad.position for bad in report.bad] == [row["physicalOffset"]]
        assert report.bad_count == 1
        assert "which no record has" in report.bad[0].reason


def test_an_entry_that_leads_to_another_record_is_reported(tmp_path: Path) -> None:
    fill(tmp_path)
    rows = [row for row in read_store(tmp_path, BOTH) if (row["topic"], row["queueId"]) == ("rare", 0)]
    queue = tmp_path / "consumequeue" / "rare" / "0"
    file = sorted(queue.iterdir())[0]
    second = file.read_bytes()[20:32]
    overwrite(file, 40, second)  # the third entry names the second record
    overwrite(file, 60, (rows[3]["physicalOffset"] + 1).to_bytes(8, "big"))  # and the fourth one the middle of one
    report = ReadReport()
    assert len(rows_of_plan(plan_log(tmp_path, topics=["rare"]), ["body"], report)) == 48
    assert [bad.position for bad in report.bad] == [rows[3]["physicalOffset"] + 1, rows[1]["physicalOffset"]]
    assert report.bad[1].reason == "a record that is not the one that the queue's entry names"


def test_only_the_first_bad_records_are_kept_but_all_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ariane.arrow.log.read._BAD_KEPT", 3)
    fill(tmp_path)
    for row in read_store(tmp_path, BOTH)[:10:2]:
        flip(sorted((tmp_path / "commitlog").iterdir())[0], row["physicalOffset"] + 5)
    report = ReadReport()
    assert len(rows_of_plan(plan_log(tmp_path), ["body"], report)) == 195
    assert (report.bad_count, len(report.bad)) == (5, 3)


def test_a_directory_that_is_not_a_store_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(StoreMismatch, match="is not a directory: give the root directory of the store"):
        plan_log(tmp_path / "nowhere")
    with pytest.raises(StoreMismatch, match="is a light queue"):
        plan_log(tmp_path, topics=["%LMQ%device"], commit_log=tmp_path)


def test_queues_of_another_kind_are_not_used(tmp_path: Path) -> None:
    """As 5.x has them: then the log is read, which says everything."""
    fill(tmp_path)
    for path in (tmp_path / "consumequeue" / "rare" / "0").iterdir():
        path.write_bytes(bytes(range(200)))
    plan = plan_log(tmp_path, topics=["rare"])
    assert {split.strategy for split in plan.splits} == {ScanStrategy.SCAN}
    assert bodies(rows_of_plan(plan, ["body"])) == [text(number) for number in range(0, 200, 4)]
