"""A broker whose messages have to be confirmed: nothing beyond that is seen by any request, nor acted upon."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ariane.broker.metrics.collect import MetricsCollector
from ariane.errors import RequestFailed
from ariane.model.group import ConsumeFromWhere, ConsumeType, MessageModel
from ariane.model.ids import PhysicalOffset, QueueOffset
from ariane.model.system_topics import SCHEDULE
from ariane.replication.role import Replication
from ariane.testing import FakeClock
from ariane.wire.codes import ResponseCode
from ariane.wire.message_id import offset_message_id
from ariane.wire.record.read import decode_all
from ariane.wire.requests.clients import ConsumeDirectly, ConsumerData, Heartbeat, HeartbeatData
from ariane.wire.requests.groups import GetConsumeStats, GetConsumeTimeSpans
from ariane.wire.requests.messages import QueryConsumeQueue, QueryMessages, ViewMessage
from ariane.wire.requests.offsets import (
    GetEarliestStoreTime,
    GetMaxOffset,
    ResetOffsets,
    SearchOffset,
    UpdateConsumerOffset,
)
from ariane.wire.requests.send import SendBack
from ariane.wire.requests.topics import GetTopicStats
from tests.broker.gated_broker import GatedBroker, gated_broker
from tests.broker.in_process_broker import GROUP, TOPIC, a_pull, a_send, turns
from tests.store.stores import draft
from tests.transport.peers import until

SEEN, HIDDEN = b"seen", b"hidden"


async def half_confirmed(broker: GatedBroker, clock: FakeClock) -> None:
    """Of each of two queues one message is confirmed, and two are not; a second lies between all of them."""
    for number, body in enumerate((SEEN, SEEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN)):
        (last,) = broker.put(draft(body, TOPIC, number % 2, key="k", tag="T"))
        await clock.advance(1)
        if number == 1:
            broker.confirm(last.end)
    broker.parts.groups.find(GROUP)


async def refused(broker: GatedBroker, request: Any) -> RequestFailed:
    with pytest.raises(RequestFailed) as caught:
        await broker.call(request)
    return caught.value


# --- each request -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subscription", ["*", "T"], ids=["fast path", "general path"])
async def test_a_pull_ends_at_what_is_confirmed(tmp_path: Path, subscription: str) -> None:
    clock = FakeClock()
    async with gated_broker(tmp_path, clock) as broker:
        await half_confirmed(broker, clock)
        pulled = await broker.call(a_pull(subscription=subscription))
        assert [message.body for message in decode_all(pulled.body)] == [SEEN]
        assert (pulled.next_begin_offset, pulled.max_offset) == (1, 1)
        broker.confirm()
        assert await broker.bodies(subscription=subscription) == [SEEN, HIDDEN, HIDDEN]


@pytest.mark.parametrize("offset", [1, 2, 3])
async def test_a_pull_behind_what_is_confirmed_finds_nothing_and_is_not_moved(tmp_path: Path, offset: int) -> None:
    clock = FakeClock()
    async with gated_broker(tmp_path, clock) as broker:
        await half_confirmed(broker, clock)
        pulled = await broker.call(a_pull(queue_offset=offset))
        assert (pulled.code, pulled.next_begin_offset, pulled.max_offset) == (ResponseCode.PULL_NOT_FOUND, offset, 1)
        assert pulled.body == b""


async def test_the_end_of_a_queue_is_where_it_is_confirmed(tmp_path: Path) -> None:
    clock = FakeClock()
    async with gated_broker(tmp_path, clock) as broker:
        await half_confirmed(broker, clock)
        assert (await broker.call(GetMaxOffset(TOPIC, 0))).offset == 1
        assert (await broker.call(SearchOffset(TOPIC, 0, 2**62))).offset == 1
        assert (await broker.call(SearchOffset(TOPIC, 0, 2**62, "UPPER"))).offset == 0
        assert (await broker.call(SearchOffset(TOPIC, 0, clock.now_ms() - 2500))).offset == 1
        stats = (await broker.call(GetTopicStats(TOPIC))).body.offset_table
        assert [(one.min_offset, one.max_offset) for one in stats.values()] == [(0, 1), (0, 1), (0, 0), (0, 0)]
        assert max(one.last_update_timestamp for one in stats.values()) == clock.now_ms() - 5000
        page = (await broker.call(QueryConsumeQueue(TOPIC, 0, 0, 10))).body
        assert (len(page.queue_data), page.max_queue_index) == (1, 1)
        assert "it holds 0 to 0" in (await refused(broker, QueryConsumeQueue(TOPIC, 0, 1, 10))).remark
        broker.confirm()
        assert (await broker.call(GetMaxOffset(TOPIC, 0))).offset == 3
        assert (await broker.call(SearchOffset(TOPIC, 0, 2**62))).offset == 3


async def test_a_queue_of_which_nothing_is_confirmed_has_no_first_message(tmp_path: Path) -> None:
    async with gated_broker(tmp_path, FakeClock(5000)) as broker:
        broker.put(draft(HIDDEN, TOPIC))
        assert (await broker.call(GetEarliestStoreTime(TOPIC, 0))).timestamp == -1
        broker.confirm()
        assert (await broker.call(GetEarliestStoreTime(TOPIC, 0))).timestamp == 5000


async def test_queries_by_key_and_by_id_find_what_is_confirmed(tmp_path: Path) -> None:
    clock = FakeClock()
    async with gated_broker(tmp_path, clock) as broker:
        await half_confirmed(broker, clock)
        query = QueryMessages(topic=TOPIC, key="k", max_num=32, begin_timestamp=0, end_timestamp=2**62)
        found = await broker.call(query)
        assert [message.body for message in decode_all(found.body)] == [SEEN, SEEN]
        assert found.index_last_update_phyoffset <= broker.gate.confirmed_to
        hidden = PhysicalOffset(broker.gate.confirmed_to)
        assert (await broker.call(ViewMessage(PhysicalOffset(0)))).body
        assert "no message starts at" in (await refused(broker, ViewMessage(hidden))).remark
        broker.confirm()
        assert len(decode_all((await broker.call(query)).body)) == 6
        assert (await broker.call(ViewMessage(hidden))).body


async def test_a_message_that_is_not_confirmed_can_be_neither_sent_back_nor_given_to_a_consumer(tmp_path: Path) -> None:
    clock = FakeClock()
    async with gated_broker(tmp_path, clock) as broker:
        await half_confirmed(broker, clock)
        hidden = PhysicalOffset(broker.gate.confirmed_to)
        failed = await refused(broker, SendBack(offset=hidden, group=GROUP, delay_level=0))
        assert "no consumable message starts at" in failed.remark
        consumer = ConsumerData(
            group_name=GROUP,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            subscription_data_set=[],
        )
        await broker.call(Heartbeat(body=HeartbeatData(client_id="c", consumer_data_set=[consumer])))
        message_id = offset_message_id(broker.parts.store_host, hidden)
        not_given = await refused(broker, ConsumeDirectly(consumer_group=GROUP, client_id="c", msg_id=message_id))
        assert "is not on this broker" in not_given.remark


async def test_statistics_of_consumers_and_metrics_count_what_is_confirmed(tmp_path: Path) -> None:
    clock = FakeClock()
    async with gated_broker(tmp_path, clock) as broker:
        await half_confirmed(broker, clock)
        broker.parts.offsets.commit(GROUP, TOPIC, 0, 0)
        stats = (await broker.call(GetConsumeStats(GROUP))).body.offset_table
        assert [pair.broker_offset for pair in stats.values()] == [1, 1, 0, 0]
        spans = (await broker.call(GetConsumeTimeSpans(TOPIC, GROUP))).body.consume_time_span_set
        assert max(span.max_time_stamp for span in spans) == clock.now_ms() - 5000
        assert await _lag(broker) == 1
        broker.confirm()
        assert await _lag(broker) == 3


async def _lag(broker: GatedBroker) -> int:
    """Of queue 0; in the others the group has no offset, so nothing counts."""
    exposition = await MetricsCollector(broker.parts, Replication()).collect()
    (line,) = [
        line
        for line in exposition.text().decode().splitlines()
        if line.startswith("rocketmq_consumer_lag_messages{") and f'consumer_group="{GROUP}"' in line
    ]
    return round(float(line.rsplit(" ", 1)[1]))


async def test_a_group_is_reset_to_what_is_confirmed_at_most(tmp_path: Path) -> None:
    clock = FakeClock()
    async with gated_broker(tmp_path, clock) as broker:
        await half_confirmed(broker, clock)
        to_the_end = ResetOffsets(topic=TOPIC, group=GROUP, timestamp=-1, is_force=True)
        offsets = (await broker.call(to_the_end)).body.offset_table
        assert sorted(offsets.values()) == [0, 0, 1, 1]
        beyond = ResetOffsets(topic=TOPIC, group=GROUP, queue_id=0, offset=QueueOffset(2))
        assert "goes from 0 to 1" in (await refused(broker, beyond)).remark


async def test_an_offset_that_another_member_confirmed_can_be_committed_here(tmp_path: Path) -> None:
    """After a change of the master: consumers are ahead of what the new one knows to be confirmed."""
    clock = FakeClock()
    async with gated_broker(tmp_path, clock) as broker:
        await half_confirmed(broker, clock)
        await broker.call(UpdateConsumerOffset(GROUP, TOPIC, 0, QueueOffset(3)))
        assert broker.parts.offsets.get(GROUP, TOPIC, 0) == 3
        beyond = await refused(broker, UpdateConsumerOffset(GROUP, TOPIC, 0, QueueOffset(4)))
        assert "ends at 1" in beyond.remark


# --- waiting pulls ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 1])
async def test_a_waiting_pull_wakes_when_messages_are_confirmed(tmp_path: Path, offset: int) -> None:
    async with gated_broker(tmp_path) as broker:
        first, second = broker.put(draft(b"1", TOPIC), draft(b"2", TOPIC))
        pull = asyncio.ensure_future(broker.call(a_pull(queue_offset=offset, sys_flag=6)))
        await until(lambda: len(broker.parts.pull_waiters) == 1)
        broker.put(draft(b"3", TOPIC))
        assert len(broker.parts.pull_waiters) == 1, "an append alone wakes nobody"
        broker.confirm(second.end)
        assert [message.body for message in decode_all((await pull).body)] == [b"1", b"2"][offset:]
        assert first.end < second.end


async def test_a_waiting_pull_ahead_of_what_is_confirmed_waits_on(tmp_path: Path) -> None:
    async with gated_broker(tmp_path) as broker:
        first, second, third = broker.put(*[draft(b"%d" % number, TOPIC) for number in (1, 2, 3)])
        pull = asyncio.ensure_future(broker.call(a_pull(queue_offset=2, sys_flag=6)))
        await until(lambda: len(broker.parts.pull_waiters) == 1)
        for end in (first.end, second.end):
            broker.confirm(end)
            assert len(broker.parts.pull_waiters) == 0, "it is woken, and reads again"
            await turns()
            assert len(broker.parts.pull_waiters) == 1
        assert not pull.done()
        broker.confirm(third.end)
        assert [message.body for message in decode_all((await pull).body)] == [b"3"]


async def test_what_was_there_at_the_start_wakes_pulls_of_any_tag(tmp_path: Path) -> None:
    async with gated_broker(tmp_path) as broker:
        broker.put(draft(b"1", TOPIC, tag="red"))
    async with gated_broker(tmp_path) as broker:
        pull = asyncio.ensure_future(broker.call(a_pull(subscription="red", sys_flag=6)))
        await until(lambda: len(broker.parts.pull_waiters) == 1)
        broker.confirm()
        response = await pull
        if response.code == ResponseCode.PULL_RETRY_IMMEDIATELY:  # its block is checked by a thread first
            assert await broker.bodies(subscription="red") == [b"1"]
        else:
            assert [message.body for message in decode_all(response.body)] == [b"1"]


# --- senders ----------------------------------------------------------------------------------------------------------


async def test_a_sender_is_answered_when_its_message_is_confirmed(tmp_path: Path) -> None:
    async with gated_broker(tmp_path) as broker:
        sends = [asyncio.ensure_future(broker.call(a_send(b"%d" % number))) for number in range(3)]
        await until(lambda: broker.parts.writer.waiting == 3)
        assert not any(send.done() for send in sends)
        broker.confirm()
        assert sorted([(await send).queue_offset for send in sends]) == [0, 1, 2]
        assert broker.parts.writer.waiting == 0
        assert (await broker.call(a_send(b"no wait", {"WAIT": "false"}))).queue_offset == 3


async def test_a_change_of_the_role_ends_every_waiting_send_as_unknown(tmp_path: Path) -> None:
    async with gated_broker(tmp_path) as broker:
        sends = [asyncio.ensure_future(broker.call(a_send(b"%d" % number))) for number in range(3)]
        await until(lambda: broker.parts.writer.waiting == 3)
        broker.next_epoch()
        for send in sends:
            with pytest.raises(RequestFailed, match="its outcome is unknown") as caught:
                await send
            assert caught.value.code == ResponseCode.SYSTEM_ERROR
        assert await broker.bodies() == []


async def test_while_writes_are_suspended_nothing_is_stored_nor_made(tmp_path: Path) -> None:
    async with gated_broker(tmp_path) as broker:
        (stored,) = broker.put(draft(SEEN, TOPIC))
        broker.confirm()
        broker.store.suspend_writes("1 member in sync, 2 are needed (minInSyncReplicas)")
        end = broker.store.components.commit_log.max_offset
        requests = [
            a_send(),
            a_send(topic="fresh"),
            SendBack(offset=PhysicalOffset(stored.physical_offset), group=GROUP, delay_level=0),
        ]
        for request in requests:
            failed = await refused(broker, request)
            assert failed.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "minInSyncReplicas" in failed.remark
        assert broker.store.components.commit_log.max_offset == end
        assert broker.parts.topics.get("fresh") is None
        assert await broker.bodies() == [SEEN]
        broker.store.suspend_writes(None)
        send = asyncio.ensure_future(broker.call(a_send()))
        await until(lambda: broker.parts.writer.waiting == 1)
        broker.confirm()
        assert (await send).queue_offset == 1


# --- background work --------------------------------------------------------------------------------------------------


async def test_a_delayed_message_is_delivered_only_when_it_is_confirmed(tmp_path: Path) -> None:
    clock = FakeClock()
    async with gated_broker(tmp_path, clock) as broker:
        await broker.call(a_send(b"late", {"DELAY": "1", "WAIT": "false"}))
        await clock.advance(5)
        queue = broker.store.components.queues.get(SCHEDULE, 0)
        assert queue is not None
        assert broker.store.components.queues.get(TOPIC, 0) is None, "nothing is delivered"
        assert broker.parts.delayed.progress() == {1: (0, 0)}
        broker.confirm()
        await clock.advance(0.01)
        await until(lambda: broker.store.components.queues.get(TOPIC, 0) is not None)
        assert await broker.bodies() == []
        broker.confirm()
        assert await broker.bodies() == [b"late"]
