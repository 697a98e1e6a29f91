"""Collected metrics after real sends, pulls, send-backs, transactions and delays."""

import asyncio
from pathlib import Path

import pytest

from ariane.broker.metrics.collect import MetricsCollector
from ariane.broker.metrics.exposition import METRICS, MetricType
from ariane.errors import RequestFailed
from ariane.model.group import ConsumeFromWhere, ConsumeType, MessageModel, Subscription
from ariane.model.ids import PhysicalOffset, QueueOffset
from ariane.model.system_topics import SCHEDULE, TRANS_HALF
from ariane.replication.role import Replication
from ariane.store.settings import FlushDiskType
from ariane.testing import FakeClock
from ariane.wire.message_id import decode_offset_message_id
from ariane.wire.record.batch import BatchItem, encode_batch
from ariane.wire.requests.clients import ConsumerData, Heartbeat, HeartbeatData, ProducerData
from ariane.wire.requests.offsets import UpdateConsumerOffset
from ariane.wire.requests.send import Decision, SendBack, SendResponse
from tests.broker.in_process_broker import GROUP, TOPIC, a_pull, a_send, turns
from tests.broker.metrics_fixtures import MonitoredBroker, Samples, monitored_broker
from tests.broker.transaction_fixtures import half_send, outcome_of

IN = {"topic": TOPIC, "message_type": "normal", "is_system": "false"}
OUT = {"topic": TOPIC, "consumer_group": GROUP, "is_system": "false"}
LAG = {**OUT, "is_retry": "false"}
DISK = {"storage_type": "local", "storage_medium": "disk"}


async def sent(to: MonitoredBroker, messages: int) -> list[SendResponse]:
    return [await to.call(a_send(b"x" * 100)) for _ in range(messages)]


def physical(response: SendResponse) -> PhysicalOffset:
    return PhysicalOffset(decode_offset_message_id(response.msg_id).physical_offset)


async def committed(to: MonitoredBroker, offset: int, group: str = GROUP) -> None:
    await to.call(UpdateConsumerOffset(group, TOPIC, 0, QueueOffset(offset)))


async def test_every_declared_metric_is_exposed_with_its_type(tmp_path: Path) -> None:
    async with monitored_broker(tmp_path) as broker:
        page = await broker.scrape()
    for metric in METRICS:
        for name in metric.names:
            family = page.families[name.removesuffix("_total") if metric.kind is MetricType.COUNTER else name]
            assert (family.type, family.documentation) == (metric.kind.value, metric.doc)
    assert page.families["process_resident_memory_bytes"].samples[0].value > 0


async def test_sends_count_by_topic_and_by_size(tmp_path: Path) -> None:
    async with monitored_broker(tmp_path) as broker:
        responses = await sent(broker, 3)
        await broker.call(a_send(b"y" * 5000, {"__SHARDINGKEY": "7"}))
        page = await broker.scrape()
        log = broker.broker.parts.store.store.components.commit_log
    assert page.value("rocketmq_messages_in_total", **IN) == 3
    assert page.value("rocketmq_messages_in_total", **{**IN, "message_type": "fifo"}) == 1
    of_three = physical(responses[2]) // 2 * 3
    assert page.value("rocketmq_throughput_in_total", **IN) == of_three
    assert page.value("rocketmq_message_size_sum") == log.max_offset
    assert page.value("rocketmq_message_size_bucket", le="1024") == 3
    assert page.value("rocketmq_message_size_bucket", le="4096") == 3
    assert page.value("rocketmq_message_size_bucket", le="524288") == 4
    assert page.value("ariane_append_seconds_count") == 4
    assert page.value("ariane_sync_wait_seconds_count") == 4


async def test_a_batch_counts_each_of_its_messages(tmp_path: Path) -> None:
    async with monitored_broker(tmp_path) as broker:
        body = encode_batch([BatchItem(b"a", b""), BatchItem(b"b", b"")])
        await broker.call(a_send(body, batch=True))
        page = await broker.scrape()
    assert page.value("rocketmq_messages_in_total", **IN) == 2


async def test_rejected_sends_count_by_reason(tmp_path: Path) -> None:
    async with monitored_broker(tmp_path, store={"max_message_bytes": 4096}) as broker:
        for request in (a_send(topic="nowhere"), a_send(b""), a_send(b"x" * 5000), a_send(topic=SCHEDULE)):
            with pytest.raises(RequestFailed):
                await broker.call(request)
        page = await broker.scrape()
    reasons = {dict(labels)["reason"]: times for labels, times in page.of("ariane_rejected_sends_total").items()}
    assert reasons == {"TOPIC_NOT_EXIST": 1, "MESSAGE_ILLEGAL": 2, "NO_PERMISSION": 1}


