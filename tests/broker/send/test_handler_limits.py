"""The largest sends that are legal, and those beyond: frames as Java and Go write them, on one connection."""

import json
import struct
from pathlib import Path

import pytest

from ariane.broker.send.batch import BATCH_COUNT_MAX
from ariane.wire.codes import HeaderFlag, RequestCode, ResponseCode, Serialization
from ariane.wire.frame import FRAME_BYTES_MAX, Command, encode_frame
from ariane.wire.message_id import decode_offset_message_id
from ariane.wire.properties import PROPERTIES_BYTES_MAX
from ariane.wire.record.batch import BatchItem, encode_batch
from tests.broker.in_process_broker import TOPIC, InProcessBroker, in_process_broker
from tests.transport.peers import RawClient, connected

SENDS = [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE]
OPAQUE = 4711
BODY_BYTES_MAX = 4_194_304
"""Apache's default of maxMessageSize."""


def escaped(text: str) -> str:
    """As an encoder writes it that escapes everything: six bytes for each character."""
    return "".join(f"\\u{ord(character):04x}" for character in text)


def v2_fields(**changes: str) -> dict[str, str]:
    return {
        "a": "producers",
        "b": TOPIC,
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "",
        "j": "0",
        "k": "false",
        "l": "0",
        "m": "false",
        **changes,
    }


def v1_fields(properties: str) -> dict[str, str]:
    return {
        "producerGroup": "producers",
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1700000000000",
        "flag": "0",
        "properties": properties,
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
    }


