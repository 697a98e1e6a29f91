"""Configuration files and their backups, across crashes."""

import random
from pathlib import Path

import pytest

from ariane.errors import StoreCorrupt
from ariane.store.config_file import load_config, save_config
from ariane.store.disk import RealDisk, replace_all
from tests.simulation.simulated_disk import PowerCut, SimulatedDisk

PATH = Path("/store/config/topics.json")


def test_a_table_is_saved_with_the_one_before_it() -> None:
    disk = SimulatedDisk()
    assert load_config(disk, PATH) is None
    save_config(disk, PATH, b'{"a":1}')
    save_config(disk, PATH, b'{"a":2}')
    assert disk.names(PATH.parent) == ["topics.json", "topics.json.bak"]
    assert load_config(disk, PATH) == {"a": 2}
    assert load_config(disk, PATH.with_name("topics.json.bak")) == {"a": 1}


def test_the_backup_stands_in_for_a_file_that_cannot_be_read() -> None:
    disk = SimulatedDisk()
    save_config(disk, PATH, b'{"a":1}')
    save_config(disk, PATH, b'{"a":2}')
    replace_all(disk, PATH, b"{")
    assert load_config(disk, PATH) == {"a": 1}
    replace_all(disk, PATH.with_name("topics.json.bak"), b"[")
    with pytest.raises(StoreCorrupt, match="restore one of them"):
        load_config(disk, PATH)


def test_a_cut_at_any_moment_leaves_the_old_or_the_new_table() -> None:
    for operation in range(1, 40):
        disk = SimulatedDisk()
        save_config(disk, PATH, b'{"a":1}')
        disk.crash_at(disk.operations + operation)
        try:
            save_config(disk, PATH, b'{"a":2}')
        except PowerCut:
            assert load_config(disk.cut_power(random.Random(operation)), PATH) in ({"a": 1}, {"a": 2})


def test_apaches_own_tables_are_read(tmp_path: Path) -> None:
    table = tmp_path / "consumerOffset.json"
    table.write_text('{"offsetTable":{"T@group":{0:125,1:126}}}')
    assert load_config(RealDisk(), table) == {"offsetTable": {"T@group": {0: 125, 1: 126}}}
