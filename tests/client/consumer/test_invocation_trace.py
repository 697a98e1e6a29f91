"""Traces of consumption, as they arrive in the trace topic."""

from pathlib import Path

from ariane.client.consumer.message import Received
from ariane.client.consumer.push import PushConsumer
from ariane.client.producer.tracing import TRACE_TOPIC
from tests.client.cluster_fixture import MessageCollector, ariane_cluster, fresh


async def test_each_consumption_leaves_a_record_before_and_one_after(tmp_path: Path) -> None:
    async with ariane_cluster(tmp_path, trace_topic_enable=True) as live_cluster:
        topic, collector, traces = await live_cluster.topic(queues=1), MessageCollector(), MessageCollector()
        key = "7F0000010001A426A6474DA91BEE0003"

        async def handle(message: Received) -> bool:
            collector.put(message)
            return message.attempt > 1

        consumer = PushConsumer(
            live_cluster.nameserver, group=fresh("group"), handler=handle, start="earliest", trace=True
        )
        consumer.subscribe(topic)
        await live_cluster.send(topic, b"a", UNIQ_KEY=key, KEYS="order-17")
        async with consumer:
            await collector.until_count(2)
        reader = PushConsumer(live_cluster.nameserver, group=fresh("group"), handler=traces.put, start="earliest")
        reader.subscribe(TRACE_TOPIC)
        async with reader:
            await traces.until(lambda: _records(traces).count("SubAfter") == 2)
    assert _records(traces) == ["SubBefore", "SubAfter", "SubBefore", "SubAfter"]
    after = [record.split("\x01") for record in _texts(traces) if record.startswith("SubAfter")]
    assert [(fields[2], fields[4], fields[5], fields[6]) for fields in after] == [
        (key, "false", "order-17", "4"),
        (key, "true", "order-17", "0"),
    ]


def _texts(traces: MessageCollector) -> list[str]:
    messages = sorted(traces.messages, key=lambda message: message.store_timestamp_ms)
    return [text for message in messages for text in message.body.decode().split("\x02") if text]


def _records(traces: MessageCollector) -> list[str]:
    return [text.split("\x01")[0] for text in _texts(traces)]