async def test_pulls_count_by_group_and_the_lag_goes_down_with_commits(tmp_path: Path) -> None:
    async with monitored_broker(tmp_path) as broker:
        await sent(broker, 10)
        await committed(broker, 0)
        behind = await broker.scrape()
        pulled = await broker.call(a_pull(max_msg_nums=4))
        await committed(broker, 3)
        page = await broker.scrape()
    assert behind.value("rocketmq_consumer_lag_messages", **LAG) == 10
    assert page.value("rocketmq_messages_out_total", **OUT) == 4
    assert page.value("rocketmq_throughput_out_total", **OUT) == len(pulled.body)
    assert page.value("rocketmq_consumer_lag_messages", **LAG) == 7
    assert page.value("rocketmq_consumer_inflight_messages", **LAG) == 1
    assert page.value("rocketmq_consumer_ready_messages", **LAG) == 6
    assert page.value("ariane_pulls_total", result="found") == 1


async def test_latencies_are_the_ages_of_what_waits(tmp_path: Path) -> None:
    clock = FakeClock()
    async with monitored_broker(tmp_path, clock, store={"flush_disk_type": FlushDiskType.ASYNC}) as broker:
        await sent(broker, 1)
        await clock.advance(5)
        await sent(broker, 1)
        await clock.advance(2)
        await committed(broker, 0)
        await broker.call(a_pull(max_msg_nums=1))
        page = await broker.scrape()
        await committed(broker, 2)
        done = await broker.scrape()
    assert page.value("rocketmq_consumer_lag_latency", **LAG) == 7000
    assert page.value("rocketmq_consumer_lag_latency_milliseconds", **LAG) == 7000
    assert page.value("rocketmq_consumer_queueing_latency", **LAG) == 2000
    assert page.value("rocketmq_storage_message_reserve_time", **DISK) == 7000
    assert done.value("rocketmq_consumer_lag_latency", **LAG) == 0
    assert done.value("rocketmq_consumer_queueing_latency", **LAG) == 0


async def test_a_pull_that_waits_is_counted_while_it_does(tmp_path: Path) -> None:
    async with monitored_broker(tmp_path) as broker:
        pull_waiters = broker.broker.parts.pull_waiters
        waiting = asyncio.ensure_future(broker.call(a_pull(sys_flag=6)))
        while not len(pull_waiters):
            await turns()
        page = await broker.scrape()
        await sent(broker, 1)
        await waiting
        done = await broker.scrape()
    assert page.value("ariane_parked_pulls") == 1
    assert page.value("ariane_pulls_total", result="nothing") == 1
    assert (done.value("ariane_parked_pulls"), done.value("rocketmq_messages_out_total", **OUT)) == (0, 1)


async def test_send_backs_and_dead_letters_count_for_the_original_topic(tmp_path: Path) -> None:
    async with monitored_broker(tmp_path) as broker:
        (response,) = await sent(broker, 1)
        await broker.call(SendBack(offset=physical(response), group=GROUP, delay_level=0))
        await broker.call(SendBack(offset=physical(response), group=GROUP, delay_level=-1))
        spent = a_send(topic=f"%RETRY%{GROUP}", properties={"RETRY_TOPIC": TOPIC}, reconsume_times=16)
        await broker.call(spent)
        page = await broker.scrape()
    assert page.value("ariane_send_backs_total", consumer_group=GROUP, topic=TOPIC) == 2
    assert page.value("rocketmq_send_to_dlq_messages_total", **OUT) == 2


async def test_transactions_count_by_outcome_and_open_ones_are_reported(tmp_path: Path) -> None:
    async with monitored_broker(tmp_path) as broker:
        half_messages = [await broker.call(half_send(body)) for body in (b"a", b"b", b"c", b"d")]
        for half, decision in zip(half_messages, (Decision.COMMIT, Decision.ROLLBACK, Decision.COMMIT), strict=False):
            await broker.call(outcome_of(half, decision))
        await broker.call(outcome_of(half_messages[0], Decision.COMMIT))  # a repeated commit has no effect
        page = await broker.scrape()
    assert page.value("rocketmq_commit_messages_total", topic=TOPIC) == 2
    assert page.value("rocketmq_rollback_messages_total", topic=TOPIC) == 1
    assert page.value("rocketmq_half_messages") == 1
    labels = {"topic": TRANS_HALF, "message_type": "transaction", "is_system": "true"}
    assert page.value("rocketmq_messages_in_total", **labels) == 4


