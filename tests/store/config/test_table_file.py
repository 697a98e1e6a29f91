"""Tables and their copies: across crashes, damage, removal and edits by hand."""

import logging
import random
from pathlib import Path

import pytest

from ariane.errors import StoreCorrupt
from ariane.store.config.table_file import (
    CopyState,
    backup_of,
    listed_tables,
    load_config,
    read_config,
    read_copy,
    rejected_of,
    save_config,
    with_checksum,
)
from ariane.store.disk import RealDisk, read_all, replace_all
from tests.simulation.simulated_disk import PowerCut, SimulatedDisk

PATH = Path("/store/config/topics.json")
COPY = backup_of(PATH)


def saved(content: bytes = b'{"a":1,"b":{"c":[1,2,3]}}') -> SimulatedDisk:
    disk = SimulatedDisk()
    save_config(disk, PATH, content)
    return disk


def test_a_table_is_saved_twice_with_a_checksum() -> None:
    disk = SimulatedDisk()
    assert load_config(disk, PATH) is None
    save_config(disk, PATH, b'{"a":1}')
    save_config(disk, PATH, b'{"a":2}')
    names = ["tables.json", "tables.json.bak", "topics.json", "topics.json.bak"]
    assert disk.names(PATH.parent) == names
    assert load_config(disk, PATH) == {"a": 2}
    assert load_config(disk, COPY) == {"a": 2}
    assert (read_all(disk, PATH, 100) or b"").startswith(b'{"arianeCrc32":"')


@pytest.mark.parametrize("content", [b"{}", b"{ }", b'{"a":1}', b'{ "a":1}', b'{"offsetTable":{"T@g":{0:125}}}'])
def test_a_table_with_a_checksum_is_read_back(content: bytes) -> None:
    copy = read_copy(saved(content), PATH)
    assert copy.state is CopyState.INTACT


@pytest.mark.parametrize("key", [b'"a"', b"0"])
def test_a_table_may_be_longer_than_any_frame(key: bytes) -> None:
    """100,000 topics with long names take 20 MiB: what was saved must be read at the next start."""
    disk = saved(b'{"table":{%s:"%s"}}' % (key, bytes(17 * 1024 * 1024).replace(b"\0", b"x")))
    table = load_config(disk, PATH)
    assert isinstance(table, dict)
    assert len(table["table"].popitem()[1]) == 17 * 1024 * 1024


def test_every_flipped_bit_of_a_table_is_detected_and_the_copy_is_used(caplog: pytest.LogCaptureFixture) -> None:
    expected = {"a": 1, "b": {"c": [1, 2, 3]}}
    size = saved().size(PATH) or 0
    for position in range(size):
        for bit in range(8):
            disk = saved()
            disk.flip_bit(PATH, position, bit)
            caplog.clear()
            assert load_config(disk, PATH) == expected, (position, bit)
            assert "its copy is used" in caplog.text, (position, bit)
            assert disk.size(rejected_of(PATH)) == size
            caplog.clear()
            assert load_config(disk, PATH) == expected
            assert not caplog.text  # it was repaired


def test_a_truncated_table_is_replaced_by_its_copy() -> None:
    whole = with_checksum(b'{"a":1,"b":{"c":[1,2,3]}}')
    for length in range(len(whole)):
        disk = saved()
        replace_all(disk, PATH, whole[:length])
        assert load_config(disk, PATH) == {"a": 1, "b": {"c": [1, 2, 3]}}


def test_a_removed_table_is_replaced_by_its_copy_and_the_other_way_round(caplog: pytest.LogCaptureFixture) -> None:
    for lost, other, logged in ((PATH, COPY, "a table is missing"), (COPY, PATH, "not intact")):
        disk = saved(b'{"a":1}')
        disk.remove(lost)
        caplog.clear()
        assert load_config(disk, PATH) == {"a": 1}
        assert logged in caplog.text
        assert read_all(disk, lost, 100) == read_all(disk, other, 100)


