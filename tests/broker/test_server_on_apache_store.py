"""A broker takes over the directory of Apache's: topics, groups, offsets and messages are where they were."""

from pathlib import Path

import pytest

from ariane.store.settings import StoreSettings
from ariane.wire.requests.topics import GetTopicStats
from tests.broker.brokers import running_broker
from tests.nameserver.servers import caller
from tests.store.golden_stores import unpack


@pytest.mark.parametrize("name", ["clean", "killed"])
async def test_a_store_that_apache_wrote_is_served(tmp_path: Path, name: str) -> None:
    layout = unpack(name, tmp_path)
    segment_bytes = next(path.stat().st_size for path in layout.commit_log.iterdir())
    store = StoreSettings(  # with the sizes that it was written with
        root=layout.root,
        segment_bytes=segment_bytes,
        queue_segment_bytes=2000,
        index_slots=1000,
        index_entries=4000,
        retention_hours=24 * 365 * 10,
    )
    async with running_broker(tmp_path, store=store) as broker, caller() as client:
        parts = broker.parts
        topics = [topic for topic in parts.topics.all() if topic.startswith("Golden")]
        assert topics
        assert parts.groups.all()
        assert parts.offsets.table()
        for topic in topics:
            stats = (await client.call(broker.address, GetTopicStats(topic))).body.offset_table
            queues = parts.store.store.components.queues.of_topic(topic)
            assert sum(queue.max_offset for queue in stats.values()) == sum(
                queue.max_offset for queue in queues.values()
            )
