"""The topics that a store knows: from an intact table or its copy, and never from a damaged one."""

import shutil
from pathlib import Path

import pytest

from ariane.store.config.known_topics import known_topics
from ariane.store.config.table_file import save_config
from ariane.store.disk import RealDisk
from ariane.store.message_store import MessageStore
from ariane.testing import FakeClock
from tests.store.stores import HOST, bodies, draft, put, small

TABLE = b'{"topicConfigTable":{"orders":{},"invoices":{}}}'
KNOWN = frozenset({"orders", "invoices"})


@pytest.fixture
def config(tmp_path: Path) -> Path:
    save_config(RealDisk(), tmp_path / "topics.json", TABLE)
    return tmp_path


def renamed(path: Path) -> None:
    """A flipped bit that leaves valid JSON: the topic has another name."""
    path.write_bytes(path.read_bytes().replace(b"orders", b"ordert"))


def test_the_table_or_its_copy_says_which_topics_there_are(config: Path) -> None:
    assert known_topics(RealDisk(), config) == KNOWN
    renamed(config / "topics.json")
    assert known_topics(RealDisk(), config) == KNOWN
    (config / "topics.json").unlink()
    assert known_topics(RealDisk(), config) == KNOWN


def test_an_old_table_is_not_used_beside_a_newer_copy(config: Path) -> None:
    old = (config / "topics.json").read_bytes()
    save_config(RealDisk(), config / "topics.json", TABLE.replace(b'"invoices"', b'"invoices":{},"payments"'))
    (config / "topics.json").write_bytes(old)
    assert known_topics(RealDisk(), config) == KNOWN | {"payments"}


def test_nothing_is_known_from_damaged_or_missing_or_empty_tables(config: Path) -> None:
    renamed(config / "topics.json")
    renamed(config / "topics.json.bak")
    assert known_topics(RealDisk(), config) is None
    (config / "topics.json").write_bytes(b'{"topicConfigTable":{}}')
    assert known_topics(RealDisk(), config) is None
    (config / "topics.json").unlink()
    (config / "topics.json.bak").unlink()
    assert known_topics(RealDisk(), config) is None


def test_a_table_of_a_hundred_thousand_topics_is_read(tmp_path: Path) -> None:
    rows = ",".join(f'"topic-{number:06}":{{"padding":"{"x" * 200}"}}' for number in range(100_000))
    save_config(RealDisk(), tmp_path / "topics.json", b'{"topicConfigTable":{%s}}' % rows.encode())
    known = known_topics(RealDisk(), tmp_path)
    assert known is not None
    assert len(known) == 100_000


def test_a_flipped_bit_in_the_name_of_a_topic_does_not_delete_its_messages(tmp_path: Path) -> None:
    store = MessageStore.open(small(tmp_path), FakeClock(), HOST)
    put(store, draft(b"one"), draft(b"two"))
    store.close()
    save_config(RealDisk(), tmp_path / "config" / "topics.json", TABLE)
    renamed(tmp_path / "config" / "topics.json")
    for name in ("consumequeue", "consumequeue_sums"):
        shutil.rmtree(tmp_path / name)
    store = MessageStore.open(small(tmp_path), FakeClock(), HOST)
    assert bodies(store, "orders", 0) == [b"one", b"two"]
    store.close()
