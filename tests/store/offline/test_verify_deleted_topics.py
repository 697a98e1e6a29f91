"""A deleted topic, created again or not: `verify` finds no fault, and a rebuild does not bring its messages back."""

from pathlib import Path

import pytest

from ariane.clock import Clock
from ariane.store.disk import RealDisk
from ariane.store.layout import Layout
from ariane.store.message_store import MessageStore
from ariane.store.offline.rebuild import rebuild_store
from ariane.store.offline.verify import verify_store
from ariane.store.offline.verify_report import infer_file_sizes
from ariane.store.settings import StoreSettings
from tests.store.stores import HOST, bodies, draft, put, small

DISK = RealDisk()


@pytest.fixture
def settings(tmp_path: Path) -> StoreSettings:
    return small(tmp_path / "store")


def open_store(settings: StoreSettings) -> MessageStore:
    return MessageStore.open(settings, Clock(), HOST)


def make(settings: StoreSettings, new: int) -> Layout:
    """Four queues of ten messages, deleted; then `new` messages in the first queue of a topic of that name."""
    store = open_store(settings)
    put(store, *[draft(b"old", queue_id=number % 4, key=f"k{number}") for number in range(40)])
    put(store, draft(b"other", topic="other"))
    store.delete_topics("orders")
    for _ in range(new):
        put(store, draft(b"new", key="k1"))
    config = store.components.layout.config
    (config / "topics.json").write_text('{"topicConfigTable":{"orders":{},"other":{}}}')  # it exists again
    store.close()
    return Layout.under(settings.root)


@pytest.mark.parametrize("new", [0, 1, 3, 15])
def test_a_topic_that_was_deleted_and_created_again_is_sound(settings: StoreSettings, new: int) -> None:
    report = verify_store(DISK, make(settings, new))
    assert report.is_sound, report.faults
    assert sum("records in the log are of a topic that was deleted" in note for note in report.notes) == 4
    assert report.summary.queue_entries == new + 1


@pytest.mark.parametrize("new", [0, 1, 15])
def test_a_rebuild_keeps_deleted_messages_deleted(settings: StoreSettings, new: int) -> None:
    layout = make(settings, new)
    rebuild_store(
        DISK,
        layout,
        infer_file_sizes(DISK, layout),
        queues=True,
        index=True,
        discard_old=True,
        progress=lambda count: None,
    )
    assert verify_store(DISK, layout).is_sound
    store = open_store(settings)
    assert [bodies(store, "orders", queue_id) for queue_id in range(4)] == [[b"new"] * new, [], [], []]
    assert bodies(store, "other", 0) == [b"other"]
    store.close()


def test_entries_that_an_interrupted_deletion_left_are_explained(settings: StoreSettings) -> None:
    store = open_store(settings)
    put(store, *[draft(b"old") for _ in range(10)])
    store.make_durable()
    store.components.deletions.add(["orders"], store.components.commit_log.max_offset)
    report = verify_store(DISK, Layout.under(settings.root))
    assert report.is_sound
    assert any("10 entries are of a topic that was deleted; the next start removes them" in n for n in report.notes)
    store.close()


def test_a_queue_that_lost_messages_after_the_deletion_is_a_fault(settings: StoreSettings) -> None:
    layout = make(settings, 15)
    for path in layout.queue("orders", 0).iterdir():
        path.unlink()
    report = verify_store(DISK, layout)
    assert "15 records are not in the queue" in report.faults[0].what
