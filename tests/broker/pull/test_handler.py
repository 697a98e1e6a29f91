"""Pulls over real sockets: every check in its order, every status, filters and limits."""

from pathlib import Path
from typing import Any

import pytest

from ariane.errors import RequestFailed
from ariane.model.group import GroupConfig, MessageModel, Subscription
from ariane.model.system_topics import OFFSET_MOVED_EVENT
from ariane.model.topic import TopicConfig
from ariane.wire.codes import ResponseCode
from ariane.wire.exchange import request_command
from ariane.wire.frame import encode_frame
from ariane.wire.hashes import java_hash
from ariane.wire.record.read import decode_all
from ariane.wire.requests.pull import LitePull
from tests.broker.in_process_broker import GROUP, TOPIC, InProcessBroker, a_pull, a_send, in_process_broker
from tests.transport.peers import connected


async def refusal(broker: InProcessBroker, **changes: Any) -> RequestFailed:
    with pytest.raises(RequestFailed) as caught:
        await broker.call(a_pull(**changes))
    return caught.value


async def fill(broker: InProcessBroker, count: int, **properties: str) -> None:
    for number in range(count):
        await broker.call(a_send(b"%d" % number, {"n": str(number), **properties}))


# --- checks, in their order -----------------------------------------------------------------------------------------


async def test_a_broker_that_is_write_only_refuses(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, permission=2) as broker:
        error = await refusal(broker, topic="nowhere")
        assert error.code == ResponseCode.NO_PERMISSION
        assert "brokerPermission = 2" in error.remark


