"""Queue files that were removed: consumers keep their offsets, and no offset is given to a second message."""

import shutil
from pathlib import Path

import pytest

from ariane.store.layout import Layout
from tests.broker.brokers import RunningBroker, running_broker
from tests.store.stores import draft, put

COMMITTED = {0: 20, 1: 15}


def send(broker: RunningBroker, count: int) -> list[int]:
    drafts = [draft(b"x", queue_id=number % 2) for number in range(count)]
    return [appended.queue_offset for appended in put(broker.parts.store.store, *drafts)]


async def stopped(tmp_path: Path) -> Layout:
    """Forty messages in two queues of a topic; a group has consumed 20 and 15 of them."""
    async with running_broker(tmp_path) as broker:
        broker.parts.topics.ensure("orders", 2)
        send(broker, 40)
        for queue_id, offset in COMMITTED.items():
            broker.parts.offsets.commit("billing", "orders", queue_id, offset)
    return Layout.under(tmp_path / "store")


@pytest.mark.parametrize("removed", ["consumequeue", "consumequeue/orders/0", "consumequeue/orders"])
@pytest.mark.parametrize("is_state_lost", [False, True])
async def test_removed_queues_are_back_and_no_group_moved(tmp_path: Path, removed: str, is_state_lost: bool) -> None:
    layout = await stopped(tmp_path)
    shutil.rmtree(layout.root / removed)
    if is_state_lost:
        shutil.rmtree(layout.queue_checksums)
    async with running_broker(tmp_path) as broker:
        assert broker.parts.offsets.of("billing", "orders") == COMMITTED
        assert send(broker, 2) == [20, 20]
        assert len(broker.parts.store.store.reader.read("orders", 0, 0, 32).slices) == 21


async def test_a_queue_that_is_nowhere_begins_where_its_consumers_are(tmp_path: Path) -> None:
    """Neither its files, nor the saved state, nor a record in the log are left."""
    layout = await stopped(tmp_path)
    for directory in (layout.consume_queues, layout.queue_checksums, layout.commit_log, layout.index):
        shutil.rmtree(directory)
    shutil.rmtree(layout.commit_log_checksums)
    layout.checkpoint.unlink()
    async with running_broker(tmp_path) as broker:
        assert broker.parts.offsets.of("billing", "orders") == COMMITTED
        assert send(broker, 2) == [20, 15]
