"""Rounds of checks: who is asked about what, how often, and what happens to messages that nobody ends."""

import errno

import pytest

from ariane.broker.transactions import TransactionChecks, checks
from ariane.broker.transactions.pending import PROGRESS_GROUP
from ariane.broker.writer import InboundMessage
from ariane.errors import RequestFailed
from ariane.model.system_topics import TRANS_CHECK_MAX, TRANS_HALF, TRANS_OP
from ariane.testing import FakeClock
from ariane.wire.codes import HeaderFlag, ResponseCode
from ariane.wire.message_id import offset_message_id
from ariane.wire.properties import PROPERTIES_BYTES_MAX, encode_properties
from ariane.wire.record.read import decode
from ariane.wire.requests.send import CheckTransaction, Decision, ResumeTransactionChecks
from tests.broker.transaction_fixtures import (
    GROUP,
    TOPIC,
    Peer,
    TransactionBroker,
    outcome_of,
    peer,
    transaction_broker,
)
from tests.store.stores import HOST

COMMIT, ROLLBACK, UNKNOWN = Decision.COMMIT, Decision.ROLLBACK, Decision.UNKNOWN


def progress(broker: TransactionBroker) -> tuple[int, int]:
    """Of the half queue and of the op queue, as an Apache broker would read it."""
    return broker.offsets.get(PROGRESS_GROUP, TRANS_HALF, 0), broker.offsets.get(PROGRESS_GROUP, TRANS_OP, 0)


# --- the question


async def test_a_producer_is_asked_about_the_copy_of_its_message() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        sent = await producer.send_half(b"paid", queue_id=2, TAGS="vip")
        await broker.run_pass(after_s=6)
        check_request = await producer.next_request(CheckTransaction)
        assert producer.command.flag & HeaderFlag.ONEWAY
        (_, copy) = broker.messages(TRANS_HALF)
        assert (check_request.tran_state_table_offset, check_request.commit_log_offset) == (1, copy.physical_offset)
        assert check_request.msg_id == check_request.transaction_id == sent.transaction_id
        assert check_request.offset_msg_id == offset_message_id(HOST, copy.physical_offset)


async def test_the_question_shows_the_message_in_its_real_topic() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        await producer.send_half(b"paid", queue_id=2, TAGS="vip")
        await broker.run_pass(after_s=6)
        shown = decode((await producer.next_request(CheckTransaction)).body)
        assert (shown.topic, shown.queue_id, shown.body, shown.tags) == (TOPIC, 2, b"paid", "vip")
        assert shown.properties["PGROUP"] == GROUP
        assert shown.properties["TRANSACTION_CHECK_TIMES"] == "1"


@pytest.mark.parametrize(("decision", "delivered"), [(COMMIT, [b"paid"]), (ROLLBACK, [])])
async def test_the_answer_to_a_question_ends_the_transaction(decision: Decision, delivered: list[bytes]) -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        await producer.send_half()
        await broker.run_pass()
        await producer.end_checked(await producer.next_request(CheckTransaction), decision)
        await broker.run_pass()
        assert broker.bodies() == delivered
        assert broker.bodies(TRANS_OP) == [b"1"], "the copy is what a reader of both queues finds open"
        assert len(broker.messages(TRANS_HALF)) == 2, "nothing is asked any more"
        assert progress(broker) == (2, 1)


async def test_producers_of_a_group_are_asked_in_turn() -> None:
    async with transaction_broker() as broker, peer(broker) as one, peer(broker, client_id="client-2") as other:
        await one.send_half(b"first")
        await one.send_half(b"second")
        await broker.run_pass()
        next_request = {
            (await producer.next_request(CheckTransaction)).tran_state_table_offset for producer in (one, other)
        }
        assert next_request == {2, 3}


async def test_with_no_producer_there_the_next_round_tries_again() -> None:
    async with transaction_broker() as broker:
        async with peer(broker) as gone:
            await gone.send_half()
        await broker.run_pass()
        async with peer(broker, client_id="client-2") as producer:
            await broker.run_pass()
            await producer.end_checked(await producer.next_request(CheckTransaction), COMMIT)
        assert broker.bodies() == [b"paid"]


# --- when


async def test_a_young_message_is_left_alone() -> None:
    async with transaction_broker(transaction_timeout_s=6) as broker, peer(broker) as producer:
        await producer.send_half()
        await broker.run_pass(after_s=5.9)
        assert len(broker.messages(TRANS_HALF)) == 1
        await broker.run_pass(after_s=0.2)
        assert len(broker.messages(TRANS_HALF)) == 2


