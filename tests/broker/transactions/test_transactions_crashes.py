"""A broker that dies after each record it writes, and a machine that loses power there; then the producer is honest.

    half "yes", half "no", half "late" -> commit yes -> rollback no -> check of late: copy -> commit late -> check

Whatever moment it is, "no" is never delivered, the two others are, and each once: the one moment at which a message may
come twice is between a real message and its op message.
"""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from ariane.errors import RequestFailed
from ariane.model.system_topics import TRANS_HALF, TRANS_OP
from ariane.testing import FakeClock
from ariane.wire.requests.send import CheckTransaction, Decision, SendResponse
from tests.broker.transaction_fixtures import (
    TOPIC,
    Peer,
    TransactionBroker,
    checked_outcome,
    outcome_of,
    peer,
    transaction_broker,
)
from tests.simulation.simulated_disk import SimulatedDisk

TRUTH = {b"yes": Decision.COMMIT, b"no": Decision.ROLLBACK, b"late": Decision.COMMIT}
POWER_CUTS = 5


class Moment(NamedTuple):
    """Just after a record was written."""

    topic: str
    disk: SimulatedDisk
    acknowledged: frozenset[bytes]
    """Half messages that were answered with SEND_OK by then."""
    delivered: tuple[bytes, ...]
    """What consumers could have seen by then."""


class Scenario:
    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.clock = FakeClock()
        self.moments: list[Moment] = []
        self._acknowledged: set[bytes] = set()

    async def play(self) -> None:
        async with transaction_broker(self.disk, self.clock) as broker, peer(broker) as producer:
            broker.store.components.dispatcher.on_arrival(lambda topic, *_: self._note(broker, topic))
            sent = {body: await self._send(producer, body) for body in TRUTH}
            await producer.end(sent[b"yes"], Decision.COMMIT)
            await producer.end(sent[b"no"], Decision.ROLLBACK)
            await self._round(broker)
            await producer.end_checked(await producer.next_request(CheckTransaction), Decision.COMMIT)
            await self._round(broker)
            self._note(broker, "end")

    async def _send(self, producer: Peer, body: bytes) -> SendResponse:
        sent = await producer.send_half(body)
        self._acknowledged.add(body)
        return sent

    async def _round(self, broker: TransactionBroker) -> None:
        await broker.run_pass()
        broker.offsets.save()
        self._note(broker, "round")

    def _note(self, broker: TransactionBroker, topic: str) -> None:
        delivered = tuple(broker.bodies())
        self.moments.append(Moment(topic, self.disk.crash_process(), frozenset(self._acknowledged), delivered))


@asynccontextmanager
async def honest_end(disk: SimulatedDisk, boot: str) -> AsyncIterator[TransactionBroker]:
    """A new broker on what is left, and a producer that tells the truth until nobody asks any more."""
    async with transaction_broker(disk, FakeClock(1_700_000_300_000), boot=boot) as broker, peer(broker) as producer:
        for _ in range(3):
            before = len(broker.messages(TRANS_HALF))
            await broker.run_pass()
            for _ in range(len(broker.messages(TRANS_HALF)) - before):
                check_request = await producer.next_request(CheckTransaction)
                shown = broker.messages(TRANS_HALF)[check_request.tran_state_table_offset]
                await producer.call(checked_outcome(check_request, TRUTH[shown.body]))
        assert broker.transactions.open.first_open == len(broker.messages(TRANS_HALF)), "something still waits"
        assert broker.transactions.open.first_op == len(broker.messages(TRANS_OP))
        yield broker


@pytest.fixture
async def moments() -> list[Moment]:
    made = Scenario()
    await made.play()
    return made.moments


async def test_the_scenario_passes_through_every_kind_of_record(moments: list[Moment]) -> None:
    topics = [moment.topic for moment in moments if moment.topic not in ("round", "end")]
    half, op = TRANS_HALF, TRANS_OP
    assert topics == [half, half, half, TOPIC, op, op, half, TOPIC, op]
    assert moments[-1].delivered == (b"yes", b"late")


