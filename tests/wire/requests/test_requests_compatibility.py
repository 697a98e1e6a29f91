"""Peculiarities of real clients that a server must handle. The numbers are those of the list of compatibility traps."""

import json
from typing import Any

import pytest

from ariane.errors import FieldError, RequestFailed
from ariane.model.group import ConsumeFromWhere, ConsumeType, MessageModel
from ariane.model.ids import QueueOffset
from ariane.model.route import MessageQueue
from ariane.wire.codes import RequestCode, ResponseCode, Serialization
from ariane.wire.exchange import REQUESTS, read_request, read_response, request_command, response_command
from ariane.wire.fields import Response
from ariane.wire.frame import Command, decode_header, encode_json_header
from ariane.wire.message_id import decode_offset_message_id
from ariane.wire.requests.acl import UpdateAccount
from ariane.wire.requests.clients import Heartbeat
from ariane.wire.requests.offsets import (
    GetConsumerOffset,
    OffsetList,
    OffsetResponse,
    OffsetsByQueue,
    ResetClientOffset,
    UpdateOffsetResponse,
    as_list,
)
from ariane.wire.requests.pull import LitePull, Pull, PullResponse
from ariane.wire.requests.send import Send, SendBack, SendResponse
from tests.wire.requests.struct_values import smallest

LETTERS = {
    "a": "PG",
    "b": "T",
    "c": "TBW102",
    "d": 4,
    "e": 0,
    "f": 0,
    "g": 1700000000000,
    "h": 0,
    "i": "WAIT\x01true\x02",
}
LONG_NAMES = {
    "producerGroup": "PG", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
    "sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "0",
}  # fmt: skip


def received(code: RequestCode, ext: dict[str, Any], body: bytes = b"") -> Any:
    header = json.dumps({"code": code, "extFields": ext}).encode()
    return read_request(REQUESTS[code], decode_header(Serialization.JSON, header, body))


def encoded_header(response: Response) -> dict[str, Any]:
    header = encode_json_header(response_command(Command(code=0), response))
    return dict(json.loads(header))


def test_trap_02_accept_numbers_and_bools_in_ext_fields_emit_strings_only() -> None:
    request = received(RequestCode.SEND_MESSAGE_V2, {**LETTERS, "k": False, "j": 2, "l": "16"})
    assert isinstance(request, Send)
    assert (request.queue_id, request.born_timestamp, request.unit_mode, request.reconsume_times) == (
        0,
        1700000000000,
        False,
        2,
    )
    sent = json.loads(encode_json_header(request_command(request, opaque=1)))
    assert all(isinstance(value, str) for value in sent["extFields"].values())


