"""Consumer lag and progress of groups."""

from ariane.model.route import MessageQueue
from ariane.model.topic import TopicConfig
from ariane.wire.codes import ResponseCode
from ariane.wire.requests.groups import GetBrokerConsumeStats, GetConsumeStats, GetConsumeTimeSpans, OffsetPair
from tests.broker.consumer_group_fixtures import (
    GroupBroker,
    connected_client,
    consumer,
    group_broker,
    heartbeat,
    running,
    subscription,
)
from tests.store.stores import draft, put


def queue(queue_id: int, topic: str = "orders") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name="broker-a", queue_id=queue_id)


async def behind() -> tuple[GroupBroker, list[int]]:
    """Five messages in queue 0 of orders, a second apart, of which g has consumed two."""
    broker, times = group_broker(), []
    broker.topic("orders", 2)
    for _ in range(5):
        times += [appended.store_timestamp_ms for appended in put(broker.store, draft(b"x", "orders", 0))]
        await broker.clock.advance(1)
    broker.groups.find("g")
    broker.offsets.commit("g", "orders", 0, 2)
    return broker, times


async def test_the_lag_of_each_queue_is_shown() -> None:
    broker, times = await behind()
    async with running(broker) as server, connected_client(server) as admin:
        body = (await admin.call(GetConsumeStats("g"))).body
    assert body.offset_table == {
        queue(0): OffsetPair(broker_offset=5, consumer_offset=2, last_timestamp=times[1]),
        queue(1): OffsetPair(broker_offset=0, consumer_offset=0, last_timestamp=0),
    }
    assert body.consume_tps == 0.0


async def test_one_topic_can_be_requested_even_without_offsets() -> None:
    broker, _ = await behind()
    broker.topic("bills", 1)
    async with running(broker) as server, connected_client(server) as admin:
        assert list((await admin.call(GetConsumeStats("g", "bills"))).body.offset_table) == [queue(0, "bills")]
        assert (await admin.call(GetConsumeStats("g", "unknown"))).body.offset_table == {}


async def test_unsubscribed_and_deleted_topics_of_a_connected_group_are_not_shown() -> None:
    broker, _ = await behind()
    broker.topic("bills", 1)
    broker.offsets.commit("g", "bills", 0, 0)
    broker.offsets.commit("g", "deleted", 0, 7)
    async with running(broker) as server, connected_client(server) as client:
        await client.call(heartbeat("c", consumer("g", subscription("bills"))))
        assert list((await client.call(GetConsumeStats("g"))).body.offset_table) == [queue(0, "bills")]


async def test_queues_that_still_drain_are_shown() -> None:
    broker, _ = await behind()
    broker.topics.put(TopicConfig(topic_name="orders", read_queue_nums=3, write_queue_nums=1))
    async with running(broker) as server, connected_client(server) as admin:
        shown = (await admin.call(GetConsumeStats("g"))).body.offset_table
    assert sorted(queue.queue_id for queue in shown) == [0, 1, 2]


async def test_the_whole_broker_is_shown_group_by_group() -> None:
    broker, _ = await behind()
    broker.topic("ordered", 1, order=True)
    broker.offsets.commit("g", "ordered", 0, 0)
    broker.groups.find("h")
    broker.offsets.commit("h", "orders", 0, 4)
    async with running(broker) as server, connected_client(server) as admin:
        body = (await admin.call(GetBrokerConsumeStats())).body
        ordered = (await admin.call(GetBrokerConsumeStats(is_order=True))).body
    assert [list(groups) for groups in body.consume_stats_list] == [["g"], ["h"]]
    assert (body.total_diff, body.broker_addr) == (3 + 1, "127.0.0.1:10911")
    ((stats,),) = [groups["g"] for groups in ordered.consume_stats_list]
    assert list(stats.offset_table) == [queue(0, "ordered")]


async def test_time_spans_contain_the_age_of_the_next_message() -> None:
    broker, times = await behind()
    async with running(broker) as server, connected_client(server) as admin:
        full, empty = (await admin.call(GetConsumeTimeSpans("orders", "g"))).body.consume_time_span_set
        assert (full.min_time_stamp, full.max_time_stamp) == (times[0], times[4])
        assert (full.consume_time_stamp, full.delay_time) == (times[1], broker.clock.now_ms() - times[2])
        assert (empty.message_queue, empty.min_time_stamp, empty.delay_time) == (queue(1), 0, 0)
        broker.offsets.commit("g", "orders", 0, 5)
        caught_up, _ = (await admin.call(GetConsumeTimeSpans("orders", "g"))).body.consume_time_span_set
        assert (caught_up.consume_time_stamp, caught_up.delay_time) == (times[4], 0)
        unknown = await admin.error_response(GetConsumeTimeSpans("unknown", "g"))
        assert unknown[0] == ResponseCode.TOPIC_NOT_EXIST
