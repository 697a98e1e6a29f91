"""Pulls over real sockets from a store whose files were damaged: no altered message, and no queue that stops."""

import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ariane.errors import RequestFailed
from ariane.model.ids import PhysicalOffset
from ariane.model.message import StoredMessage
from ariane.model.topic import TopicConfig
from ariane.store.disk import RealDisk
from ariane.store.layout import Layout, offset_name
from ariane.store.offline.verify import verify_store
from ariane.wire.codes import ResponseCode
from ariane.wire.record.read import RecordView
from ariane.wire.requests.messages import QueryMessages, ViewMessage
from tests.broker.cold_pages import can_be_forgotten, forget
from tests.broker.in_process_broker import TOPIC, InProcessBroker, a_pull, a_send, in_process_broker
from tests.broker.metrics_fixtures import monitored_broker
from tests.store.damage import PARTS, Stored, position_in, stored

QUEUES = 2
BLOCK = 16 * 1024


@asynccontextmanager
async def broker_on(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    topic = TopicConfig(topic_name=TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
    async with in_process_broker(tmp_path, topics=(topic,)) as broker:
        yield broker


async def fill(broker: InProcessBroker, count: int, rng: random.Random) -> list[Stored]:
    for number in range(count):
        properties = {"KEYS": f"key{number}", "TAGS": "red", "city": "Nantes", "number": str(number)}
        await broker.call(a_send(rng.randbytes(rng.randint(1, 900)), properties, queue_id=number % QUEUES))
    return stored(broker.store)


async def pulled_all(broker: InProcessBroker, **changes: object) -> list[StoredMessage]:
    """As a consumer that goes on from nextBeginOffset until there is nothing more."""
    messages = []
    for queue_id in range(QUEUES):
        offset = 0
        while True:
            response, found = await broker.pulled(queue_id=queue_id, queue_offset=offset, **changes)
            if response.code == ResponseCode.PULL_NOT_FOUND:
                break
            assert response.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY)
            assert response.next_begin_offset > offset
            offset = response.next_begin_offset
            messages += found
    return messages


def flip_on_disk(tmp_path: Path, view: RecordView, part: str, rng: random.Random) -> int:
    at = view.physical_offset + position_in(view, part, rng)
    path = Layout.under(tmp_path / "store").commit_log / offset_name(0)
    with path.open("r+b", buffering=0) as file:
        byte = os.pread(file.fileno(), 1, at)[0]
        os.pwrite(file.fileno(), bytes([byte ^ 1 << rng.randrange(8)]), at)
        os.fsync(file.fileno())
    return at


def in_block_of(record: Stored, at: int) -> bool:
    begin = at // BLOCK * BLOCK
    return record.view.physical_offset < begin + BLOCK and record.view.physical_offset + record.view.size > begin


@pytest.mark.parametrize("seed", range(9))
async def test_a_broker_that_starts_on_a_damaged_store_delivers_what_was_sent_and_nothing_else(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    async with broker_on(tmp_path) as broker:
        before = await fill(broker, 150, rng)
        sent = {message.physical_offset: message for message in await pulled_all(broker)}
        assert len(sent) == len(before)
    at = flip_on_disk(tmp_path, rng.choice(before).view, PARTS[seed % 3], rng)
    assert not verify_store(RealDisk(), Layout.under(tmp_path / "store")).is_sound
    async with broker_on(tmp_path) as broker:
        for changes in ({}, {"subscription": "red"}, {"subscription": "number >= 0", "expression_type": "SQL92"}):
            found = await pulled_all(broker, **changes)
            assert all(sent[message.physical_offset] == message for message in found)
            missing = sent.keys() - {message.physical_offset for message in found}
            assert missing
            assert all(in_block_of(record, at) for record in before if record.view.physical_offset in missing)
        checks = broker.store.components.commit_log.checks
        assert checks is not None
        assert (checks.damaged_blocks, checks.withheld_records) == (1, len(missing))


@pytest.mark.parametrize("part", PARTS)
async def test_a_page_that_was_evicted_from_a_running_broker_and_changed_is_not_delivered(
    tmp_path: Path, part: str
) -> None:
    if not can_be_forgotten(tmp_path / "probe"):
        pytest.skip("this file system keeps its pages in memory")
    rng = random.Random(1)
    async with broker_on(tmp_path) as broker:
        before = await fill(broker, 150, rng)
        sent = {message.physical_offset: message for message in await pulled_all(broker)}
        broker.store.make_durable()
        at = flip_on_disk(tmp_path, before[70].view, part, rng)
        forget(broker.store)
        found = await pulled_all(broker)
        assert all(sent[message.physical_offset] == message for message in found)
        missing = sent.keys() - {message.physical_offset for message in found}
        assert before[70].view.physical_offset in missing
        assert all(in_block_of(record, at) for record in before if record.view.physical_offset in missing)


async def test_a_damaged_message_is_viewed_by_no_id_and_found_by_no_key(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as broker:
        before = await fill(broker, 20, random.Random(1))
    view = before[7].view
    flip_on_disk(tmp_path, view, "properties", random.Random(1))
    async with broker_on(tmp_path) as broker:
        with pytest.raises(RequestFailed, match="no message starts at offset"):
            await broker.call(ViewMessage(offset=PhysicalOffset(view.physical_offset)))
        query = QueryMessages(topic=TOPIC, key="key7", max_num=10, begin_timestamp=0, end_timestamp=1 << 60)
        with pytest.raises(RequestFailed):
            await broker.call(query)


async def test_damage_is_counted_for_operators(tmp_path: Path) -> None:
    async with monitored_broker(tmp_path) as monitored:
        for _ in range(20):
            await monitored.call(a_send(b"x" * 100))
        before = stored(monitored.broker.parts.store.store)
        page = await monitored.scrape()
        assert page.value("ariane_store_damaged_blocks_total") == 0
    flip_on_disk(tmp_path, before[7].view, "body", random.Random(1))
    async with monitored_broker(tmp_path) as monitored:
        response = await monitored.call(a_pull())
        assert response.next_begin_offset == 20
        page = await monitored.scrape()
        assert page.value("ariane_store_damaged_blocks_total") == 1
        assert page.value("ariane_store_withheld_records_total") == 1