async def test_an_unknown_group_is_refused_when_groups_are_not_made(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, auto_create_groups=False) as broker:
        assert (await refusal(broker)).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_a_group_that_may_not_consume_is_refused(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        broker.groups.put(GroupConfig(group_name=GROUP, consume_enable=False))
        error = await refusal(broker)
        assert error.code == ResponseCode.NO_PERMISSION
        assert "consumeEnable" in error.remark


async def test_an_unknown_topic_is_refused(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        assert (await refusal(broker, topic="nowhere")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_topic_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, topics=[TopicConfig(topic_name=TOPIC, perm=2)]) as broker:
        error = await refusal(broker)
        assert error.code == ResponseCode.NO_PERMISSION
        assert "perm = 2" in error.remark


@pytest.mark.parametrize("queue_id", [-1, 4, 2**31 - 1])
async def test_a_queue_that_is_not_there_is_refused(tmp_path: Path, queue_id: int) -> None:
    async with in_process_broker(tmp_path) as broker:
        error = await refusal(broker, queue_id=queue_id)
        assert error.code == ResponseCode.SYSTEM_ERROR
        assert "4 read queues" in error.remark


@pytest.mark.parametrize("expression", ["a >", "a = ", "(("])
async def test_a_bad_expression_is_refused_with_its_position(tmp_path: Path, expression: str) -> None:
    async with in_process_broker(tmp_path) as broker:
        error = await refusal(broker, subscription=expression, expression_type="SQL92")
        assert error.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert "position" in error.remark


async def test_without_a_heartbeat_there_is_no_subscription(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        assert (await refusal(broker, sys_flag=0)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_a_topic_that_the_group_does_not_subscribe_to_is_refused(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await broker.subscribe(Subscription(topic="other"))
        assert (await refusal(broker, sys_flag=0)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_a_group_that_may_not_broadcast_is_refused(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        broker.groups.put(GroupConfig(group_name=GROUP, consume_broadcast_enable=False))
        await broker.subscribe(Subscription(topic=TOPIC), message_model=MessageModel.BROADCASTING)
        error = await refusal(broker, sys_flag=0)
        assert error.code == ResponseCode.NO_PERMISSION
        assert "consumeBroadcastEnable" in error.remark


async def test_a_subscription_that_the_heartbeat_has_not_brought_yet_is_not_the_latest(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await broker.subscribe(Subscription(topic=TOPIC, sub_version=5))
        assert (await refusal(broker, sys_flag=0, sub_version=6)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        await broker.call(a_pull(sys_flag=0, sub_version=5))


async def test_sql_is_refused_where_it_is_switched_off(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, property_filter=False) as broker:
        error = await refusal(broker, subscription="a = 1", expression_type="SQL92")
        assert error.code == ResponseCode.SYSTEM_ERROR
        assert "enablePropertyFilter" in error.remark


# --- statuses -------------------------------------------------------------------------------------------------------


async def test_found_messages_come_as_they_are_stored(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await fill(broker, 3)
        response, messages = await broker.pulled(queue_offset=1)
        assert (response.code, response.remark) == (ResponseCode.SUCCESS, "FOUND")
        assert [message.body for message in messages] == [b"1", b"2"]
        assert (response.next_begin_offset, response.min_offset, response.max_offset) == (3, 0, 3)
        assert response.suggest_which_broker_id == 0


@pytest.mark.parametrize("code", [11, 361])
async def test_the_four_numbers_come_as_text_with_every_outcome(tmp_path: Path, code: int) -> None:
    async with in_process_broker(tmp_path) as broker, connected(broker.server) as client:
        await fill(broker, 1)
        for offset in (0, 1, 9):
            command = request_command(a_pull(queue_offset=offset), opaque=1)
            command.code = code
            await client.send(encode_frame(command))
            response = await client.read()
            assert set(response.ext) == {"suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"}


async def test_a_lite_pull_means_the_same(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await fill(broker, 1)
        request = a_pull()
        fields = {name: getattr(request, name) for name in request.__struct_fields__}
        response = await broker.call(LitePull(**{**fields, "sys_flag": 20}))
        assert [message.body for message in decode_all(response.body)] == [b"0"]


async def test_at_the_end_of_a_queue_nothing_is_found(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await fill(broker, 2)
        response = await broker.call(a_pull(queue_offset=2))
        assert (response.code, response.remark) == (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE")
        assert response.next_begin_offset == 2


async def test_a_queue_without_messages_is_waited_for_at_0_only(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        assert (await broker.call(a_pull())).code == ResponseCode.PULL_NOT_FOUND
        moved = await broker.call(a_pull(queue_offset=3))
        assert (moved.code, moved.next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, 0)


async def test_an_offset_behind_the_end_moves_and_is_reported_to_operators(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await fill(broker, 2)
        response = await broker.call(a_pull(queue_offset=9))
        assert (response.code, response.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY")
        assert response.next_begin_offset == 2
        (event,) = decode_all(b"".join(broker.store.reader.read(OFFSET_MOVED_EVENT, 0, 0, 9).slices))
        assert event.body == (
            b'{"consumerGroup":"billing","messageQueue":{"brokerName":"broker-a","queueId":0,"topic":"orders"},'
            b'"offsetNew":2,"offsetRequest":9}'
        )
        assert (event.properties["TAGS"], event.properties["KEYS"]) == (GROUP, GROUP)


async def test_an_offset_before_the_beginning_moves_to_it(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await fill(broker, 3)
        queue = broker.store.components.queues.get(TOPIC, 0)
        assert queue is not None
        queue.min_offset = 2  # as retention leaves it
        response = await broker.call(a_pull(queue_offset=1))
        assert (response.code, response.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL")
        assert response.next_begin_offset == 2


async def test_a_read_only_store_still_answers_an_offset_that_moved(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        broker.store.flusher.failed(OSError(5, "broken"))
        assert (await broker.call(a_pull(queue_offset=9))).code == ResponseCode.PULL_OFFSET_MOVED


# --- filters --------------------------------------------------------------------------------------------------------


async def test_tags_are_filtered_by_their_hash(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        for tag in ("red", "blue", "green", "red"):
            await broker.call(a_send(tag.encode(), {"TAGS": tag}))
        response, messages = await broker.pulled(subscription="red || green")
        assert [message.body for message in messages] == [b"red", b"green", b"red"]
        assert response.next_begin_offset == 4


async def test_a_filter_that_nothing_passes_moves_on(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await fill(broker, 5, TAGS="red")
        response = await broker.call(a_pull(subscription="blue"))
        assert (response.code, response.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
        assert response.next_begin_offset == 5


async def test_sql_is_evaluated_on_the_properties(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await fill(broker, 10)
        response, messages = await broker.pulled(subscription="n BETWEEN 3 AND 5", expression_type="SQL92")
        assert [message.body for message in messages] == [b"3", b"4", b"5"]
        assert response.next_begin_offset == 10
        nothing = await broker.call(a_pull(subscription="n > 100", expression_type="SQL92"))
        assert (nothing.code, nothing.next_begin_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 10)


async def test_sql_stops_when_enough_was_found_or_looked_at(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await fill(broker, 450)
        response, messages = await broker.pulled(subscription="n >= 1", expression_type="SQL92", max_msg_nums=3)
        assert [message.body for message in messages] == [b"1", b"2", b"3"]
        assert response.next_begin_offset == 4
        late, none = await broker.pulled(subscription="n > 445", expression_type="SQL92")
        assert (late.code, none) == (ResponseCode.PULL_RETRY_IMMEDIATELY, [])
        assert 400 <= late.next_begin_offset < 450
        _, found = await broker.pulled(
            subscription="n > 445", expression_type="SQL92", queue_offset=late.next_begin_offset
        )
        assert [message.body for message in found] == [b"446", b"447", b"448", b"449"]


async def test_the_heartbeats_subscription_counts_when_the_pull_brings_none(tmp_path: Path) -> None:
    """Go sends an empty subscription, an empty type and version 0 with every pull."""
    async with in_process_broker(tmp_path) as broker:
        red = Subscription(topic=TOPIC, sub_string="red", tags_set=["red"], code_set=[java_hash("red")], sub_version=9)
        await broker.subscribe(red)
        for tag in ("red", "blue"):
            await broker.call(a_send(tag.encode(), {"TAGS": tag}))
        _, messages = await broker.pulled(sys_flag=0, subscription="", expression_type="", sub_version=0)
        assert [message.body for message in messages] == [b"red"]


async def test_an_empty_type_in_the_pull_means_tags(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await broker.call(a_send(b"red", {"TAGS": "red"}))
        _, messages = await broker.pulled(subscription="red", expression_type="")
        assert len(messages) == 1


# --- limits, hints, commits -----------------------------------------------------------------------------------------


async def test_no_more_than_32_messages_come_at_once(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await fill(broker, 40)
        response, messages = await broker.pulled(max_msg_nums=1000)
        assert len(messages) == 32
        assert response.next_begin_offset == 32


@pytest.mark.parametrize("count", [0, -7, 1])
async def test_one_message_comes_at_least(tmp_path: Path, count: int) -> None:
    async with in_process_broker(tmp_path) as broker:
        await fill(broker, 3)
        _, messages = await broker.pulled(max_msg_nums=count)
        assert len(messages) == 1


async def test_a_limit_in_bytes_holds_but_for_the_first_message(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        for _ in range(4):
            await broker.call(a_send(bytes(1000)))
        _, three = await broker.pulled(max_msg_bytes=3500)
        _, one = await broker.pulled(max_msg_bytes=10)
        _, all_of_them = await broker.pulled(max_msg_bytes=-1)
        assert (len(three), len(one), len(all_of_them)) == (3, 1, 4)


async def test_who_is_far_behind_is_sent_to_a_slave_where_that_is_allowed(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, slave_read=True, store={"memory_ratio": 0.0}) as broker:
        await fill(broker, 2)
        broker.groups.put(GroupConfig(group_name=GROUP, which_broker_when_consume_slowly=3))
        assert (await broker.call(a_pull())).suggest_which_broker_id == 3


async def test_the_offset_in_a_pull_is_committed_when_the_flag_says_so(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await fill(broker, 5)
        await broker.call(a_pull(commit_offset=3))
        assert broker.offsets.get(GROUP, TOPIC, 0) == -1
        await broker.call(a_pull(sys_flag=5, commit_offset=3))
        assert broker.offsets.get(GROUP, TOPIC, 0) == 3
        await broker.call(a_pull(sys_flag=5, commit_offset=2))  # of a member that lost the queue to another
        await broker.call(a_pull(sys_flag=5, commit_offset=-1))
        assert broker.offsets.get(GROUP, TOPIC, 0) == 3


# --- cold -----------------------------------------------------------------------------------------------------------


async def test_what_has_left_memory_is_fetched_by_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with in_process_broker(tmp_path) as broker:
        await fill(broker, 5, TAGS="red")
        segment = broker.store.components.commit_log.segments.first
        assert segment is not None
        broker.store.make_durable()  # what was written since then is taken to be in memory
        monkeypatch.setattr(type(segment.file), "read_cached", lambda self, length, position: None)
        _, messages = await broker.pulled()
        _, filtered = await broker.pulled(subscription="n > 2", expression_type="SQL92")
        assert (len(messages), len(filtered)) == (5, 2)
        assert (await broker.call(a_pull(queue_offset=5))).code == ResponseCode.PULL_NOT_FOUND