async def test_a_message_may_ask_for_more_time_and_does_not_hold_up_others() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        await producer.send_half(b"patient", CHECK_IMMUNITY_TIME_IN_SECONDS="600")
        await producer.send_half(b"other")
        await broker.run_pass()
        assert (await producer.next_request(CheckTransaction)).tran_state_table_offset == 2
        assert broker.bodies(TRANS_HALF) == [b"patient", b"other", b"other"]
        await broker.run_pass(after_s=539)
        assert broker.bodies(TRANS_HALF)[3:] == [b"other"]
        await broker.run_pass(after_s=1)
        assert b"patient" in broker.bodies(TRANS_HALF)[4:]


async def test_a_patient_message_is_moved_when_too_much_has_come_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "WINDOW_MAX", 3)
    async with transaction_broker() as broker, peer(broker) as producer:
        patient = await producer.send_half(b"patient", CHECK_IMMUNITY_TIME_IN_SECONDS="600")
        for number in range(4):
            await producer.end(await producer.send_half(b"%d" % number), COMMIT)
        await broker.run_pass()
        assert progress(broker) == (5, 4)
        copy = broker.messages(TRANS_HALF)[-1]
        assert (copy.body, copy.properties["TRANSACTION_CHECK_TIMES"]) == (b"patient", "0")
        await producer.end(patient, COMMIT)
        assert b"patient" in broker.bodies()


async def test_a_producer_whose_clock_is_wrong_is_asked_at_the_right_time() -> None:
    async with transaction_broker(clock=FakeClock(now_ms=1_600_000_000_000)) as broker, peer(broker) as producer:
        await producer.send_half()  # born three years from now
        await broker.run_pass(after_s=5)
        assert len(broker.messages(TRANS_HALF)) == 1
        await broker.run_pass(after_s=2)
        await producer.next_request(CheckTransaction)


async def test_rounds_come_at_their_interval() -> None:
    async with transaction_broker(transaction_check_interval_s=30) as broker, peer(broker) as producer:
        await producer.send_half()
        service = broker.checks._service
        async with TransactionChecks.open(
            broker.transactions, service, broker.settings, broker.clients, broker.topics, broker.offsets, broker.clock
        ):
            await broker.clock.advance(29)
            assert len(broker.messages(TRANS_HALF)) == 1
            await broker.clock.advance(2)
            assert (await producer.next_request(CheckTransaction)).tran_state_table_offset == 1


# --- outcomes that cross questions


async def test_an_outcome_for_the_first_message_ends_its_copies() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        sent = await producer.send_half()
        await broker.run_pass()
        first = await producer.next_request(CheckTransaction)
        await broker.run_pass()
        await producer.end(sent, COMMIT)
        second = await producer.next_request(CheckTransaction)
        for check_request in (first, second):
            await producer.end_checked(check_request, COMMIT)
        await broker.run_pass()
        assert broker.bodies() == [b"paid"]
        assert broker.bodies(TRANS_OP) == [b"2"]
        assert progress(broker) == (3, 1)


async def test_a_late_answer_to_an_early_question_ends_the_newest_copy() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        await producer.send_half()
        await broker.run_pass()
        early = await producer.next_request(CheckTransaction)
        await broker.run_pass()
        await producer.end_checked(early, ROLLBACK)
        await broker.run_pass()
        assert broker.bodies(TRANS_OP) == [b"2"]
        assert len(broker.messages(TRANS_HALF)) == 3


# --- giving up


async def exhaust(broker: TransactionBroker, producer: Peer) -> None:
    for _ in range(broker.settings.transaction_check_max):
        await broker.run_pass()
        await producer.next_request(CheckTransaction)
    await broker.run_pass()


async def test_after_the_last_check_a_message_is_put_aside() -> None:
    async with transaction_broker(transaction_check_max=2) as broker, peer(broker) as producer:
        sent = await producer.send_half()
        await exhaust(broker, producer)
        (kept,) = broker.messages(TRANS_CHECK_MAX)
        assert (kept.body, kept.properties["REAL_TOPIC"]) == (b"paid", TOPIC)
        assert broker.topics.get(TRANS_CHECK_MAX) is not None
        assert progress(broker) == (3, 0)
        with pytest.raises(RequestFailed, match=TRANS_CHECK_MAX):
            await producer.end(sent, COMMIT)
        assert broker.bodies() == []


async def test_a_message_older_than_its_file_may_get_is_put_aside() -> None:
    async with transaction_broker(store={"retention_hours": 1}) as broker, peer(broker) as producer:
        await producer.send_half()
        await broker.run_pass(after_s=3601)
        assert broker.bodies(TRANS_CHECK_MAX) == [b"paid"]


