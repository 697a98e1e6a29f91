"""Commit and rollback: what becomes visible, when, and how often."""

import errno

import pytest

from ariane.broker.transactions.half_messages import HalfMessage, HalfRecord
from ariane.broker.writer import InboundMessage
from ariane.errors import RecordError, RequestFailed
from ariane.model.message import Property
from ariane.model.system_topics import SCHEDULE, TRANS_HALF, TRANS_OP
from ariane.wire.codes import ResponseCode
from ariane.wire.record.layout import pack_record
from ariane.wire.requests.send import Decision
from tests.broker.transaction_fixtures import (
    GROUP,
    TOPIC,
    Peer,
    TransactionBroker,
    half_send,
    outcome_of,
    peer,
    transaction_broker,
)
from tests.store.stores import HOST
from tests.transport.peers import until

COMMIT, ROLLBACK, UNKNOWN = Decision.COMMIT, Decision.ROLLBACK, Decision.UNKNOWN


# --- half messages


async def test_a_half_message_remembers_where_it_belongs_and_has_no_transaction_bits() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        sent = await producer.send_half(queue_id=3, TAGS="a")
        (waiting,) = broker.messages(TRANS_HALF)
        assert (waiting.topic, waiting.queue_id, waiting.sys_flag) == (TRANS_HALF, 0, 0)
        assert waiting.properties.items() >= {"TAGS": "a", "REAL_TOPIC": TOPIC, "REAL_QID": "3"}.items()
        assert sent.queue_id == 3, "the producer gets the queue that it asked for"


async def test_a_producer_cannot_pass_its_message_off_as_a_copy_of_another() -> None:
    forged = {
        "TRAN_PREPARED_QUEUE_OFFSET": "0",
        "TRANSACTION_CHECK_TIMES": "14",
        "REAL_TOPIC": "secret",
        "REAL_QID": "9",
        "CLUSTER": "elsewhere",
        "KEYS": "k",
    }
    async with transaction_broker() as broker, peer(broker) as producer:
        await producer.send_half(queue_id=1)
        await producer.send_half(b"paid", 1, **forged)
        honest, waiting = broker.messages(TRANS_HALF)
        assert waiting.properties == honest.properties | {"KEYS": "k"}
        assert (waiting.properties["REAL_TOPIC"], waiting.properties["REAL_QID"]) == (TOPIC, "1")


async def test_a_half_message_does_not_wait_for_a_delay() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        sent = await producer.send_half(DELAY="3", TIMER_DELAY_SEC="100")
        await producer.end(sent, COMMIT)
        assert broker.bodies() == [b"paid"]


@pytest.mark.parametrize(
    "properties", [b"", b"REAL_TOPIC\x01t\x02", b"REAL_TOPIC\x01t\x02REAL_QID\x01x\x02", b"REAL_QID\x0199999999999\x02"]
)
def test_a_record_that_is_no_half_message_is_recognised(properties: bytes) -> None:
    record = pack_record(
        topic=TRANS_HALF.encode(),
        body=b"x",
        properties=properties,
        queue_id=0,
        flag=0,
        queue_offset=0,
        physical_offset=0,
        sys_flag=0,
        born_timestamp_ms=0,
        born_host=HOST,
        store_timestamp_ms=0,
        store_host=HOST,
    )
    for kind in (HalfMessage, HalfRecord):
        with pytest.raises(RecordError):
            kind.of(memoryview(record))


async def test_the_answer_to_a_half_message_tells_what_its_end_needs() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        await producer.send_half(b"first")
        sent = await producer.send_half(b"second", queue_id=2)
        (_, stored) = broker.messages(TRANS_HALF)
        assert sent.queue_offset == stored.queue_offset == 1
        assert int(sent.msg_id[-16:], 16) == stored.physical_offset
        assert sent.transaction_id == stored.unique_key
        assert broker.bodies(TOPIC, 2) == []


async def test_a_broker_that_rejects_transactions_says_so() -> None:
    async with transaction_broker(reject_transactions=True) as broker, peer(broker) as producer:
        with pytest.raises(RequestFailed, match="rejectTransactionMessage") as refused:
            await producer.send_half()
        assert refused.value.code == ResponseCode.NO_PERMISSION