@pytest.mark.parametrize("code", sorted(SendResponse.accepts))
def test_trap_05_send_responses_always_have_their_fields(code: int) -> None:
    ext = encoded_header(SendResponse(code=code, msg_id="7F00", queue_id=0, queue_offset=QueueOffset(0)))["extFields"]
    assert ext == {
        "msgId": "7F00",
        "queueId": "0",
        "queueOffset": "0",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


@pytest.mark.parametrize("code", sorted(PullResponse.accepts))
def test_trap_05_pull_responses_always_have_their_fields(code: int) -> None:
    zero = QueueOffset(0)
    response = PullResponse(
        code=code, suggest_which_broker_id=0, next_begin_offset=zero, min_offset=zero, max_offset=zero
    )
    names = ["suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"]
    assert encoded_header(response)["extFields"] == dict.fromkeys(names, "0")


def test_trap_05_send_and_pull_responses_without_their_fields_are_refused() -> None:
    for code in (RequestCode.SEND_MESSAGE, RequestCode.PULL_MESSAGE):
        request: Any = smallest(REQUESTS[code].request)
        with pytest.raises(FieldError):
            read_response(request, Command(code=0, ext_texts={}))


def test_trap_05_a_response_with_a_struct_of_its_own_has_ext_fields_even_when_empty() -> None:
    assert encoded_header(UpdateOffsetResponse())["extFields"] == {}
    assert "extFields" not in encoded_header(Response())


@pytest.mark.parametrize("word", ["true", "TRUE", True])
def test_trap_07_batch_is_chosen_by_field_not_code(word: object) -> None:
    assert received(RequestCode.SEND_MESSAGE_V2, {**LETTERS, "m": word}).is_batch
    assert received(RequestCode.SEND_MESSAGE, {**LONG_NAMES, "batch": word}).is_batch


@pytest.mark.parametrize("word", ["false", False, "1", 1, "yes", "", None])
def test_trap_07_any_other_word_is_one_message_whatever_the_code(word: object) -> None:
    """C++ 1.x sends `batch=1`, which is false in Java: the reference stores the whole body as one message."""
    assert not received(RequestCode.SEND_BATCH_MESSAGE, {**LETTERS, "m": word}).is_batch
    assert not received(RequestCode.SEND_MESSAGE, {**LONG_NAMES, "batch": word}).is_batch


def test_trap_07_a_missing_batch_field_is_one_message() -> None:
    assert not received(RequestCode.SEND_BATCH_MESSAGE, LETTERS).is_batch


def test_trap_08_cpp_heartbeats_with_enum_numbers_text_versions_and_missing_sets() -> None:
    body = b"""{"clientID":"1@2","consumerDataSet":[{
        "consumeFromWhere":4,"consumeType":1,"groupName":"CG","messageModel":1,
        "subscriptionDataSet":[{"codeSet":["2598919"],"subString":"TagA","subVersion":"1700000000000","tagsSet":["TagA"],
        "topic":"T"},{"subString":"*","subVersion":"0","topic":"%RETRY%CG"}]}]}\n"""
    heartbeat = received(RequestCode.HEART_BEAT, {}, body)
    assert isinstance(heartbeat, Heartbeat)
    assert heartbeat.body is not None
    assert heartbeat.body.producer_data_set == []
    (consumer,) = heartbeat.body.consumer_data_set
    assert consumer.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert consumer.message_model is MessageModel.CLUSTERING
    assert consumer.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    tag_a, everything = consumer.subscription_data_set
    assert (tag_a.sub_version, tag_a.code_set, tag_a.expression_type) == (1700000000000, [2598919], "TAG")
    assert (everything.tags_set, everything.code_set, everything.class_filter_mode) == ([], [], False)


def test_trap_11_a_lite_pull_is_a_pull() -> None:
    assert issubclass(LitePull, Pull)
    assert REQUESTS[RequestCode.LITE_PULL_MESSAGE].response is REQUESTS[RequestCode.PULL_MESSAGE].response


def test_trap_16_send_back_without_max_reconsume_times_decodes() -> None:
    request = received(RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": "91", "group": "CG", "delayLevel": "0"})
    assert isinstance(request, SendBack)
    assert request.max_reconsume_times is None


def test_trap_19_reset_offset_push_list_form_for_cpp_object_keys_for_the_rest() -> None:
    queues = [MessageQueue(topic="T", broker_name="b", queue_id=number) for number in (0, 1)]
    offsets = OffsetsByQueue(offset_table={queues[0]: QueueOffset(12), queues[1]: QueueOffset(7)})
    push = ResetClientOffset(topic="T", group="CG", timestamp=-1, is_force=True, body=offsets)
    to_cpp = ResetClientOffset(topic="T", group="CG", timestamp=-1, is_force=True, body=as_list(offsets))

    assert request_command(push, opaque=1).body == (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:12,{"brokerName":"b","queueId":1,"topic":"T"}:7}}'
    )
    strict = json.loads(request_command(to_cpp, opaque=1).body)
    assert strict["offsetTable"][1] == {"topic": "T", "brokerName": "b", "queueId": 1, "offset": 7}


def test_trap_19_either_form_of_a_reset_offset_push_is_read() -> None:
    ext = {"topic": "T", "group": "CG", "timestamp": "-1", "isForce": "true"}
    code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    by_queue = received(code, ext, b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:12}}')
    listed = received(code, ext, b'{"offsetTable":[{"brokerName":"b","queueId":0,"topic":"T","offset":12}]}')
    assert isinstance(listed.body, OffsetList)
    assert as_list(by_queue.body) == listed.body


def test_trap_22_the_response_to_a_heartbeat_advertises_nothing() -> None:
    assert REQUESTS[RequestCode.HEART_BEAT].response is Response
    assert "extFields" not in encoded_header(Response())


def test_trap_25_codes_209_to_211_are_those_of_access_control() -> None:
    with pytest.raises(RequestFailed) as caught:
        read_response(UpdateAccount(access_key="k"), Command(code=209, remark="no"))
    assert caught.value.code is ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
    assert [ResponseCode(code).name for code in (210, 211)] == [
        "DELETE_ACL_CONFIG_FAILED",
        "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED",
    ]


def test_trap_09_no_stored_offset_is_code_22_and_a_young_queue_is_0() -> None:
    request = GetConsumerOffset("G", "T", 0)
    command = request_command(request, opaque=1)
    missing = response_command(command, Response(code=ResponseCode.QUERY_NOT_FOUND, remark="no offset"))
    with pytest.raises(RequestFailed) as caught:
        read_response(request, missing)
    assert caught.value.code == 22
    young = response_command(command, OffsetResponse(offset=QueueOffset(0)))
    assert (young.code, young.ext) == (0, {"offset": "0"})
    assert read_response(request, young).offset == 0


def test_trap_21_the_response_to_a_half_message_has_the_offset_of_the_half_message() -> None:
    response = SendResponse(msg_id="7F00000100002A9F000000000001E240", queue_id=0, queue_offset=QueueOffset(7))
    command = response_command(Command(code=RequestCode.SEND_MESSAGE_V2), response)
    assert decode_offset_message_id(command.ext["msgId"]).physical_offset == 123456  # END_TRANSACTION's commitLogOffset
    assert command.ext["queueOffset"] == "7"  # and its tranStateTableOffset