@pytest.mark.parametrize("topic", [TRANS_CHECK_MAX, TRANS_HALF])
async def test_a_given_up_message_can_be_asked_about_again(topic: str) -> None:
    async with transaction_broker(transaction_check_max=1) as broker, peer(broker) as producer:
        sent = await producer.send_half()
        await exhaust(broker, producer)
        physical = broker.messages(topic)[0].physical_offset
        await producer.call(ResumeTransactionChecks(offset_message_id(HOST, physical)))
        await broker.run_pass()
        check_request = await producer.next_request(CheckTransaction)
        assert decode(check_request.body).properties["TRANSACTION_CHECK_TIMES"] == "1"
        await producer.end_checked(check_request, COMMIT)
        await producer.end(sent, COMMIT)
        assert broker.bodies() == [b"paid"]


async def test_a_given_up_message_takes_a_late_outcome_once_it_is_opened_again() -> None:
    async with transaction_broker(transaction_check_max=1) as broker, peer(broker) as producer:
        sent = await producer.send_half()
        await exhaust(broker, producer)
        (kept,) = broker.messages(TRANS_CHECK_MAX)
        await producer.call(ResumeTransactionChecks(offset_message_id(HOST, kept.physical_offset)))
        await producer.end(sent, COMMIT)
        assert broker.bodies() == [b"paid"]


async def test_a_message_that_still_waits_is_not_opened_twice() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        sent = await producer.send_half()
        response = await producer.call(ResumeTransactionChecks(sent.msg_id))
        assert response.code == ResponseCode.SUCCESS
        assert len(broker.messages(TRANS_HALF)) == 1


@pytest.mark.parametrize("msg_id", [None, "", "nonsense", "7F0000010000000000000000FFFFFFFF"])
async def test_only_a_given_up_message_can_be_opened_again(msg_id: str | None) -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        with pytest.raises(RequestFailed):
            await producer.call(ResumeTransactionChecks(msg_id))


async def test_an_ordinary_message_cannot_be_made_a_half_message() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        await producer.end(await producer.send_half(), COMMIT)
        (delivered,) = broker.messages(TOPIC)
        with pytest.raises(RequestFailed, match="is not in"):
            await producer.call(ResumeTransactionChecks(offset_message_id(HOST, delivered.physical_offset)))


# --- trouble


async def test_a_message_too_large_for_a_copy_is_asked_about_where_it_is() -> None:
    """Its properties are as long as properties may be, and a copy has one more."""
    async with transaction_broker() as broker, peer(broker) as producer:
        await producer.end(await producer.send_half(b"probe", filling="x"), ROLLBACK)
        room = PROPERTIES_BYTES_MAX - len(encode_properties(broker.messages(TRANS_HALF)[0].properties))
        sent = await producer.send_half(b"large", filling="x" * (room + 1))
        for _ in range(2):
            await broker.run_pass()
            check_request = await producer.next_request(CheckTransaction)
            assert check_request.commit_log_offset == int(sent.msg_id[-16:], 16)
        await producer.end_checked(check_request, COMMIT)
        assert broker.bodies() == [b"large"]


async def test_a_full_disk_ends_the_round_and_the_next_one_goes_on() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        await producer.send_half()
        broker.disk.fail_writes(OSError(errno.ENOSPC, "No space left on device"))
        await broker.run_pass()
        assert len(broker.messages(TRANS_HALF)) == 1
        broker.disk.fail_writes(None)
        await broker.run_pass()
        await producer.next_request(CheckTransaction)


async def test_progress_is_not_noted_when_the_disk_cannot_vouch_for_it() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        await producer.oneway(outcome_of(await producer.send_half(), COMMIT))
        await producer.exchange(ResumeTransactionChecks("x"))
        before = progress(broker)
        broker.transactions.keep(_op_like(broker))
        broker.disk.fail_syncs(OSError(errno.EIO, "Input/output error"))
        await broker.run_pass()
        assert progress(broker) == before == (-1, -1)


async def test_a_queue_entry_that_leads_to_no_half_message_is_passed_over() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        stray = _op_like(broker)
        stray.topic = TRANS_HALF
        broker.transactions.keep(stray)
        sent = await producer.send_half()
        await broker.run_pass()
        await producer.next_request(CheckTransaction)
        await producer.end(sent, COMMIT)
        await broker.run_pass()
        assert progress(broker)[0] == 3


def _op_like(broker: TransactionBroker) -> InboundMessage:
    return InboundMessage(
        topic=TRANS_OP,
        queue_id=0,
        body=b"x",
        properties={},
        born_timestamp_ms=broker.clock.now_ms(),
        born_host=HOST,
    )
