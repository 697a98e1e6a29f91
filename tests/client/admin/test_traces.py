"""Reading of trace records: those of all clients and releases, and damaged ones."""

from hypothesis import given
from hypothesis import strategies as st

from ariane.client.admin.messages import FoundMessages
from ariane.client.admin.traces import MessageTrace, trace_of
from ariane.client.consumer.message import Received, receive
from ariane.client.core.trace_format import (
    ContextCode,
    TraceKind,
    after_consumption,
    before_consumption,
    published,
    transaction_ended,
)
from ariane.model.ids import PhysicalOffset, QueueOffset
from ariane.model.message import HostPort, StoredMessage
from ariane.model.route import MessageQueue
from ariane.wire.hashes import crc32
from ariane.wire.host import decode_host

HOST: HostPort = decode_host(bytes([127, 0, 0, 1, 0, 0, 42, 159]))


def trace_message(body: bytes) -> Received:
    stored = StoredMessage(
        topic="RMQ_SYS_TRACE_TOPIC", body=body, queue_id=0, queue_offset=QueueOffset(0),
        physical_offset=PhysicalOffset(0), sys_flag=0, born_timestamp_ms=0, born_host=HOST, store_timestamp_ms=0,
        store_host=HOST, body_crc=crc32(body),
    )  # fmt: skip
    return receive(stored, MessageQueue(topic=stored.topic, broker_name="broker-a", queue_id=0))


def read(*bodies: bytes, message_id: str = "ID1") -> MessageTrace:
    return trace_of(message_id, FoundMessages(messages=tuple(map(trace_message, bodies))))


def test_traces_of_ariane_clients_are_read_back() -> None:
    pub = published(
        timestamp_ms=1, region="R", group="P", topic="T", message_id="ID1", tags=None, keys=["a", "b"],
        store_host="127.0.0.1:10911", body_length=5, cost_ms=3, kind=TraceKind.DELAY, offset_message_id="OFF",
        success=True,
    )  # fmt: skip
    before = before_consumption(
        timestamp_ms=7, region="R", group="C", request_id="REQ", message_id="ID1", retries=2, keys=[]
    )
    after = after_consumption(
        timestamp_ms=9, group="C", request_id="REQ", message_id="ID1", cost_ms=2, success=False, keys=[],
        context_code=ContextCode.EXCEPTION,
    )  # fmt: skip
    end = transaction_ended(
        timestamp_ms=4, region="R", group="P", topic="T", message_id="ID1", tags="t", keys=[], store_host="h",
        transaction_id="TX", state="COMMIT_MESSAGE", from_check=True,
    )  # fmt: skip
    trace = read(pub.text.encode() + before.text.encode(), after.text.encode() + end.text.encode())
    (record,) = trace.published
    assert (record.tags, record.keys, record.kind, record.offset_message_id, record.success) == (
        None, "a b", TraceKind.DELAY, "OFF", True,
    )  # fmt: skip
    (consumed,) = trace.consumed
    assert (consumed.began_ms, consumed.retries, consumed.cost_ms) == (7, 2, 2)
    assert (consumed.success, consumed.context) == (False, ContextCode.EXCEPTION)
    assert (trace.transactions[0].state, trace.transactions[0].from_check) == ("COMMIT_MESSAGE", True)
    assert trace.is_complete


def test_records_of_other_messages_in_the_same_body_are_left_out() -> None:
    before = before_consumption(
        timestamp_ms=7, region="R", group="C", request_id="REQ", message_id="OTHER", retries=0, keys=[]
    )
    assert read(before.text.encode()).consumed == ()


def test_an_attempt_that_never_ended_has_no_outcome() -> None:
    before = before_consumption(
        timestamp_ms=7, region="R", group="C", request_id="REQ", message_id="ID1", retries=0, keys=[]
    )
    (consumed,) = read(before.text.encode()).consumed
    assert consumed.success is None


def test_unreadable_records_are_counted() -> None:
    trace = read(b"Pub\x01soon\x01R\x02", b"Unheard\x01of\x02", b"SubAfter\x01REQ\x02", b"\xff\xfe")
    assert (trace.published, trace.consumed, trace.unreadable) == ((), (), 4)
    assert not trace.is_complete


@given(st.lists(st.binary(max_size=200), max_size=4))
def test_any_bytes_are_read_without_an_exception(bodies: list[bytes]) -> None:
    read(*bodies)


@given(
    st.lists(st.sampled_from(["Pub", "SubBefore", "SubAfter", "EndTransaction", "1", "x", "true", "ID1"]), max_size=16)
)
def test_any_fields_are_read_without_an_exception(fields: list[str]) -> None:
    read("\x01".join(fields).encode())
