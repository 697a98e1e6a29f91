"""Deleting a topic of a running broker: what `ariane store verify` and `rebuild` make of the store afterwards."""

from pathlib import Path

import pytest

from ariane import Admin, Producer
from ariane.cli.main import main
from ariane.model.topic import TopicConfig
from tests.broker.brokers import running_cluster

ORDERS = TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4)


async def test_a_topic_deleted_and_created_again_stays_empty_after_verify_and_rebuild(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_cluster(tmp_path) as cluster:
        async with Admin(cluster.nameserver) as admin, Producer(cluster.nameserver, group="p") as producer:
            await admin.topics.put(ORDERS)
            for number in range(12):
                await producer.send("orders", b"old %d" % number)
            await admin.topics.delete("orders")
            await admin.topics.put(ORDERS)
        root = str(cluster.broker.settings.store.root)
    assert main(["store", "verify", root]) == 0
    assert "of a topic that was deleted" in capsys.readouterr().out
    assert main(["store", "rebuild", root, "--yes"]) == 0
    assert main(["store", "verify", root]) == 0
    async with running_cluster(tmp_path) as cluster:
        queues = cluster.broker.parts.store.store.components.queues
        assert cluster.broker.parts.topics.get("orders") is not None
        assert sum(queue.max_offset for queue in queues.of_topic("orders").values()) == 0