async def test_after_a_kill_at_any_moment_each_committed_message_comes_and_no_other(moments: list[Moment]) -> None:
    for number, moment in enumerate(moments):
        async with honest_end(moment.disk, boot="boot-1") as broker:
            found = broker.bodies()
            assert b"no" not in found
            assert moment.acknowledged & {b"yes", b"late"} <= set(found), f"lost after moment {number}"
            twice = moment.delivered[-1] if moment.topic == TOPIC else None
            for body in set(found) - {twice}:
                assert found.count(body) == 1, f"{body!r} twice after moment {number} ({moment.topic})"


async def test_what_consumers_saw_before_a_kill_is_still_there(moments: list[Moment]) -> None:
    for moment in moments:
        async with honest_end(moment.disk, boot="boot-1") as broker:
            assert tuple(broker.bodies())[: len(moment.delivered)] == moment.delivered


async def test_after_a_power_cut_no_acknowledged_message_is_lost_or_wrong(moments: list[Moment]) -> None:
    for number, moment in enumerate(moments):
        for seed in range(POWER_CUTS):
            disk = moment.disk.cut_power(random.Random(f"{number}/{seed}"))
            async with honest_end(disk, boot="boot-2") as broker:
                found = broker.bodies()
                assert b"no" not in found
                lost = moment.acknowledged & {b"yes", b"late"} - set(found)
                assert not lost, f"moment {number} ({moment.topic}), seed {seed}"


async def test_an_outcome_sent_again_after_a_restart_delivers_nothing_more() -> None:
    disk = SimulatedDisk()
    async with transaction_broker(disk) as broker, peer(broker) as producer:
        sent = await producer.send_half()
        await producer.end(sent, Decision.COMMIT)
    async with transaction_broker(disk.crash_process()) as broker, peer(broker) as producer:
        with pytest.raises(RequestFailed, match="does not wait"):
            await producer.end(sent, Decision.COMMIT)
        assert broker.bodies() == [b"paid"]


async def test_an_outcome_sent_again_after_a_restart_between_two_checks_delivers_nothing_more() -> None:
    """The copy was ended by the outcome of the first message; both are still before the saved progress."""
    disk = SimulatedDisk()
    async with transaction_broker(disk) as broker, peer(broker) as producer:
        await producer.send_half(b"blocks", CHECK_IMMUNITY_TIME_IN_SECONDS="9999")
        sent = await producer.send_half()
        await broker.run_pass()
        check_request = await producer.next_request(CheckTransaction)
        await producer.end(sent, Decision.COMMIT)
        broker.offsets.save()
    async with transaction_broker(disk.crash_process(), broker.clock) as broker, peer(broker) as producer:
        for again in (outcome_of(sent, Decision.COMMIT), checked_outcome(check_request, Decision.COMMIT)):
            with pytest.raises(RequestFailed, match="does not wait"):
                await producer.call(again)
        await broker.run_pass()
        assert broker.bodies() == [b"paid"]
        assert len(broker.messages(TRANS_HALF)) == 3, "and it is not asked about"


async def test_a_producer_that_died_before_its_commit_is_asked_when_it_is_back() -> None:
    disk = SimulatedDisk()
    async with transaction_broker(disk) as broker:
        async with peer(broker) as producer:
            await producer.send_half()
        await broker.run_pass()
        await broker.run_pass()
    async with (
        transaction_broker(disk.crash_process(), broker.clock) as broker,
        peer(broker, client_id="reborn") as producer,
    ):
        await broker.run_pass()
        check_request = await producer.next_request(CheckTransaction)
        assert broker.messages(TRANS_HALF)[-1].properties["TRANSACTION_CHECK_TIMES"] == "3"
        await producer.end_checked(check_request, Decision.COMMIT)
        assert broker.bodies() == [b"paid"]
