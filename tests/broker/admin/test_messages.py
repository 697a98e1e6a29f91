"""Queries of messages by key, by id and by queue offset, over real sockets."""

from pathlib import Path
from typing import Any

import pytest

from ariane.broker.admin import messages
from ariane.errors import RequestFailed
from ariane.model.group import Subscription
from ariane.model.ids import PhysicalOffset
from ariane.wire.codes import ResponseCode
from ariane.wire.hashes import java_hash
from ariane.wire.message_id import decode_offset_message_id
from ariane.wire.record.read import decode, decode_all
from ariane.wire.requests.messages import QueryConsumeQueue, QueryMessages, ViewMessage
from tests.broker.in_process_broker import GROUP, TOPIC, InProcessBroker, a_send, in_process_broker


def a_query(key: str, **changes: Any) -> QueryMessages:
    fields = {"topic": TOPIC, "max_num": 32, "begin_timestamp": 0, "end_timestamp": 2**62}
    return QueryMessages(**{**fields, "key": key, **changes})


async def bodies(broker: InProcessBroker, request: QueryMessages) -> list[bytes]:
    return [message.body for message in decode_all((await broker.call(request)).body)]


async def failure(broker: InProcessBroker, request: Any) -> RequestFailed:
    with pytest.raises(RequestFailed) as caught:
        await broker.call(request)
    return caught.value


# --- by key ---------------------------------------------------------------------------------------------------------