# --- outcomes


async def test_a_committed_message_is_delivered_as_the_producer_sent_it() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        sent = await producer.send_half(b"paid", queue_id=3, TAGS="vip", KEYS="k1")
        await producer.end(sent, COMMIT)
        (message,) = broker.messages(TOPIC, 3)
        assert (message.body, message.sys_flag, message.queue_id) == (b"paid", 0x8, 3)
        assert message.prepared_transaction_offset == int(sent.msg_id[-16:], 16)
        assert message.properties["TRAN_MSG"] == "true", "Java consumers tell the transaction id by it"
        assert message.tags == "vip"
        assert broker.bodies(TRANS_OP) == [b"0"]


async def test_a_rolled_back_message_is_never_delivered() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        sent = await producer.send_half()
        await producer.end(sent, ROLLBACK)
        assert broker.bodies() == []
        assert broker.bodies(TRANS_OP) == [b"0"]
        (op,) = broker.messages(TRANS_OP)
        assert op.properties == {"TAGS": "d"}


async def test_an_undecided_message_stays_open_and_its_producer_is_answered() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        sent = await producer.send_half()
        response = await producer.end(sent, UNKNOWN)
        assert response.code == ResponseCode.SUCCESS
        assert broker.bodies() == broker.bodies(TRANS_OP) == []
        await producer.end(sent, COMMIT)
        assert broker.bodies() == [b"paid"]


async def test_a_one_way_outcome_is_taken_and_not_answered() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        sent = await producer.send_half()
        await producer.oneway(outcome_of(sent, COMMIT))
        response = await producer.exchange(half_send(b"next"))
        assert response.code == ResponseCode.SUCCESS, "the first thing that came back is the answer to the send"
        assert broker.bodies() == [b"paid"]


async def test_a_second_commit_is_a_success_that_delivers_nothing_more() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        sent = await producer.send_half()
        await producer.end(sent, COMMIT)
        await producer.end(sent, COMMIT)
        assert broker.bodies() == [b"paid"]
        assert broker.bodies(TRANS_OP) == [b"0"]


@pytest.mark.parametrize(("first", "second"), [(COMMIT, ROLLBACK), (ROLLBACK, COMMIT)])
async def test_the_first_outcome_is_final(first: Decision, second: Decision) -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        sent = await producer.send_half()
        await producer.end(sent, first)
        with pytest.raises(RequestFailed, match=f"ended with {first.name}"):
            await producer.end(sent, second)
        assert broker.bodies() == ([b"paid"] if first is COMMIT else [])


async def test_a_delay_asked_for_by_a_half_message_of_another_broker_begins_with_its_commit() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        await producer.send_half()
        waiting = _incoming(DELAY="3", PGROUP=GROUP, REAL_TOPIC=TOPIC, REAL_QID="1")
        appended = broker.transactions.keep(waiting)
        (_, stored) = broker.messages(TRANS_HALF)
        assert stored.properties[Property.DELAY] == "3", "put aside only once it is committed"
        sent = await producer.send_half(b"third")
        changes = {"tran_state_table_offset": appended.queue_offset, "commit_log_offset": appended.physical_offset}
        await producer.end(sent, COMMIT, **changes)
        assert broker.bodies() == []
        (delayed,) = broker.messages(SCHEDULE, 2)
        assert (delayed.properties["REAL_TOPIC"], delayed.properties["REAL_QID"]) == (TOPIC, "1")


def _incoming(**properties: str) -> InboundMessage:
    return InboundMessage(
        topic=TRANS_HALF, queue_id=0, body=b"later", properties=properties, born_timestamp_ms=1, born_host=HOST
    )


# --- outcomes that do not fit


async def _refused(producer: Peer, broker: TransactionBroker, words: str, **changes: object) -> None:
    sent = await producer.send_half()
    with pytest.raises(RequestFailed, match=words) as refused:
        await producer.end(sent, COMMIT, **changes)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    assert broker.bodies() == broker.bodies(TRANS_OP) == []


