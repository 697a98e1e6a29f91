"""Batches over real sockets."""

from pathlib import Path
from typing import Any

import pytest

from ariane.errors import RequestFailed
from ariane.wire.codes import ResponseCode
from ariane.wire.message_id import decode_offset_message_id
from ariane.wire.properties import encode_properties
from ariane.wire.record.batch import BatchItem, encode_batch
from ariane.wire.record.read import decode_all
from ariane.wire.requests.send import SendBatch
from tests.broker.in_process_broker import TOPIC, InProcessBroker, a_send, in_process_broker


def item(body: bytes, **properties: str) -> BatchItem:
    return BatchItem(body, encode_properties(properties), flag=len(body))


def a_batch(*items: BatchItem, body: bytes | None = None, **changes: Any) -> SendBatch:
    single = a_send(encode_batch(items) if body is None else body, batch=True, **changes)
    return SendBatch(**{name: getattr(single, name) for name in single.__struct_fields__})


async def refusal(broker: InProcessBroker, request: SendBatch) -> str:
    before = broker.store.components.commit_log.max_offset
    with pytest.raises(RequestFailed) as caught:
        await broker.call(request)
    assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert broker.store.components.commit_log.max_offset == before
    return caught.value.remark


async def test_each_message_of_a_batch_is_a_record_of_its_own(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await broker.call(a_send(b"before"))
        response = await broker.call(a_batch(item(b"a", TAGS="x", KEYS="k1"), item(b"bb", KEYS="k2")))
        messages = decode_all(b"".join(broker.store.reader.read(TOPIC, 0, 1, 32).slices))
        assert [message.body for message in messages] == [b"a", b"bb"]
        assert [message.properties for message in messages] == [{"TAGS": "x", "KEYS": "k1"}, {"KEYS": "k2"}]
        assert [message.flag for message in messages] == [1, 2]
        ids = response.msg_id.split(",")
        assert [decode_offset_message_id(message_id).physical_offset for message_id in ids] == [
            m.physical_offset for m in messages
        ]
        assert response.queue_offset == 1


async def test_a_batch_may_come_by_the_code_of_a_single_send(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        body = encode_batch([item(b"a"), item(b"b")])
        response = await broker.call(a_send(body, batch=True))
        assert len(response.msg_id.split(",")) == 2


async def test_a_one_in_the_batch_field_is_not_true(tmp_path: Path) -> None:
    """C++ 1.x says batch=1, which is false in Java: the body is one message."""
    async with in_process_broker(tmp_path) as broker:
        body = encode_batch([item(b"a"), item(b"b")])
        await broker.call(a_send(body, batch=1))
        (message,) = decode_all(b"".join(broker.store.reader.read(TOPIC, 0, 0, 32).slices))
        assert message.body == body


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_SEC", "TRAN_MSG"])
async def test_delays_and_transactions_are_for_single_messages(tmp_path: Path, name: str) -> None:
    async with in_process_broker(tmp_path) as broker:
        assert name in await refusal(broker, a_batch(item(b"a"), item(b"b", **{name: "1"})))
        assert name in await refusal(broker, a_batch(item(b"a"), properties={name: "1"}))


async def test_a_delay_of_zero_is_none(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await broker.call(a_batch(item(b"a", DELAY="0")))


async def test_a_batch_of_retries_is_refused(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        assert "one by one" in await refusal(broker, a_batch(item(b"a"), topic="%RETRY%g"))


async def test_a_batch_with_transaction_bits_is_refused(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        assert "0x4" in await refusal(broker, a_batch(item(b"a"), sys_flag=4))


async def test_an_empty_message_in_a_batch_refuses_all_of_it(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        assert "empty" in await refusal(broker, a_batch(item(b"a"), item(b"")))


async def test_a_body_that_is_no_batch_is_refused_with_the_place(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        good = encode_batch([item(b"a")])
        assert f"byte {len(good)}" in await refusal(broker, a_batch(body=good + b"\0\0\0\1"))


async def test_a_batch_above_the_limit_is_refused_whole(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, store={"max_message_bytes": 2000}) as broker:
        assert "maxMessageSize" in await refusal(broker, a_batch(item(bytes(1500)), item(bytes(1500))))
        body = encode_batch([item(b"x")] * 200)[:2000]
        fits = encode_batch([item(b"x")] * (len(body) // len(encode_batch([item(b"x")]))))
        assert len((await broker.call(a_batch(body=fits))).msg_id.split(",")) == 86  # their records are larger, in sum


async def test_properties_of_a_batch_that_are_no_text_are_refused(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        assert "UTF-8" in await refusal(broker, a_batch(BatchItem(b"a", b"k\x01\xff\x02")))
        assert "separate" in await refusal(broker, a_batch(BatchItem(b"a", b"k\x01a\x01b\x02")))


async def test_a_record_checksum_in_a_batch_is_not_stored(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        await broker.call(a_batch(BatchItem(b"a", b"k\x01v\x02__CRC32#\x010123456789\x02")))
        (message,) = decode_all(b"".join(broker.store.reader.read(TOPIC, 0, 0, 32).slices))
        assert message.properties == {"k": "v"}
