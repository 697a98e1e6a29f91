"""Sends that come in one chunk: one append, one answer each, and the same bytes as if each had come alone."""

import asyncio
import os
from pathlib import Path

import pytest

from ariane.broker.send.responses import SendResponses, requester
from ariane.broker.settings import BrokerSettings
from ariane.rpc.handlers import encode_result
from ariane.store.append.draft import Appended, Draft
from ariane.store.settings import FlushDiskType
from ariane.wire.codes import HeaderFlag, ResponseCode, Serialization
from ariane.wire.exchange import read_response, request_command
from ariane.wire.fields import Request
from ariane.wire.frame import Command, FrameDecoder, encode_frame
from ariane.wire.record.read import decode_all
from ariane.wire.requests.send import SendMessageV2, SendResponse
from tests.broker.in_process_broker import STORE_HOST, TOPIC, InProcessBroker, a_pull, a_send, in_process_broker

PLACE = Appended(physical_offset=0xABCDEF, queue_offset=42, size=100, store_timestamp_ms=1)
DRAFT = Draft(topic=TOPIC, queue_id=3, body=b"", properties=b"", born_timestamp_ms=1, born_host=STORE_HOST)


@pytest.mark.parametrize("key", [None, "7F0000010001", "", 'a"b', "é", "50%", "a b"], ids=repr)
@pytest.mark.parametrize("serialization", Serialization)
@pytest.mark.parametrize("opaque", [0, -1, 2**31 - 1])
def test_the_template_and_the_general_encoder_write_the_same_bytes(
    key: str | None, serialization: Serialization, opaque: int
) -> None:
    for settings in (BrokerSettings(), BrokerSettings(region_id='R"%d', trace_on=False)):
        responses = SendResponses(settings, STORE_HOST)
        command = Command(code=310, opaque=opaque, serialization=serialization)
        general = encode_result(command, responses.response(ResponseCode.SUCCESS, (PLACE,), 3, key))
        assert responses.stored([((requester(command, key), key, None, 3, DRAFT, None), PLACE)]) == general


def test_who_asks_one_way_is_not_answered() -> None:
    responses = SendResponses(BrokerSettings(), STORE_HOST)
    request = requester(Command(code=310, flag=HeaderFlag.ONEWAY), None)
    assert responses.stored([((request, None, None, 3, DRAFT, None), PLACE)]) == b""


async def in_one_chunk(broker: InProcessBroker, *requests: Request[SendResponse]) -> list[Command]:
    """The answers in the order of the requests, which all go out in one write."""
    reader, writer = await asyncio.open_connection(*broker.address.split(":"))
    writer.write(b"".join(encode_frame(request_command(request, opaque=n)) for n, request in enumerate(requests)))
    decoder, responses = FrameDecoder(), dict[int, Command]()
    async with asyncio.timeout(10):
        while len(responses) < len(requests):
            decoder.feed(await reader.read(65536))
            responses |= {command.opaque: command for command in decoder}
    writer.close()
    await writer.wait_closed()
    return [responses[n] for n in range(len(requests))]


@pytest.mark.parametrize("flush", FlushDiskType)
async def test_a_chunk_is_stored_by_one_write_and_each_message_gets_its_own_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: FlushDiskType
) -> None:
    async with in_process_broker(tmp_path, flush=flush) as broker:
        await broker.call(a_send(b"first"))
        log_writes = []
        real_write = os.pwrite

        def counted(descriptor: int, data: bytes, position: int) -> int:
            log_writes.append(len(data))
            return real_write(descriptor, data, position)

        requests = [a_send(b"%d" % n, {"UNIQ_KEY": f"K{n}"}, queue_id=n % 2) for n in range(20)]
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", counted)
            found = await in_one_chunk(broker, *requests)
        responses = [read_response(request, command) for request, command in zip(requests, found, strict=True)]
        assert [response.queue_offset for response in responses] == [
            n // 2 + (1 if n % 2 == 0 else 0) for n in range(20)
        ]
        assert [response.transaction_id for response in responses] == [f"K{n}" for n in range(20)]
        assert len(log_writes) < 20
        bodies = [message.body for message in decode_all((await broker.call(a_pull())).body)]
        assert bodies == [b"first", *(b"%d" % n for n in range(0, 20, 2))]


async def test_one_that_is_refused_does_not_hurt_the_others(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, store={"max_message_bytes": 2000}) as broker:
        requests = [
            a_send(b"a"),
            a_send(b"x" * 3000),
            a_send(b"", queue_id=1),
            a_send(b"b"),
            a_send(b"c", topic="unknown"),
        ]
        codes = [command.code for command in await in_one_chunk(broker, *requests)]
        assert codes == [0, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.MESSAGE_ILLEGAL, 0, ResponseCode.TOPIC_NOT_EXIST]
        _, messages = await broker.pulled()
        assert [message.body for message in messages] == [b"a", b"b"]


async def test_messages_of_one_queue_keep_their_order_when_one_of_them_is_stored_at_once(tmp_path: Path) -> None:
    """A client's own CLUSTER property takes the general path; those before it must not fall behind it."""
    async with in_process_broker(tmp_path) as broker:
        requests: list[SendMessageV2] = [a_send(b"1"), a_send(b"2", {"CLUSTER": "mine"}), a_send(b"3")]
        await in_one_chunk(broker, *requests)
        _, messages = await broker.pulled(topic=TOPIC)
        assert [message.body for message in messages] == [b"1", b"2", b"3"]