async def test_only_its_own_group_may_end_a_message() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        await _refused(producer, broker, "only its own group", producer_group="others")


async def test_repeated_refusals_of_a_group_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        for _ in range(100):
            await _refused(producer, broker, "only its own group", producer_group="others")
    assert caplog.text.count("outcome of a transaction not taken") == 1


@pytest.mark.parametrize("offset", [-1, 1, 2**62])
async def test_an_outcome_for_another_queue_offset_is_refused(offset: int) -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        await _refused(producer, broker, "no half message", tran_state_table_offset=offset)


@pytest.mark.parametrize("offset", [-1, 1, 2**62])
async def test_an_outcome_for_another_log_offset_is_refused(offset: int) -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        await _refused(producer, broker, "no half message", commit_log_offset=offset)


async def test_a_number_that_is_no_decision_is_refused() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        await _refused(producer, broker, "commitOrRollback is 7", commit_or_rollback=7)


async def test_a_record_forged_inside_a_body_cannot_be_committed() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        sent = await producer.send_half(b"honest")
        (honest,) = broker.messages(TRANS_HALF)
        body_at = int(sent.msg_id[-16:], 16) + honest.stored_size + 88
        forged = pack_record(
            topic=TRANS_HALF.encode(),
            body=b"forged",
            properties=f"PGROUP\x01{GROUP}\x02REAL_TOPIC\x01secret\x02REAL_QID\x010\x02".encode(),
            queue_id=0,
            flag=0,
            queue_offset=0,
            physical_offset=body_at,
            sys_flag=0,
            born_timestamp_ms=0,
            born_host=HOST,
            store_timestamp_ms=0,
            store_host=HOST,
        )
        await producer.send_half(forged)
        assert broker.store.lookup.record_at(body_at) is not None, "it does look like a record"
        with pytest.raises(RequestFailed, match="no half message"):
            await producer.end(sent, COMMIT, commit_log_offset=body_at)
        assert broker.bodies("secret") == []


# --- the disk


async def test_with_sync_flush_a_commit_is_answered_when_it_is_durable() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        sent = await producer.send_half()
        await producer.end(sent, COMMIT)
        assert broker.store.flusher.flushed_to == broker.store.components.commit_log.max_offset


async def test_an_outcome_that_the_disk_does_not_take_may_be_sent_again() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        sent = await producer.send_half()
        broker.disk.fail_writes(OSError(errno.ENOSPC, "No space left on device"))
        with pytest.raises(RequestFailed) as refused:
            await producer.end(sent, COMMIT)
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
        broker.disk.fail_writes(None)
        await producer.end(sent, COMMIT)
        assert broker.bodies() == [b"paid"]


async def test_a_message_delivered_without_its_op_message_is_not_delivered_again() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        sent = await producer.send_half()

        def full_from_now_on(topic: str, *_: int) -> None:
            if topic == TOPIC:
                broker.disk.fail_writes(OSError(errno.ENOSPC, "No space left on device"))

        broker.store.components.dispatcher.on_arrival(full_from_now_on)
        await producer.end(sent, COMMIT)
        broker.disk.fail_writes(None)
        await producer.end(sent, COMMIT)
        await broker.run_pass()
        assert broker.bodies() == [b"paid"]
        assert len(broker.messages(TRANS_HALF)) == 1, "nobody is asked about it either"


async def test_outcomes_of_many_producers_at_once_are_each_taken_once() -> None:
    async with transaction_broker() as broker, peer(broker) as one, peer(broker, client_id="client-2") as other:
        sent = [await one.send_half(b"%d" % number) for number in range(20)]
        for response in sent:
            await one.oneway(outcome_of(response, COMMIT))
            await other.oneway(outcome_of(response, COMMIT))
        await until(lambda: len(broker.bodies(TRANS_OP)) == 20)
        await one.exchange(half_send(b"after"))
        await other.exchange(half_send(b"after"))
        assert sorted(broker.bodies(), key=int) == [b"%d" % number for number in range(20)]