def json_frame(code: int, fields: dict[str, str], body: bytes, properties: str | None = None) -> bytes:
    """The members in the order of fastjson; `properties` as they stand in the JSON text."""
    header = json.dumps(
        {"code": code, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": OPAQUE, "version": 409},
        separators=(",", ":"),
    )
    if properties is not None:
        header = header.replace('"PROPERTIES"', f'"{properties}"')
    data = header.encode()
    return struct.pack(">iI", 4 + len(data) + len(body), len(data)) + data + body


def plain_send(body: bytes = b"hello") -> bytes:
    return json_frame(RequestCode.SEND_MESSAGE_V2, v2_fields(i="TAGS\x01paid\x02"), body)


async def answer(client: RawClient, frame: bytes) -> Command:
    await client.send(frame)
    response = await client.read()
    assert response.opaque == OPAQUE
    return response


async def assert_goes_on(client: RawClient) -> None:
    assert (await answer(client, plain_send())).code == ResponseCode.SUCCESS


def stored_bytes(broker: InProcessBroker) -> int:
    return broker.store.components.commit_log.max_offset


# --- properties -------------------------------------------------------------------------------------------------------


async def test_the_longest_properties_are_stored_however_json_escapes_them(tmp_path: Path) -> None:
    """32 KiB of properties take 192 KiB of header then."""
    async with in_process_broker(tmp_path) as broker, connected(broker.server) as client:
        added = "CLUSTER\x01DefaultCluster\x02MSG_REGION\x01DefaultRegion\x02"
        value = "x" * (PROPERTIES_BYTES_MAX - len("KEYS\x01k\x02a\x01\x02") - len(added))
        properties = escaped(f"KEYS\x01k\x02a\x01{value}\x02")
        frame = json_frame(RequestCode.SEND_MESSAGE_V2, v2_fields(i="PROPERTIES"), b"hello", properties)
        assert len(frame) > 190_000
        response = await answer(client, frame)
        assert (response.code, response.remark) == (ResponseCode.SUCCESS, None)
        _, (message,) = await broker.pulled()
        assert message.properties["a"] == value
        await assert_goes_on(client)


@pytest.mark.parametrize("code", SENDS)
@pytest.mark.parametrize("count", [40_000, 300_000, 12_000_000])
async def test_longer_properties_are_answered_as_illegal_on_the_same_connection(
    tmp_path: Path, code: RequestCode, count: int
) -> None:
    async with in_process_broker(tmp_path) as broker, connected(broker.server) as client:
        properties = f"a\x01{'x' * count}\x02"
        fields = v1_fields(properties) if code == RequestCode.SEND_MESSAGE else v2_fields(i=properties)
        before = stored_bytes(broker)
        response = await answer(client, json_frame(code, fields, b"hello"))
        assert response.code == ResponseCode.MESSAGE_ILLEGAL
        assert "properties" in (response.remark or "")
        assert stored_bytes(broker) == before
        await assert_goes_on(client)


async def test_the_same_holds_for_binary_headers(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker, connected(broker.server) as client:
        for count, code in ((32_000, ResponseCode.SUCCESS), (2_000_000, ResponseCode.MESSAGE_ILLEGAL)):
            send = Command(
                code=RequestCode.SEND_MESSAGE_V2,
                opaque=OPAQUE,
                ext_texts=v2_fields(i=f"a\x01{'x' * count}\x02"),
                body=b"hello",
                serialization=Serialization.BINARY,
            )
            assert (await answer(client, encode_frame(send))).code == code
        await assert_goes_on(client)


async def test_another_request_with_too_long_a_header_is_refused_on_the_same_connection(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker, connected(broker.server) as client:
        fields = {"topic": "x" * 40_000, "queueId": "0"}
        response = await answer(client, json_frame(RequestCode.GET_MAX_OFFSET, fields, b""))
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert "'topic' has 40000 characters" in (response.remark or "")
        await assert_goes_on(client)


async def test_a_oneway_send_with_too_long_properties_is_not_answered(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker, connected(broker.server) as client:
        send = Command(
            code=RequestCode.SEND_MESSAGE_V2, flag=HeaderFlag.ONEWAY, opaque=1, ext_texts=v2_fields(i="x" * 300_000)
        )
        await client.send(encode_frame(send))
        await assert_goes_on(client)


# --- bodies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [b"", plain_send()], ids=["general path", "fast path"])
async def test_a_body_of_exactly_the_limit_is_stored(tmp_path: Path, first: bytes) -> None:
    async with in_process_broker(tmp_path, store={"segment_bytes": 64 * 1024 * 1024}) as broker:
        async with connected(broker.server) as client:
            if first:
                await answer(client, first)
            response = await answer(client, plain_send(b"x" * BODY_BYTES_MAX))
            assert (response.code, response.remark) == (ResponseCode.SUCCESS, None)
            _, (*_, message) = await broker.pulled(max_msg_nums=2, queue_offset=1 if first else 0)
            assert len(message.body) == BODY_BYTES_MAX
            before = stored_bytes(broker)
            response = await answer(client, plain_send(b"x" * (BODY_BYTES_MAX + 1)))
            assert response.code == ResponseCode.MESSAGE_ILLEGAL
            assert f"at most {BODY_BYTES_MAX}" in (response.remark or "")
            assert stored_bytes(broker) == before
            await assert_goes_on(client)


# --- batches ----------------------------------------------------------------------------------------------------------


def batch_frame(count: int, serialization: Serialization = Serialization.JSON) -> bytes:
    body = encode_batch([BatchItem(b"x", b"", 0)] * count)
    if serialization is Serialization.JSON:
        return json_frame(RequestCode.SEND_BATCH_MESSAGE, v2_fields(m="true"), body)
    send = Command(code=RequestCode.SEND_BATCH_MESSAGE, opaque=OPAQUE, ext_texts=v2_fields(m="true"), body=body)
    send.serialization = serialization
    return encode_frame(send)


@pytest.mark.parametrize("serialization", list(Serialization))
@pytest.mark.parametrize("count", [2_000, 20_000, BATCH_COUNT_MAX])
async def test_a_batch_that_is_stored_is_answered_with_all_its_ids(
    tmp_path: Path, count: int, serialization: Serialization
) -> None:
    """First on the general path, since the topic is new there, then on the fast path, if it has one."""
    async with in_process_broker(tmp_path, store={"segment_bytes": 64 * 1024 * 1024}) as broker:
        async with connected(broker.server) as client:
            for turn in range(2):
                response = await answer(client, batch_frame(count, serialization))
                assert (response.code, response.remark) == (ResponseCode.SUCCESS, None)
                ids = response.ext["msgId"].split(",")
                assert len(set(ids)) == count
                assert response.ext["queueOffset"] == str(turn * count)
                last = broker.store.reader.read(TOPIC, 0, (turn + 1) * count - 1, 1)
                assert (
                    decode_offset_message_id(ids[-1]).physical_offset
                    == struct.unpack_from(">q", bytes(last.slices[0]), 28)[0]
                )
            await assert_goes_on(client)


async def test_a_batch_of_too_many_messages_is_refused_before_any_is_stored(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, store={"segment_bytes": 64 * 1024 * 1024}) as broker:
        async with connected(broker.server) as client:
            await answer(client, plain_send())
            before = stored_bytes(broker)
            response = await answer(client, batch_frame(BATCH_COUNT_MAX + 1))
            assert response.code == ResponseCode.MESSAGE_ILLEGAL
            assert str(BATCH_COUNT_MAX) in (response.remark or "")
            assert stored_bytes(broker) == before
            await assert_goes_on(client)


def test_the_ids_of_the_longest_batch_fit_a_frame_also_with_addresses_of_ipv6() -> None:
    other_fields = 64 * 1024
    assert BATCH_COUNT_MAX * len("," + "0" * 56) + other_fields < FRAME_BYTES_MAX