@pytest.mark.parametrize(
    "table", [b"", b"{}", b'{"a":1}', with_checksum(b'{"a":2}', 2), with_checksum(b'{"a":2}', 2)[:-2]]
)
@pytest.mark.parametrize("copy", [b"", b'{"a":3}', with_checksum(b'{"a":4}', 1), with_checksum(b'{"a":4}', 3)])
def test_a_tool_reads_the_table_that_a_broker_would_load(table: bytes, copy: bytes, tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_bytes(table)
    backup_of(path).write_bytes(copy)
    read = read_config(RealDisk(), path)
    assert (path.read_bytes(), backup_of(path).read_bytes()) == (table, copy)
    try:
        loaded = load_config(RealDisk(), path)
    except StoreCorrupt:
        loaded = None
    assert read == loaded


def test_an_old_table_does_not_replace_a_newer_copy(caplog: pytest.LogCaptureFixture) -> None:
    disk = saved(b'{"a":1}')
    old = read_all(disk, PATH, 100) or b""
    save_config(disk, PATH, b'{"a":2}')
    newest = read_all(disk, PATH, 100)
    replace_all(disk, PATH, old)
    assert load_config(disk, PATH) == {"a": 2}
    assert "a table is older than its copy" in caplog.text
    assert read_all(disk, PATH, 100) == read_all(disk, COPY, 100) == newest
    replace_all(disk, COPY, old)
    assert load_config(disk, PATH) == {"a": 2}
    assert read_all(disk, COPY, 100) == newest


def test_saving_what_is_there_writes_nothing() -> None:
    disk = saved(b'{"a":1}')
    before = read_all(disk, PATH, 100)
    save_config(disk, PATH, b'{"a":1}')
    assert read_all(disk, PATH, 100) == before


def test_a_damaged_copy_is_written_again(caplog: pytest.LogCaptureFixture) -> None:
    disk = saved(b'{"a":1}')
    disk.flip_bit(COPY, 30, 2)
    assert load_config(disk, PATH) == {"a": 1}
    assert "not intact" in caplog.text
    assert read_copy(disk, COPY).state is CopyState.INTACT


def test_without_an_intact_copy_the_start_is_refused_with_files_and_fix() -> None:
    disk = saved()
    disk.flip_bit(PATH, 40, 0)
    disk.flip_bit(COPY, 40, 0)
    with pytest.raises(StoreCorrupt, match=r"topics\.json: .*topics\.json\.bak: .*ariane store accept-config /store"):
        load_config(disk, PATH)


def test_a_table_that_was_removed_with_its_copy_is_missed() -> None:
    disk = saved()
    disk.remove(PATH)
    disk.remove(COPY)
    with pytest.raises(StoreCorrupt, match=r"topics\.json and topics\.json\.bak are missing: restore"):
        load_config(disk, PATH)
    assert load_config(disk, PATH.with_name("other.json")) is None


def test_the_list_of_tables_survives_damage_of_one_copy() -> None:
    disk = saved()
    save_config(disk, PATH.with_name("other.json"), b"{}")
    for name in ("tables.json", "tables.json.bak"):
        disk.flip_bit(PATH.with_name(name), 35, 1)
        assert listed_tables(disk, PATH.parent) == (["other.json", "topics.json"] if name == "tables.json" else [])
    assert load_config(disk, PATH) is not None
    assert listed_tables(disk, PATH.parent) == ["topics.json"]


def test_an_edit_by_hand_is_kept_aside_and_not_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk, path = RealDisk(), tmp_path / "topics.json"
    save_config(disk, path, b'{"perm":6}')
    path.write_bytes(path.read_bytes().replace(b"6", b"4"))
    assert load_config(disk, path) == {"perm": 6}
    assert "edited by hand" in caplog.text
    assert b'"perm":4' in rejected_of(path).read_bytes()


def test_an_edit_that_removes_the_checksum_is_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "topics.json"
    save_config(RealDisk(), path, b'{"perm":6}')
    path.write_bytes(b'{"perm":4}')
    with caplog.at_level(logging.WARNING):
        assert load_config(RealDisk(), path) == {"perm": 4}
    assert not caplog.text


def test_a_cut_at_any_moment_leaves_the_old_or_the_new_table() -> None:
    for operation in range(1, 40):
        disk = saved(b'{"a":1}')
        disk.crash_at(disk.operations + operation)
        try:
            save_config(disk, PATH, b'{"a":2}')
        except PowerCut:
            assert load_config(disk.cut_power(random.Random(operation)), PATH) in ({"a": 1}, {"a": 2})


def test_a_save_without_space_leaves_the_table_as_it_was_and_no_remains() -> None:
    disk = SimulatedDisk(space_left=64 * 1024)
    save_config(disk, PATH, b'{"a":1}')
    before = disk.names(PATH.parent)
    with pytest.raises(OSError, match="space"):
        save_config(disk, PATH, b'{"a":"%s"}' % bytes(100_000).hex().encode())
    assert load_config(disk, PATH) == {"a": 1}
    assert disk.names(PATH.parent) == before


def test_apaches_own_tables_are_read(tmp_path: Path) -> None:
    table = tmp_path / "consumerOffset.json"
    table.write_text('{"offsetTable":{"T@group":{0:125,1:126}}}')
    assert load_config(RealDisk(), table) == {"offsetTable": {"T@group": {0: 125, 1: 126}}}
    assert not backup_of(table).exists()


def test_apaches_previous_table_stands_in_for_one_that_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    disk.make_directory(PATH.parent)
    replace_all(disk, PATH, b"{")
    replace_all(disk, COPY, b'{"a":1}')
    assert load_config(disk, PATH) == {"a": 1}
    assert "may be older" in caplog.text