async def test_delayed_messages_count_when_sent_and_when_delivered(tmp_path: Path) -> None:
    clock = FakeClock()
    async with monitored_broker(tmp_path, clock, store={"flush_disk_type": FlushDiskType.ASYNC}) as broker:
        delivered = asyncio.Event()

        def arrived(topic: str, queue_id: int, queue_end: int, tags_code: int) -> None:
            if (topic, queue_end) == (TOPIC, 2):
                delivered.set()

        broker.broker.parts.store.store.components.dispatcher.on_arrival(arrived)
        await broker.call(a_send(properties={"DELAY": "1"}))
        await broker.call(a_send(properties={"TIMER_DELAY_SEC": "2"}))
        waiting = await broker.scrape()
        await clock.advance(5)
        await asyncio.wait_for(delivered.wait(), 10)
        await turns()
        page = await broker.scrape()
    labels = {"topic": SCHEDULE, "message_type": "delay", "is_system": "true"}
    assert waiting.value("rocketmq_messages_in_total", **labels) == 1
    assert waiting.value("rocketmq_timer_enqueue_total", **DISK) == 1
    assert page.value("ariane_delay_deliveries_total", level="1") == 1
    assert page.value("rocketmq_timer_dequeue_total", **DISK) == 1
    assert page.value("rocketmq_timing_messages", **DISK) == 0
    assert page.value("rocketmq_messages_in_total", **IN) == 2


async def test_clients_count_by_language_and_release(tmp_path: Path) -> None:
    async with monitored_broker(tmp_path) as broker:
        consumer = ConsumerData(
            group_name=GROUP,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            subscription_data_set=[Subscription(topic=TOPIC)],
        )
        data = HeartbeatData(client_id="c", producer_data_set=[ProducerData("shop")], consumer_data_set=[consumer])
        await broker.call(Heartbeat(body=data))
        page = await broker.scrape()
    client = {"language": "python", "version": "v4_7_1", "protocol_type": "remoting"}
    assert page.value("rocketmq_producer_connections", **client) == 1
    group = {"consumer_group": GROUP, "consume_mode": "push", "is_system": "false"}
    assert page.value("rocketmq_consumer_connections", **client, **group) == 1
    assert page.value("rocketmq_consumer_lag_messages", **LAG) == 0  # subscribed, and nothing committed yet


async def test_metrics_describe_the_broker_and_its_store(tmp_path: Path) -> None:
    async with monitored_broker(tmp_path, permission=4) as broker:
        topics, groups = len(broker.broker.parts.topics.all()), len(broker.broker.parts.groups.all())
        page = await broker.scrape()
    assert page.value("rocketmq_broker_permission") == 4
    assert page.value("rocketmq_topic_number") == topics
    assert page.value("rocketmq_consumer_group_number") == groups
    assert page.value("ariane_store_writable") == 1
    assert page.value("rocketmq_storage_size_bytes", **DISK) > 0
    assert page.value("rocketmq_storage_dispatch_behind_bytes", **DISK) == 0


async def test_label_sets_beyond_the_limit_are_dropped_and_counted(tmp_path: Path) -> None:
    async with monitored_broker(tmp_path, metrics_series_max=100) as broker:
        for number in range(150):
            broker.broker.parts.statistics.counters.put(f"topic-{number}", 100, 0.0)
        page = await broker.scrape()
    assert len(page.of("rocketmq_messages_in_total")) == 100
    assert page.value("ariane_metrics_cut_series", metric="rocketmq_messages_in_total") == 50


async def test_ages_beyond_the_read_limit_are_dropped_and_counted(tmp_path: Path) -> None:
    async with monitored_broker(tmp_path) as broker:
        await sent(broker, 1)
        for number in range(5):
            broker.broker.parts.groups.find(f"group-{number}")
            await committed(broker, 0, f"group-{number}")
        page = Samples(
            (await MetricsCollector(broker.broker.parts, Replication(), times_max=6).collect()).text().decode()
        )
    assert len(page.of("rocketmq_consumer_lag_messages")) == 5
    assert len(page.of("rocketmq_consumer_lag_latency")) == 3
    assert page.value("ariane_metrics_cut_series", metric="rocketmq_consumer_lag_latency") == 2


async def test_collecting_thousands_of_topics_does_not_block_the_event_loop(tmp_path: Path) -> None:
    async with monitored_broker(tmp_path) as broker:
        counters = broker.broker.parts.statistics.counters
        for number in range(5000):
            counters.put(f"topic-{number}", 100, 0.0)
            counters.got(f"topic-{number}", GROUP, 0, 1, 100, 1)
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.ensure_future(turn())
        page = await MetricsCollector(broker.broker.parts, Replication()).collect()
        other.cancel()
    assert turns >= 2 * 5000 / 100
    assert len(Samples(page.text().decode()).of("rocketmq_messages_out_total")) == 5000
