"""Batches of several connections in one event-loop iteration: stored together, and each as if it had come alone."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import cycle
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ariane.broker.send.sinks import BATCH_BYTES_MAX
from ariane.errors import StoreFull
from ariane.model.message import StoredMessage
from ariane.store.settings import FlushDiskType
from ariane.wire.codes import HeaderFlag, ResponseCode, Serialization
from ariane.wire.frame import Command, FrameDecoder
from ariane.wire.record.batch import BatchItem
from ariane.wire.record.read import decode_all
from ariane.wire.requests.send import Send
from tests.broker.in_process_broker import InProcessBroker, a_send
from tests.broker.send.test_fast_path import COMMON, FakeConnection, chunk_bytes, connection_to, frames, kinds
from tests.broker.send.test_fast_path_batch import (
    COMMON_CHUNK,
    SMALL_FILES,
    a_batch,
    chunks,
    even,
    failing_appends,
    left,
    uneven,
)

PEERS = ("192.0.2.7:50000", "192.0.2.8:50001", "[2001:db8::7]:50002")


def connections_of(broker: InProcessBroker, *, fast_path: bool = True) -> list[FakeConnection]:
    """Connections of several clients to one broker."""
    connections = [FakeConnection(broker, fast_path=fast_path) for _ in PEERS]
    for connection, peer in zip(connections, PEERS, strict=True):
        connection.connection.peer = peer
    return connections


async def feed_all(connections: Sequence[FakeConnection], chunks: Sequence[bytes]) -> list[dict[int, Command]]:
    """What each is answered when all chunks are read in one event-loop iteration."""
    for connection, chunk in zip(connections, chunks, strict=True):
        connection.connection.data_received(chunk)
    await asyncio.sleep(0)
    return [answers_to(connection) for connection in connections]


def answers_to(one: FakeConnection) -> dict[int, Command]:
    decoder = FrameDecoder()
    decoder.feed(one.sink.written)
    one.sink.written = b""
    return {command.opaque: command for command in decoder}


def writes_to_the_log(broker: InProcessBroker) -> list[int]:
    """Grows by the size of each write."""
    log, writes = broker.store.components.commit_log, list[int]()
    real = log.append
    log.append = lambda records: writes.append(len(records)) or real(records)  # type: ignore[method-assign,func-returns-value]
    return writes


def stored_in(broker: InProcessBroker) -> list[StoredMessage]:
    """All messages in the order of the log."""
    log = broker.store.components.commit_log
    return decode_all(bytes(log.read(0, log.max_offset) or b""))


def bodies_in(broker: InProcessBroker) -> list[bytes]:
    return [message.body for message in stored_in(broker)]


def test_every_batch_of_every_connection_is_answered_and_stored_as_by_the_general_path(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def opened() -> tuple[InProcessBroker, InProcessBroker]:
            short = await stack.enter_async_context(connection_to(tmp_path / "a", store=SMALL_FILES))
            long = await stack.enter_async_context(connection_to(tmp_path / "b", store=SMALL_FILES))
            return short.broker, long.broker

        short, long = runner.run(opened())

        @settings(deadline=None, max_examples=50, suppress_health_check=list(HealthCheck))
        @given(turn=st.tuples(*[chunks] * len(PEERS)), mix=st.lists(kinds, min_size=1, max_size=4))
        @example(turn=([COMMON_CHUNK], [COMMON_CHUNK], [COMMON_CHUNK]), mix=list(Serialization))
        @example(
            turn=([[a_batch(*uneven())]], [[a_batch(*even(), body=b"broken")]], [[a_batch(*uneven())]]),
            mix=list(Serialization),
        )
        def check(turn: tuple[list[list[Send]], ...], mix: list[Serialization]) -> None:
            async def both() -> None:
                kind = cycle(mix)
                data = [chunk_bytes([(request, 0, next(kind)) for part in chunk for request in part]) for chunk in turn]
                one, other = connections_of(short), connections_of(long, fast_path=False)
                assert await feed_all(one, data) == await feed_all(other, data)
                assert left(one[0]) == left(other[0])
                short.store.derived.write()
                long.store.derived.write()

            runner.run(both())

        try:
            check()
        finally:
            runner.run(stack.aclose())


async def test_batches_of_all_connections_share_one_write(tmp_path: Path) -> None:
    async with connection_to(tmp_path) as sender:
        await sender.feed(frames(a_send(properties=COMMON)))
        connections, writes = connections_of(sender.broker)[:2], writes_to_the_log(sender.broker)
        chunk = frames(*[a_batch(*even(), queue_id=n % 2) for n in range(4)])
        answered = await feed_all(connections, [chunk] * 2)
        assert len(writes) == 1
        assert [[responses[opaque].code for opaque in range(1, 5)] for responses in answered] == [[0] * 4] * 2
        assert {str(message.born_host) for message in stored_in(sender.broker)} == set(PEERS[:2])


async def test_a_batch_that_cannot_be_read_is_refused_alone(tmp_path: Path) -> None:
    async with connection_to(tmp_path) as sender:
        await sender.feed(frames(a_send(properties=COMMON)))
        odd = a_batch(*even(31), BatchItem(b"hello", b"DELAY\x013\x02"))
        connections = connections_of(sender.broker)[:2]
        chunk = frames(a_batch(*even()), odd, *[a_batch(*even())] * 3)
        answered = await feed_all(connections, [frames(a_batch(*even())), chunk])
        assert answered[0][1].code == 0
        codes = [answered[1][opaque].code for opaque in range(1, 6)]
        assert codes == [0, ResponseCode.MESSAGE_ILLEGAL, 0, 0, 0]
        assert [connection.general for connection in connections] == [0, 0]
        assert sender.broker.writer.counters.rejected_sends.total() == 1
        assert len(bodies_in(sender.broker)) == 1 + 5 * 32


async def test_sends_and_batches_of_several_connections_are_stored_in_the_order_in_which_they_came(
    tmp_path: Path,
) -> None:
    async with connection_to(tmp_path) as sender:
        await sender.feed(frames(a_send(b"0", COMMON)))
        first = frames(a_batch(*even(2, b"1")), a_send(b"2", COMMON), a_batch(*even(2, b"3")))
        second = frames(a_batch(*even(2, b"4")), a_send(b"5", COMMON))
        await feed_all(connections_of(sender.broker)[:2], [first, second])
        assert bodies_in(sender.broker) == [b"0", b"1", b"1", b"2", b"3", b"3", b"4", b"4", b"5"]


async def test_what_takes_another_way_to_the_log_does_not_pass_the_batches_before_it(tmp_path: Path) -> None:
    async with connection_to(tmp_path) as sender:
        await sender.feed(frames(a_send(b"0", COMMON)))
        one, other = connections_of(sender.broker)[:2]
        general = frames(a_batch(*even(2, b"2")), flag=int(HeaderFlag.ONEWAY))
        await feed_all([one, other], [frames(a_batch(*even(2, b"1"))), general])
        assert (one.general, other.general) == (0, 1)
        assert bodies_in(sender.broker) == [b"0", b"1", b"1", b"2", b"2"]


async def test_much_of_it_does_not_wait_for_the_end_of_the_turn(tmp_path: Path) -> None:
    async with connection_to(tmp_path) as sender:
        await sender.feed(frames(a_send(properties=COMMON)))
        writes = writes_to_the_log(sender.broker)
        sender.connection.data_received(frames(a_batch(*even(500, bytes(BATCH_BYTES_MAX // 500)))))
        assert len(writes) == 1
        assert answers_to(sender)[1].code == 0


@pytest.mark.parametrize("error", [ZeroDivisionError(), StoreFull("no space")], ids=["ours", "the disk's"])
async def test_every_batch_of_a_failed_append_is_reported_to_its_sender(tmp_path: Path, error: Exception) -> None:
    async with connection_to(tmp_path) as sender:
        await sender.feed(frames(a_send(properties=COMMON)))
        with failing_appends(sender.broker, error):
            answered = await feed_all(connections_of(sender.broker)[:2], [frames(*[a_batch(*even())] * 3)] * 2)
        assert [len(responses) for responses in answered] == [3, 3]
        assert {responses[opaque].code for responses in answered for opaque in (1, 2, 3)}.isdisjoint({0})
        assert bodies_in(sender.broker) == [b"hello"]


async def test_a_client_that_has_gone_does_not_keep_the_others_from_their_answers(tmp_path: Path) -> None:
    async with connection_to(tmp_path) as sender:
        await sender.feed(frames(a_send(properties=COMMON)))
        gone, there = connections_of(sender.broker)[:2]
        gone.connection.data_received(frames(a_batch(*even())))
        gone.connection.connection_lost(None)
        (responses,) = await feed_all([there], [frames(a_batch(*even()))])
        assert responses[1].code == 0
        assert len(bodies_in(sender.broker)) == 1 + 2 * 32  # it was taken before the client went


async def test_each_connection_waits_for_the_sync_of_its_own_batches(tmp_path: Path) -> None:
    async with connection_to(tmp_path, flush=FlushDiskType.SYNC) as sender:
        await sender.broker.call(a_send(properties=COMMON))
        one, other = connections_of(sender.broker)[:2]
        hasty = a_batch(*even(), properties="WAIT\x01false\x02")
        first, second = await feed_all([one, other], [frames(a_batch(*even())), frames(hasty)])
        assert (list(first), list(second)) == ([], [1])
        async with asyncio.timeout(30):
            while not first:
                first = await one.feed(b"")
        assert first[1].code == 0
