"""Request-reply: the reply's way to the client that waits, and what its sender gets."""

from typing import Any

import pytest

from ariane.errors import RequestFailed
from ariane.model.system_topics import reply_topic
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Response
from ariane.wire.frame import Command
from ariane.wire.message_id import offset_message_id
from ariane.wire.properties import decode_properties, encode_properties
from ariane.wire.requests.send import PushReply, Send, SendReply, SendReplyV2, SendResponse
from tests.broker.transaction_fixtures import Peer, TransactionBroker, peer, transaction_broker
from tests.store.stores import HOST

REPLIES = reply_topic("DefaultCluster")
WAITING = "127.0.0.1@requester"


def reply(request: type[Send] = SendReplyV2, **changes: Any) -> Send:
    properties = {"MSG_TYPE": "reply", "CORRELATION_ID": "c-1", "TTL": "3000", "REPLY_TO_CLIENT": WAITING}
    fields: dict[str, Any] = {
        "producer_group": "answerers",
        "topic": REPLIES,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_123,
        "flag": 7,
        "properties": encode_properties(properties).decode(),
        "reconsume_times": 0,
        "body": b"42",
    }
    return request(**{**fields, **changes})


async def exchange(requester: Peer, answerer: Peer, call: Send, response: Response) -> tuple[PushReply, Command]:
    """The pushed reply, which the requester answers with `answer`, and what the answerer hears."""
    await answerer.send(call)
    pushed = await requester.next_request(PushReply)
    await requester.respond(response)
    return pushed, await answerer.next_response()


@pytest.mark.parametrize("request_class", [SendReply, SendReplyV2])
async def test_a_reply_reaches_the_client_that_waits(request_class: type[Send]) -> None:
    async with (
        transaction_broker() as broker,
        peer(broker, client_id=WAITING) as requester,
        peer(broker, group=None) as answerer,
    ):
        pushed, response = await exchange(requester, answerer, reply(request_class), Response())
        assert (pushed.topic, pushed.body, pushed.flag, pushed.queue_id) == (REPLIES, b"42", 7, 0)
        assert (pushed.producer_group, pushed.born_timestamp) == ("answerers", 1_700_000_000_123)
        assert (pushed.default_topic, pushed.default_topic_queue_nums) == ("TBW102", 4)
        assert response.code == ResponseCode.SUCCESS


async def test_hosts_and_times_come_in_the_forms_that_clients_parse() -> None:
    async with (
        transaction_broker() as broker,
        peer(broker, client_id=WAITING) as requester,
        peer(broker, group=None) as answerer,
    ):
        pushed, _ = await exchange(requester, answerer, reply(), Response())
        assert pushed.born_host == answerer.raw.name
        assert pushed.store_host == "127.0.0.1:10911"
        assert pushed.store_timestamp == broker.clock.now_ms()
        properties = decode_properties((pushed.properties or "").encode())
        assert properties["PUSH_REPLY_TIME"] == str(broker.clock.now_ms())
        assert properties["CORRELATION_ID"] == "c-1"


async def test_a_reply_is_stored_when_the_settings_say_so() -> None:
    async with (
        transaction_broker() as broker,
        peer(broker, client_id=WAITING) as requester,
        peer(broker, group=None) as answerer,
    ):
        _, next_response = await exchange(requester, answerer, reply(), Response())
        (stored,) = broker.messages(REPLIES)
        response = next_response.fields(SendResponse)
        assert response.msg_id == offset_message_id(HOST, stored.physical_offset)
        assert stored.properties["CORRELATION_ID"] == "c-1"


async def test_a_reply_that_is_not_stored_has_the_id_0() -> None:
    async with (
        transaction_broker(store_replies=False) as broker,
        peer(broker, client_id=WAITING) as requester,
        peer(broker, group=None) as answerer,
    ):
        _, next_response = await exchange(requester, answerer, reply(), Response())
        response = next_response.fields(SendResponse)
        assert (response.msg_id, response.queue_offset) == ("0", 0)
        assert broker.messages(REPLIES) == []


async def test_a_client_that_is_gone_is_reported_to_the_sender_and_the_reply_is_kept() -> None:
    async with transaction_broker() as broker, peer(broker, group=None) as answerer:
        next_response = await answerer.exchange(reply())
        assert next_response.code == ResponseCode.SYSTEM_ERROR
        assert f"client {WAITING} is not connected" in (next_response.remark or "")
        (stored,) = broker.messages(REPLIES)
        assert "PUSH_REPLY_TIME" not in stored.properties


async def test_a_client_that_refuses_the_reply_is_reported_to_the_sender() -> None:
    async with (
        transaction_broker() as broker,
        peer(broker, client_id=WAITING) as requester,
        peer(broker, group=None) as answerer,
    ):
        refusal = Response(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="too old")
        _, next_response = await exchange(requester, answerer, reply(), refusal)
        assert next_response.code == ResponseCode.SYSTEM_ERROR
        assert "did not take the reply" in (next_response.remark or "")


async def test_a_client_that_goes_while_it_is_notified_does_not_hold_up_the_sender() -> None:
    async with transaction_broker() as broker, peer(broker, group=None) as answerer:
        async with peer(broker, client_id=WAITING) as requester:
            await answerer.send(reply())
            await requester.next_request(PushReply)
        assert (await answerer.next_response()).code == ResponseCode.SYSTEM_ERROR


async def test_a_reply_to_nobody_is_refused() -> None:
    async with transaction_broker() as broker, peer(broker, group=None) as answerer:
        next_response = await answerer.exchange(reply(properties="MSG_TYPE\x01reply\x02"))
        assert next_response.code == ResponseCode.SYSTEM_ERROR
        assert "REPLY_TO_CLIENT" in (next_response.remark or "")


async def test_a_client_may_answer_itself() -> None:
    async with transaction_broker() as broker, peer(broker, client_id=WAITING) as both:
        _, next_response = await exchange(both, both, reply(), Response())
        assert next_response.code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"queue_id": 99}, ResponseCode.SYSTEM_ERROR),
        ({"topic": "no-such-topic"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, ResponseCode.NO_PERMISSION),
        ({"properties": "a\x01b\x01c\x02"}, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
async def test_replies_pass_the_checks_of_sends(changes: dict[str, Any], code: ResponseCode) -> None:
    async with transaction_broker() as broker, peer(broker, client_id=WAITING) as requester:
        with pytest.raises(RequestFailed) as refused:
            await requester.call(reply(**changes))
        assert refused.value.code == code
        assert broker.messages(REPLIES) == []


async def test_a_reply_with_transaction_bits_can_be_looked_up_like_any_other() -> None:
    async with (
        transaction_broker() as broker,
        peer(broker, client_id=WAITING) as requester,
        peer(broker, group=None) as answerer,
    ):
        await exchange(requester, answerer, reply(sys_flag=4), Response())
        assert [message.sys_flag for message in broker.messages(REPLIES)] == [0]


async def test_a_full_disk_does_not_fail_a_reply_that_arrived() -> None:
    async with (
        transaction_broker() as broker,
        peer(broker, client_id=WAITING) as requester,
        peer(broker, group=None) as answerer,
    ):
        fill(broker)
        _, next_response = await exchange(requester, answerer, reply(), Response())
        assert next_response.code == ResponseCode.SUCCESS
        assert next_response.fields(SendResponse).msg_id == "0"


def fill(broker: TransactionBroker) -> None:
    broker.disk.fail_writes(OSError(28, "No space left on device"))
