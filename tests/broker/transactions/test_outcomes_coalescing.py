"""Half messages and outcomes of one event-loop iteration: written together, and each as if it had come alone."""

import random
from typing import Any

import pytest
from msgspec.structs import replace

from ariane.broker.transactions.outcomes import OutcomeSink
from ariane.broker.writer import MessageWriter
from ariane.errors import RequestFailed
from ariane.model.system_topics import TRANS_HALF, TRANS_OP
from ariane.store.settings import FlushDiskType
from ariane.testing import FakeClock
from ariane.wire.codes import ResponseCode
from ariane.wire.exchange import read_response, request_command
from ariane.wire.fields import Request
from ariane.wire.frame import Command, encode_frame
from ariane.wire.requests.send import CheckTransaction, Decision, SendResponse
from tests.broker.transaction_fixtures import (
    TOPIC,
    Peer,
    TransactionBroker,
    checked_outcome,
    half_send,
    outcome_of,
    peer,
    transaction_broker,
)
from tests.simulation.simulated_disk import SimulatedDisk

COMMIT, ROLLBACK = Decision.COMMIT, Decision.ROLLBACK
COUNT = 24


async def together(producer: Peer, *requests: Request[Any]) -> list[Command]:
    """Asks in one write; the answers in the order of the questions, however they come."""
    await producer.raw.send(
        b"".join(encode_frame(request_command(request, opaque=n)) for n, request in enumerate(requests, 1000))
    )
    responses = [await producer.raw.read() for _ in requests]
    return sorted(responses, key=lambda command: command.opaque)


async def send_half_messages(producer: Peer, count: int = COUNT, **properties: str) -> list[SendResponse]:
    requests = [half_send(b"%d" % number, queue_id=number % 4, **properties) for number in range(count)]
    responses = await together(producer, *requests)
    return [read_response(request, response) for request, response in zip(requests, responses, strict=True)]


def decision_of(number: int) -> Decision:
    return COMMIT if number % 3 else ROLLBACK


def committed() -> list[bytes]:
    return [b"%d" % number for number in range(COUNT) if decision_of(number) is COMMIT]


def delivered(broker: TransactionBroker) -> list[bytes]:
    return sorted((body for queue_id in range(4) for body in broker.bodies(TOPIC, queue_id)), key=int)


@pytest.mark.parametrize("flush", FlushDiskType)
async def test_outcomes_of_one_chunk_are_each_taken_and_answered(flush: FlushDiskType) -> None:
    async with transaction_broker(store={"flush_disk_type": flush}) as broker, peer(broker) as producer:
        sent = await send_half_messages(producer)
        assert [response.queue_id for response in sent] == [number % 4 for number in range(COUNT)]
        assert [response.queue_offset for response in sent] == list(range(COUNT))
        responses = await together(
            producer, *(outcome_of(half_message, decision_of(n)) for n, half_message in enumerate(sent))
        )
        assert {response.code for response in responses} == {ResponseCode.SUCCESS}
        assert delivered(broker) == committed()
        assert sorted(broker.bodies(TRANS_OP), key=int) == [b"%d" % number for number in range(COUNT)]
        assert broker.transactions.open.first_open == COUNT


async def test_outcomes_of_one_chunk_share_their_appends() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        sent = await send_half_messages(producer)
        log = broker.store.components.layout.commit_log
        before = len(broker.disk.journal)
        await together(producer, *(outcome_of(half_message, COMMIT) for half_message in sent))
        writes = [entry for entry in broker.disk.journal[before:] if entry.kind == "write" and entry.path.parent == log]
        assert 2 <= len(writes) <= COUNT // 2, "two, unless the chunk came in several pieces"


async def test_of_two_outcomes_in_one_chunk_the_first_is_final() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        (sent,) = await send_half_messages(producer, 1)
        first, second, again = await together(
            producer, outcome_of(sent, ROLLBACK), outcome_of(sent, COMMIT), outcome_of(sent, ROLLBACK)
        )
        assert (first.code, again.code) == (ResponseCode.SUCCESS, ResponseCode.SUCCESS)
        assert second.code == ResponseCode.SYSTEM_ERROR
        assert "ended with ROLLBACK" in (second.remark or "")
        assert delivered(broker) == []
        assert broker.bodies(TRANS_OP) == [b"0"]


async def test_an_outcome_that_does_not_fit_costs_no_other_of_its_chunk() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        sent = await send_half_messages(producer, 3)
        responses = await together(
            producer,
            outcome_of(sent[0], COMMIT),
            outcome_of(sent[1], COMMIT, producer_group="others"),
            outcome_of(sent[2], COMMIT),
        )
        assert [response.code == ResponseCode.SUCCESS for response in responses] == [True, False, True]
        assert delivered(broker) == [b"0", b"2"]


