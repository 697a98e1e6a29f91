"""The fast path for half messages and outcomes: it answers and stores the same as the general path."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import cycle
from math import inf
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ariane.clock import Clock
from ariane.model.system_topics import TRANS_HALF, TRANS_OP
from ariane.rpc.dispatcher import Dispatcher
from ariane.store.settings import FlushDiskType
from ariane.testing import FakeClock
from ariane.transport.connection import Connection, ReceiveResult
from ariane.transport.settings import TransportSettings
from ariane.wire.codes import HeaderFlag, ResponseCode, Serialization
from ariane.wire.exchange import read_response, request_command
from ariane.wire.fields import Request
from ariane.wire.frame import Command, FrameDecoder, encode_frame
from ariane.wire.requests.send import Decision, EndTransaction, SendMessageV2, SendResponse
from tests.broker.send.test_fast_path import Sink
from tests.broker.transaction_fixtures import TOPIC, TransactionBroker, half_send, outcome_of, transaction_broker

ONEWAY = int(HeaderFlag.ONEWAY)
JSON, BINARY = Serialization.JSON, Serialization.BINARY
ASYNC = {"flush_disk_type": FlushDiskType.ASYNC, "segment_bytes": 1024 * 1024}


class FakeProducer:
    """A connection to a broker without a socket, which counts the requests that took the general path."""

    def __init__(self, broker: TransactionBroker, *, fast_path: bool) -> None:
        self.broker = broker
        self.general = 0
        self._sink = Sink()
        self._dispatcher: Dispatcher = broker.dispatcher
        chosen = broker.dispatcher.fast_path if fast_path else None
        self.connection = Connection(self._receive, TransportSettings(), Clock(), lambda _: None, chosen)
        self.connection._slice_s = inf
        self.connection.connection_made(self._sink)

    def _receive(self, connection: Connection, command: Command) -> ReceiveResult:
        self.general += 1
        return self._dispatcher.receive(connection, command)

    async def feed(self, *frames: bytes) -> dict[int, Command]:
        """The answers by opaque number, to frames that come in one chunk."""
        self.connection.data_received(b"".join(frames))
        for _ in range(4):
            await asyncio.sleep(0)
        decoder = FrameDecoder()
        decoder.feed(self._sink.written)
        self._sink.written = b""
        return {command.opaque: command for command in decoder}

    async def send_half_messages(self, requests: Sequence[SendMessageV2], kind: Serialization) -> list[SendResponse]:
        got = await self.feed(*(frame(request, n, kind) for n, request in enumerate(requests)))
        return [read_response(request, got[n]) for n, request in enumerate(requests)]

    def everything_stored(self) -> Any:
        log, counters = self.broker.store.components.commit_log, self.broker.writer.counters
        record = log.read(0, log.max_offset) if log.max_offset else b""
        assert record is not None
        pending = self.broker.transactions.open
        tallies = {topic: (tally.messages, tally.bytes) for topic, tally in counters.puts.items()}
        ended = (pending.first_open, pending.first_op, len(pending))
        return bytes(record), tallies, ended, dict(counters.rejected_sends)


def frame(request: Request[Any], opaque: int, kind: Serialization = JSON, flag: int = 0) -> bytes:
    command = request_command(request, opaque=opaque, serialization=kind)
    command.flag = flag
    return encode_frame(command)


# --- the same as the general path -------------------------------------------------------------------------------------

texts = st.sampled_from([{}, {}, {}, {"TAGS": "paid", "KEYS": "k"}, {"DELAY": "3"}, {"REAL_TOPIC": "other"}])
half_messages = st.lists(st.tuples(st.integers(0, 3), texts), min_size=1, max_size=6)
decisions = st.sampled_from([8, 8, 8, 12, 12, 0, 5])
changes = st.sampled_from(
    [{}] * 8
    + [
        {"producer_group": "others"},
        {"producer_group": "payers\x02CLUSTER\x01DefaultCluster"},
        {"commit_log_offset": 7},
        {"tran_state_table_offset": 10**6},
        {"tran_state_table_offset": -1},
        {"from_transaction_check": True, "transaction_id": "7F"},
    ]
)
ends = st.lists(
    st.tuples(
        st.integers(0, 5), decisions, changes, st.sampled_from([0, 0, ONEWAY, 4]), st.sampled_from(Serialization)
    ),
    max_size=10,
)
HALF_MESSAGES: list[tuple[int, dict[str, str]]] = [(n % 4, {}) for n in range(6)]


@pytest.mark.parametrize("checksums", [False, True], ids=["plain", "with record checksums"])
def test_every_outcome_is_answered_and_stored_as_by_the_general_path(checksums: bool) -> None:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def opened() -> list[FakeProducer]:
            producers = []
            for fast_path in (True, False):
                made = transaction_broker(clock=FakeClock(), store=ASYNC | {"seal_records": checksums})
                broker = await stack.enter_async_context(made)
                producers.append(FakeProducer(broker, fast_path=fast_path))
                await producers[-1].feed(frame(half_send(b"first"), 1))
            return producers

        fast, general = runner.run(opened())

        @settings(deadline=None, max_examples=120, suppress_health_check=list(HealthCheck))
        @given(sent=half_messages, kind=st.sampled_from(Serialization), end=ends, is_mixed=st.booleans())
        @example(sent=HALF_MESSAGES, kind=BINARY, end=[(n, 8, {}, ONEWAY, BINARY) for n in range(6)], is_mixed=False)
        @example(sent=HALF_MESSAGES, kind=JSON, end=[(n % 2, 8 + n, {}, 0, JSON) for n in (0, 4, 0, 4)], is_mixed=True)
        def check(
            sent: list[tuple[int, dict[str, str]]],
            kind: Serialization,
            end: list[tuple[int, int, dict[str, Any], int, Serialization]],
            is_mixed: bool,
        ) -> None:
            async def both() -> None:
                requests = [half_send(b"%d" % n, queue_id, **text) for n, (queue_id, text) in enumerate(sent)]
                first, second = [await producer.send_half_messages(requests, kind) for producer in (fast, general)]
                assert first == second
                frames = []
                for opaque, (place, decision, changed, flag, kind_) in enumerate(end):
                    outcome: EndTransaction = outcome_of(first[place % len(first)], decision, **changed)
                    frames.append(frame(outcome, opaque, kind_, flag))
                    if is_mixed:
                        frames.append(frame(requests[place % len(requests)], 1000 + opaque, kind_))
                assert await fast.feed(*frames) == await general.feed(*frames)
                assert fast.everything_stored() == general.everything_stored()

            runner.run(both())

        try:
            check()
            assert fast.general < general.general
        finally:
            runner.run(stack.aclose())


@pytest.mark.parametrize("kind", Serialization)
@pytest.mark.parametrize("flag", [0, ONEWAY], ids=["answered", "one-way"])
async def test_common_transactions_never_meet_the_general_path(kind: Serialization, flag: int) -> None:
    async with transaction_broker(store=ASYNC) as broker:
        producer = FakeProducer(broker, fast_path=True)
        await producer.feed(frame(half_send(b"first"), 1))
        assert producer.general == 1, "the first send to a topic checks it"
        sent = await producer.send_half_messages([half_send(b"%d" % n, n % 4) for n in range(24)], kind)
        assert len(broker.transactions.recent) == 24
        ended = zip(sent, cycle([Decision.COMMIT, Decision.ROLLBACK]), strict=False)
        got = await producer.feed(*(frame(outcome_of(*one), n, kind, flag) for n, one in enumerate(ended)))
        assert producer.general == 1
        assert [response.code for response in got.values()] == ([] if flag else [ResponseCode.SUCCESS] * 24)
        assert {response.serialization for response in got.values()} <= {kind}
        assert sorted(body for n in range(4) for body in broker.bodies(TOPIC, n)) == sorted(
            b"%d" % n for n in range(0, 24, 2)
        )
        assert len(broker.messages(TRANS_OP)) == 24
        assert len(broker.transactions.recent) == 0


async def test_a_half_message_that_is_not_in_memory_any_more_is_read_from_the_log() -> None:
    async with transaction_broker(store=ASYNC) as broker:
        producer = FakeProducer(broker, fast_path=True)
        await producer.feed(frame(half_send(b"first"), 1))
        sent = await producer.send_half_messages([half_send(b"%d" % n) for n in range(4)], BINARY)
        for one in sent:
            assert broker.transactions.recent.take(one.queue_offset) is not None
        general = producer.general
        await producer.feed(*(frame(outcome_of(one, Decision.COMMIT), 1, BINARY, ONEWAY) for one in sent))
        assert producer.general == general
        assert broker.bodies() == [b"0", b"1", b"2", b"3"]


async def test_an_outcome_that_does_not_fit_is_refused_and_the_next_one_counts() -> None:
    async with transaction_broker(store=ASYNC) as broker:
        producer = FakeProducer(broker, fast_path=True)
        await producer.feed(frame(half_send(b"first"), 1))
        (sent,) = await producer.send_half_messages([half_send(b"paid")], BINARY)
        right = outcome_of(sent, Decision.COMMIT)
        got = await producer.feed(
            frame(replace(right, producer_group="others"), 1, BINARY),
            frame(right, 2, BINARY),
            frame(replace(right, commit_or_rollback=12), 3, BINARY),
        )
        assert [got[n].code for n in (1, 2, 3)] == [ResponseCode.SYSTEM_ERROR, 0, ResponseCode.SYSTEM_ERROR]
        assert "'payers'" in (got[1].remark or "")
        assert broker.bodies() == [b"paid"]
        assert len(broker.messages(TRANS_HALF)) == 2
