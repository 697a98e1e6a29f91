"""`ariane store accept-config`: tables that an operator edited or lost."""

from pathlib import Path

import pytest

from ariane.cli.main import main
from ariane.clock import Clock
from ariane.errors import StoreInUse
from ariane.store.config.table_file import CopyState, backup_of, listed_tables, load_config, read_copy, save_config
from ariane.store.disk import RealDisk
from ariane.store.layout import Layout
from ariane.store.message_store import MessageStore
from ariane.store.offline.accept_config import accept_config
from ariane.store.offline.verify import verify_store
from tests.store.golden_stores import held_by_another_process
from tests.store.stores import HOST, draft, put, small

DISK = RealDisk()


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A store with messages in queues 0 and 2 of a topic, and two tables."""
    store = MessageStore.open(small(tmp_path), Clock(), HOST)
    put(store, draft(b"a"), draft(b"b", queue_id=2))
    store.close()
    layout = Layout.under(tmp_path)
    save_config(DISK, layout.config / "topics.json", b'{"topicConfigTable":{"orders":{"perm":6}}}')
    save_config(DISK, layout.config / "consumerOffset.json", b'{"offsetTable":{"orders@g":{0:1}}}')
    return layout


def accept(layout: Layout) -> list[str]:
    return accept_config(DISK, layout, 1_700_000_000_000)


def test_intact_tables_are_left_as_they_are(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.read_bytes() for path in layout.config.iterdir()}
    assert accept(layout) == []
    assert main(["store", "accept-config", str(layout.root)]) == 0
    assert "every table matches its checksum" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in layout.config.iterdir()} == before


def test_a_table_edited_by_hand_gets_a_new_checksum(layout: Layout) -> None:
    path = layout.config / "consumerOffset.json"
    path.write_bytes(path.read_bytes().replace(b"{0:1}", b"{0:0,1:7}"))
    assert [fault.file for fault in verify_store(DISK, layout).faults] == ["config/consumerOffset.json"]
    assert accept(layout) == ["consumerOffset.json: accepted as it is, with a new checksum"]
    assert verify_store(DISK, layout).is_sound
    assert load_config(DISK, path) == {"offsetTable": {"orders@g": {0: 0, 1: 7}}}
    assert read_copy(DISK, backup_of(path)).state is CopyState.INTACT


def test_a_lost_table_is_forgotten_and_lost_topics_are_written_from_the_queues(layout: Layout) -> None:
    for name in ("topics.json", "consumerOffset.json"):
        for path in (layout.config / name, backup_of(layout.config / name)):
            path.unlink()
    missing = [fault.file for fault in verify_store(DISK, layout).faults]
    assert missing == ["config/consumerOffset.json", "config/topics.json"]
    forgotten, written = accept(layout)
    assert forgotten == "consumerOffset.json: forgotten, a broker begins with an empty table"
    assert written.startswith("topics.json: written from the queues, 1 topics")
    table = load_config(DISK, layout.config / "topics.json")
    assert isinstance(table, dict)
    orders = table["topicConfigTable"]["orders"]
    assert (orders["readQueueNums"], orders["writeQueueNums"], orders["perm"]) == (3, 3, 6)
    assert listed_tables(DISK, layout.config) == ["topics.json"]
    assert verify_store(DISK, layout).is_sound


def test_what_is_not_json_is_not_accepted(layout: Layout) -> None:
    path = layout.config / "topics.json"
    path.write_bytes(b"{")
    (line,) = accept(layout)
    assert "a broker uses its copy topics.json.bak" in line
    backup_of(path).write_bytes(b"[")
    (line,) = accept(layout)
    assert "restore it, or remove it and topics.json.bak" in line


def test_a_running_broker_is_not_disturbed(layout: Layout) -> None:
    with held_by_another_process(layout.lock), pytest.raises(StoreInUse):
        accept(layout)