async def test_a_message_is_found_by_each_of_its_keys_as_soon_as_it_is_stored(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await broker.call(a_send(b"one", {"KEYS": "order-1 customer-7"}))
        await broker.call(a_send(b"two", {"KEYS": "order-2 customer-7"}))
        assert await bodies(broker, a_query("order-1")) == [b"one"]
        assert await bodies(broker, a_query("customer-7")) == [b"two", b"one"]
        assert await bodies(broker, a_query("customer-7", max_num=1)) == [b"two"]
        assert await bodies(broker, a_query("customer-7", max_num=-3)) == [b"two"]


async def test_the_response_contains_the_end_of_the_index(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await broker.call(a_send(b"one", {"KEYS": "k"}))
        response = await broker.call(a_send(b"two", {"KEYS": "k"}))
        found = await broker.call(a_query("k"))
        last = decode_offset_message_id(response.msg_id).physical_offset
        record = broker.store.lookup.record_at(last)
        assert record is not None
        assert found.index_last_update_phyoffset == last
        assert found.index_last_update_timestamp == decode(record).store_timestamp_ms


async def test_a_unique_key_is_found_for_any_requested_number(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        for body in (b"one", b"two"):
            await broker.call(a_send(body, {"UNIQ_KEY": "u"}))
        assert await bodies(broker, a_query("u", max_num=1, unique_key_query=True)) == [b"two", b"one"]


@pytest.mark.parametrize(
    "changes", [{"key": "other"}, {"topic": "elsewhere"}, {"end_timestamp": 5}, {"begin_timestamp": 2**61}, {"key": ""}]
)
async def test_a_missing_key_is_not_found(tmp_path: Path, changes: dict[str, Any]) -> None:
    async with in_process_broker(tmp_path) as broker:
        await broker.call(a_send(b"one", {"KEYS": "k"}))
        assert (await failure(broker, a_query(**{"key": "k", **changes}))).code == ResponseCode.QUERY_NOT_FOUND


async def test_a_store_without_an_index_finds_nothing(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, store={"index_enable": False}) as broker:
        await broker.call(a_send(b"one", {"KEYS": "k"}))
        assert (await failure(broker, a_query("k"))).code == ResponseCode.QUERY_NOT_FOUND


async def test_a_response_fits_into_a_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "BODY_BYTES_MAX", 3000)
    async with in_process_broker(tmp_path) as broker:
        for number in range(5):
            await broker.call(a_send(bytes([number]) * 1000, {"KEYS": "k"}))
        found = await bodies(broker, a_query("k"))
        assert [body[0] for body in found] == [4, 3]


# --- by id ----------------------------------------------------------------------------------------------------------


async def test_a_message_is_found_by_the_offset_in_its_id(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await broker.call(a_send(b"one"))
        response = await broker.call(a_send(b"two"))
        offset = decode_offset_message_id(response.msg_id).physical_offset
        assert decode((await broker.call(ViewMessage(offset))).body).body == b"two"


@pytest.mark.parametrize("offset", [-1, 1, 7, 10**15, 2**63 - 1, -(2**63)])
async def test_an_offset_where_no_message_starts_is_an_error(tmp_path: Path, offset: int) -> None:
    async with in_process_broker(tmp_path) as broker:
        await broker.call(a_send(b"one"))
        error = await failure(broker, ViewMessage(PhysicalOffset(offset)))
        assert error.code == ResponseCode.SYSTEM_ERROR
        assert str(offset) in error.remark


async def test_a_message_that_has_left_memory_is_fetched_by_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with in_process_broker(tmp_path) as broker:
        await broker.call(a_send(b"one", {"KEYS": "k"}))
        segment = broker.store.components.commit_log.segments.first
        assert segment is not None
        broker.store.make_durable()  # what was written since then is taken to be in memory
        monkeypatch.setattr(type(segment.file), "read_cached", lambda self, length, position: None)
        assert decode((await broker.call(ViewMessage(PhysicalOffset(0)))).body).body == b"one"
        assert await bodies(broker, a_query("k")) == [b"one"]


# --- entries --------------------------------------------------------------------------------------------------------


async def test_entries_of_a_queue_are_shown_with_the_filters_verdict(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        red = Subscription(topic=TOPIC, sub_string="red", tags_set=["red"], code_set=[java_hash("red")])
        await broker.subscribe(red)
        for tag in ("red", "blue", "red"):
            await broker.call(a_send(tag.encode(), {"TAGS": tag}))
        page = (await broker.call(QueryConsumeQueue(TOPIC, 0, 1, 10, GROUP))).body
        assert (page.min_queue_index, page.max_queue_index) == (0, 3)
        assert [(entry.tags_code, entry.eval) for entry in page.queue_data] == [
            (java_hash("blue"), False),
            (java_hash("red"), True),
        ]
        assert page.subscription_data is not None
        record = broker.store.lookup.record_at(page.queue_data[0].physic_offset)
        assert record is not None
        assert len(record) == page.queue_data[0].physic_size


async def test_entries_are_filtered_by_sql_on_their_records(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await broker.subscribe(Subscription(topic=TOPIC, sub_string="n > 1", expression_type="SQL92"))
        for number in range(3):
            await broker.call(a_send(properties={"n": str(number)}))
        page = (await broker.call(QueryConsumeQueue(TOPIC, 0, 0, 10, GROUP))).body
        assert [entry.eval for entry in page.queue_data] == [False, False, True]


async def test_an_offline_group_is_mentioned_in_the_response(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await broker.call(a_send())
        page = (await broker.call(QueryConsumeQueue(TOPIC, 0, 0, 1, "absent"))).body
        assert page.subscription_data is None
        assert page.filter_data == f"absent@{TOPIC} is not online!"
        assert len((await broker.call(QueryConsumeQueue(TOPIC, 0, 0, -4))).body.queue_data) == 1


@pytest.mark.parametrize(
    ("topic", "queue_id", "index"), [("nowhere", 0, 0), (TOPIC, 3, 0), (TOPIC, 0, 9), (TOPIC, 0, -1)]
)
async def test_entries_that_are_not_there_are_an_error(tmp_path: Path, topic: str, queue_id: int, index: int) -> None:
    async with in_process_broker(tmp_path) as broker:
        await broker.call(a_send())
        error = await failure(broker, QueryConsumeQueue(topic, queue_id, index, 10))
        assert error.code == ResponseCode.SYSTEM_ERROR