async def test_a_real_message_that_is_refused_gets_no_op_message_and_stays_open() -> None:
    """Its topic's name is longer than that of the half messages, and so is its record, which no file can hold then."""
    topic = "a-topic-with-a-name-that-is-much-longer-than-that-of-the-half-messages"
    async with transaction_broker() as broker, peer(broker) as producer:
        broker.topics.ensure(topic, 4)
        request = replace(half_send(bytes(1)), topic=topic)
        (probe,) = await together(producer, request)
        room = broker.store.components.commit_log.room_max - broker.messages(TRANS_HALF)[0].stored_size
        large = replace(request, body=bytes(1 + room))
        (response,) = await together(producer, large)
        sent = read_response(large, response)
        fits = read_response(request, probe)
        refused, taken = await together(producer, outcome_of(sent, COMMIT), outcome_of(fits, COMMIT))
        assert (refused.code, taken.code) == (ResponseCode.MESSAGE_ILLEGAL, ResponseCode.SUCCESS)
        assert broker.bodies(TRANS_OP) == [b"0"]
        assert broker.transactions.open.is_open(1), "its producer may still roll it back, and is asked"
        assert broker.bodies(topic) == [bytes(1)]


async def test_no_op_message_is_written_where_its_real_message_found_no_space() -> None:
    """The file that ends has room for the op message alone, and the disk has none for the next file."""
    disk = SimulatedDisk(space_left=65536 + 30_000)
    async with transaction_broker(disk, store={"index_enable": False}) as broker, peer(broker) as producer:
        sent = await producer.send_half(b"x" * 3000)
        filler = half_send(b"f" * 900)
        while broker.store.components.commit_log.room() > 2500:
            await producer.call(filler)
        assert broker.store.components.commit_log.room() > 1000, "an op message takes a fifth of that"
        with pytest.raises(RequestFailed) as refused:
            await producer.end(sent, COMMIT)
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert broker.bodies(TRANS_OP) == []
        assert broker.transactions.open.is_open(0)


# --- crashes ----------------------------------------------------------------------------------------------------------


async def moments() -> list[tuple[str, SimulatedDisk]]:
    """The disk after each append of a chunk of outcomes, with the topic of a message in it."""
    found: list[tuple[str, SimulatedDisk]] = []
    async with transaction_broker() as broker, peer(broker) as producer:
        sent = await send_half_messages(producer)
        broker.store.components.dispatcher.on_arrival(
            lambda topic, *_: found.append((topic, broker.disk.crash_process()))
        )
        await together(producer, *(outcome_of(half_message, decision_of(n)) for n, half_message in enumerate(sent)))
    return found


async def honest_end(broker: TransactionBroker, producer: Peer) -> None:
    """A producer that tells the truth until nobody asks any more."""
    for _ in range(2):
        before = len(broker.messages(TRANS_HALF))
        await broker.run_pass()
        for _ in range(len(broker.messages(TRANS_HALF)) - before):
            check_request = await producer.next_request(CheckTransaction)
            body = broker.messages(TRANS_HALF)[check_request.tran_state_table_offset].body
            await producer.call(checked_outcome(check_request, decision_of(int(body))))


@pytest.mark.parametrize("is_power_cut", [False, True])
async def test_a_crash_between_the_appends_of_a_chunk_loses_nothing_and_shows_nothing_that_was_rolled_back(
    is_power_cut: bool,
) -> None:
    states = await moments()
    assert {topic for topic, _ in states} == {TOPIC, TRANS_OP}
    for number, (topic, disk) in enumerate(states):
        left = disk.cut_power(random.Random(number)) if is_power_cut else disk
        boot = "boot-2" if is_power_cut else "boot-1"
        async with (
            transaction_broker(left, FakeClock(1_700_000_300_000), boot=boot) as broker,
            peer(broker) as producer,
        ):
            await honest_end(broker, producer)
            assert sorted(set(delivered(broker)), key=int) == committed()
            if topic == TRANS_OP and not is_power_cut:
                assert delivered(broker) == committed(), "and nothing twice: the op messages are there"


# --- checks -----------------------------------------------------------------------------------------------------------


async def test_no_check_request_is_sent_about_an_outcome_that_came_in_this_iteration() -> None:
    async with transaction_broker() as broker, peer(broker) as producer:
        sent = await producer.send_half(b"1")
        await broker.clock.advance(60)
        outcomes = OutcomeSink(broker.transactions, writer_of(broker))
        connection = next(iter(broker.clients.producers("payers"))).connection
        record = broker.transactions.queue.at(sent.queue_offset)
        assert outcomes.enqueue(outcome_of(sent, COMMIT), connection, None, record)
        assert delivered(broker) == []
        await broker.checks.run_pass()
        assert delivered(broker) == [b"1"]
        assert len(broker.messages(TRANS_HALF)) == 1, "no copy was made"


def writer_of(broker: TransactionBroker) -> MessageWriter:
    return broker.transactions._writer
