"""The fast path for sends: it gives the same answers and stores the same records as the general path."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ariane.clock import Clock
from ariane.model.ids import RETRY_PREFIX
from ariane.model.system_topics import SCHEDULE, TRANS_HALF
from ariane.model.topic import TopicConfig, TopicFilterType
from ariane.store.settings import FlushDiskType
from ariane.testing import FakeClock
from ariane.transport.connection import Connection, ReceiveResult
from ariane.transport.settings import TransportSettings
from ariane.wire.codes import HeaderFlag, ResponseCode, Serialization
from ariane.wire.exchange import request_command
from ariane.wire.fast.decoders import begins_with_send
from ariane.wire.frame import Command, FrameDecoder, encode_frame
from ariane.wire.record.read import decode_all
from ariane.wire.requests.send import Send, SendBatch, SendMessage, SendMessageV2
from tests.broker.in_process_broker import TOPIC, InProcessBroker, a_send, in_process_broker
from tests.wire.fast.binary_frames import header_of, replaced
from tests.wire.golden_frames import raw_frames

TWO_TAGS = "two-tags"
READ_ONLY = "read-only"
RETRY = RETRY_PREFIX + "billing"
TOPICS = (
    TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=2),
    TopicConfig(topic_name=TWO_TAGS, topic_filter_type=TopicFilterType.MULTI_TAG),
    TopicConfig(topic_name=READ_ONLY, perm=4),
    TopicConfig(topic_name=RETRY),
)
COMMON = "KEYS\x01order-7\x02UNIQ_KEY\x017F0000010001\x02WAIT\x01true\x02TAGS\x01paid\x02"
HALF = COMMON + "TRAN_MSG\x01true\x02PGROUP\x01shop\x02"
DELAYED = COMMON + "DELAY\x013\x02"


class Sink(asyncio.Transport):
    """The other end of a connection: keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.7", 50_000)})
        self.written = b""

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def write(self, data: Any) -> None:
        self.written += data


class FakeConnection:
    """A connection to a broker without a socket, which counts the requests that took the general path."""

    def __init__(self, broker: InProcessBroker, *, fast_path: bool) -> None:
        self.broker = broker
        self.general = 0
        self.sink = Sink()
        settings, chosen = TransportSettings(), broker.dispatcher.fast_path if fast_path else None
        self.connection = Connection(self._receive, settings, Clock(), lambda _: None, chosen)
        self.connection._slice_s = inf  # all in one event-loop iteration, on a slow machine too
        self.connection.connection_made(self.sink)

    def _receive(self, connection: Connection, command: Command) -> ReceiveResult:
        self.general += 1
        return self.broker.dispatcher.receive(connection, command)

    async def feed(self, data: bytes, *cuts: int, until_answered: bool = False) -> dict[int, Command]:
        """The answers by opaque number, when the bytes come in pieces cut at these places."""
        places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
        for start, end in pairwise(places):
            self.connection.data_received(data[start:end])
            await asyncio.sleep(0)
            if until_answered:  # a thread saves a new topic before its first message
                await self.connection._handlers.wait(60)
        await asyncio.sleep(0)
        decoder = FrameDecoder()
        decoder.feed(self.sink.written)
        self.sink.written = b""
        return {command.opaque: command for command in decoder}

    def everything_stored(self) -> tuple[bytes, Any]:
        """The whole log, and what the counters say."""
        log, counters = self.broker.store.components.commit_log, self.broker.writer.counters
        tallies = {topic: (tally.messages, tally.bytes) for topic, tally in counters.puts.items()}
        ordered = {topic: (tally.messages, tally.bytes) for topic, tally in counters.ordered_puts.items()}
        record = log.read(0, log.max_offset) if log.max_offset else b""
        assert record is not None
        return bytes(record), (tallies, ordered, counters.sizes, counters.bytes_in, dict(counters.rejected_sends))


@asynccontextmanager
async def connection_to(tmp_path: Path, *, fast_path: bool = True, **changes: Any) -> AsyncIterator[FakeConnection]:
    async with in_process_broker(tmp_path, FakeClock(), topics=TOPICS, **changes) as broker:
        yield FakeConnection(broker, fast_path=fast_path)


def frames(*requests: Send, first: int = 1, **changes: Any) -> bytes:
    return b"".join(
        encode_frame(command(request, number, **changes)) for number, request in enumerate(requests, start=first)
    )


def command(
    request: Send, opaque: int, flag: int = 0, serialization: Serialization = Serialization.JSON, language: str = "JAVA"
) -> Command:
    made = request_command(request, opaque=opaque, serialization=serialization)
    made.flag, made.language = flag, language
    return made


# --- the same as the general path ------------------------------------------------------------------------------------

names = st.sampled_from(
    ["KEYS", "TAGS", "UNIQ_KEY", "WAIT", "CLUSTER", "MSG_REGION", "DELAY", "TRAN_MSG", "__CRC32#", "__SHARDINGKEY", "a"]
) | st.text("ab\x01\x02é", max_size=2)
values = st.sampled_from(["true", "false", "K 1", "7F01", "3"]) | st.text('ab \x01\x02é"\\', max_size=4)
texts = (
    st.sampled_from([None, "", COMMON, COMMON[:-1], COMMON + "__SHARDINGKEY\x01s\x02"])
    | st.sampled_from(
        [HALF, HALF[:-1], DELAYED, DELAYED[:-1], DELAYED.replace("3", "18"), DELAYED + HALF[len(COMMON) :]]
    )
    | st.builds(
        lambda base, pair, place: pair + base if place else base + pair,
        st.sampled_from([HALF, DELAYED, HALF.replace("true\x02P", "True\x02P"), DELAYED.replace("Y\x013", "Y\x0103")]),
        st.sampled_from(
            [
                "__SHARDINGKEY\x01s\x02",
                "REAL_TOPIC\x01a\x02",
                "TIMER_DELAY_SEC\x011\x02",
                "DELAY\x0130\x02",
                "a\x01b\x02",
            ]
        ),
        st.booleans(),
    )
    | st.lists(st.tuples(names, values), max_size=4).map(
        lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs)
    )
)
sends = st.builds(
    lambda kind, **fields: kind(**fields),
    kind=st.sampled_from([SendMessageV2] * 8 + [SendMessage, SendBatch]),
    producer_group=st.just("shop"),
    topic=st.sampled_from([TOPIC] * 8 + [TWO_TAGS, READ_ONLY, RETRY, "unknown", "SCHEDULE_TOPIC_XXXX", "é", ""]),
    default_topic=st.just("none"),
    default_topic_queue_nums=st.just(4),
    queue_id=st.sampled_from([0, 0, 1, 3, 4, 2**31 - 1]),
    sys_flag=st.sampled_from([0, 0, 0, 1, 2, 4, 8, 12, 0x30]),
    born_timestamp=st.sampled_from([0, 1_700_000_000_000]),
    flag=st.sampled_from([0, -1, 7]),
    properties=texts,
    reconsume_times=st.sampled_from([None, 0, 3]),
    unit_mode=st.booleans(),
    max_reconsume_times=st.sampled_from([None, 2]),
    batch=st.sampled_from([False, False, False, True, 1]),
    broker_name=st.sampled_from([None, "broker-a"]),
    body=st.sampled_from([b"", b"hello", b"x" * 3000, bytes(range(256))]),
)
flags = st.sampled_from([0] * 8 + [int(HeaderFlag.ONEWAY), 4])
kinds = st.sampled_from(Serialization)
chunks = st.lists(st.tuples(sends, flags, kinds), max_size=8)

# Of a binary header, each as long as what it replaces: the frame stays whole, and the header readable.
oddities = st.sampled_from(
    [(b"", b"")] * 24
    + [
        (b"\0\x01e\0\0\0\x010", b"\0\x01e\0\0\0\x01x"),
        (b"\0\x01e\0\0\0\x010", b"\0\x01e\0\0\0\x01-"),
        (b"\0\x01e", b"\0\x01z"),
        (b"\0\x01e", b"\0\x01i"),
        (b"1700000000000", b"0000000000017"),
        (b"1700000000000", b"17_0000000000"),
        (b"1700000000000", b"-700000000000"),
        (b"1700000000000", b" 700000000000"),
        (b"orders", b"order\0"),
        (b"paid", b"p\x02id"),
        (b"UNIQ_KEY\x017F", b'UNIQ_KEY\x01"F'),
        (b"\0\x01m\0\0\0\x05false", b"\0\x01m\0\0\0\x04true"),
        (b"\0\x01m\0\0\0\x04true", b"\0\x01m\0\0\0\x04True"),
    ]
)


def chunk_bytes(chunk: list[tuple[Send, int, Serialization]], changes: Sequence[tuple[bytes, bytes]] = ()) -> bytes:
    """`changes` are made to the binary headers among them, in turn."""
    whole = [
        encode_frame(command(send, opaque, flag, kind)) for opaque, (send, flag, kind) in enumerate(chunk, start=1)
    ]
    return b"".join([*map(odd, whole, changes), *whole[len(changes) :]])


def only(data: bytes) -> Command:
    decoder = FrameDecoder()
    decoder.feed(data)
    return next(decoder)


def odd(frame: bytes, change: tuple[bytes, bytes]) -> bytes:
    """A frame with something else in its header, if that is a binary one."""
    if not frame[4] or change[0] not in header_of(frame):
        return frame
    return replaced(frame, *change)


def test_every_send_is_answered_and_stored_as_by_the_general_path(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def opened() -> tuple[FakeConnection, FakeConnection]:
            short, long = connection_to(tmp_path / "a", fast_path=True), connection_to(tmp_path / "b", fast_path=False)
            return await stack.enter_async_context(short), await stack.enter_async_context(long)

        short, long = runner.run(opened())

        @settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
        @given(chunk=chunks, changes=st.lists(oddities, max_size=8), cuts=st.lists(st.integers(0, 20_000), max_size=2))
        def check(
            chunk: list[tuple[Send, int, Serialization]], changes: list[tuple[bytes, bytes]], cuts: list[int]
        ) -> None:
            async def both() -> None:
                data = chunk_bytes(chunk, changes)
                responses = await short.feed(data, *cuts, until_answered=True)
                assert responses == await long.feed(data, *cuts, until_answered=True)
                assert short.everything_stored() == long.everything_stored()

            runner.run(both())

        try:
            check()
            assert short.general < long.general
        finally:
            runner.run(stack.aclose())


@pytest.mark.parametrize("kind", Serialization)
@pytest.mark.parametrize("text", [COMMON, COMMON[:-1]], ids=["ended", "open"])
async def test_common_sends_never_meet_the_general_path_once_their_topic_is_known(
    tmp_path: Path, text: str, kind: Serialization
) -> None:
    async with connection_to(tmp_path) as sender:
        await sender.feed(frames(a_send(properties=text)))
        assert sender.general == 1
        requests = [a_send(b"%d" % number, text.replace("7", str(number))) for number in range(40)]
        responses = await sender.feed(frames(*requests, serialization=kind))
        assert sender.general == 1
        assert [responses[opaque].code for opaque in range(1, 41)] == [0] * 40
        assert [responses[opaque].ext["queueOffset"] for opaque in range(1, 41)] == [str(n) for n in range(1, 41)]


@pytest.mark.parametrize("kind", Serialization)
@pytest.mark.parametrize(
    ("text", "sys_flag", "topic"),
    [(HALF, 4, TRANS_HALF), (HALF[:-1], 4, TRANS_HALF), (DELAYED, 0, SCHEDULE), (DELAYED[:-1], 0, SCHEDULE)],
    ids=["half", "half, open", "delayed", "delayed, open"],
)
async def test_half_messages_and_delayed_ones_take_the_fast_path(
    tmp_path: Path, text: str, sys_flag: int, topic: str, kind: Serialization
) -> None:
    async with connection_to(tmp_path) as sender:
        await sender.feed(frames(a_send(properties=COMMON)))
        requests = [a_send(b"%d" % n, text.replace("7", str(n)), sys_flag=sys_flag, queue_id=1) for n in range(40)]
        responses = await sender.feed(frames(*requests, serialization=kind))
        assert sender.general == 1
        assert [(responses[n].code, responses[n].ext["queueId"]) for n in range(1, 41)] == [(0, "1")] * 40
        stored = sender.broker.store.reader.read(topic, 0 if topic == TRANS_HALF else 2, 0, 32)
        first, *_ = decode_all(b"".join(stored.slices))
        assert (first.body, first.properties["REAL_TOPIC"], first.properties["REAL_QID"]) == (b"0", TOPIC, "1")


async def test_a_broker_that_accepts_no_transactions_refuses_each_half_message(tmp_path: Path) -> None:
    async with connection_to(tmp_path, reject_transactions=True) as sender:
        await sender.feed(frames(a_send(properties=COMMON)))
        responses = await sender.feed(frames(*[a_send(properties=HALF, sys_flag=4)] * 12))
        assert {response.code for response in responses.values()} == {ResponseCode.NO_PERMISSION}


async def test_sends_and_batches_of_real_clients_take_the_fast_path(tmp_path: Path) -> None:
    """With headers of either kind, byte for byte as recorded; not one-way sends and retries."""
    recorded = [data for data in raw_frames() if begins_with_send(data, 0)]
    plain = [data for data in recorded if not only(data).flag and b"%RETRY%" not in data]
    assert [sum(data[4] == kind for data in plain) >= 3 for kind in Serialization] == [True, True]
    async with connection_to(tmp_path) as sender:
        for data in plain:
            sender.broker.topics.put(TopicConfig(topic_name=only(data).ext["b"]))
        for data in plain:
            await sender.feed(data)
        sender.general = 0
        for data in plain:
            (response,) = (await sender.feed(data)).values()
            assert (response.code, response.serialization) == (0, data[4])
        assert sender.general == 0


@pytest.mark.parametrize(
    "changed",
    [
        (b'"flag":0', b'"flag":"0"'),
        (b'"language":"JAVA"', b'"novelty":{"a":[[[]]]}'),
        (b'"e":"0"', b'"e":"007"'),
        (b'"e":"0"', b'"e":0'),
        (b'"e":"0"', b'"e":" 0"'),
        (b'"e":"0"', b'"x":"0"'),
        (b'"e":"0"', b'"e":"99999999999"'),
        (b'"m":"false"', b'"m":"no"'),
        (b'"m":"false"', b'"code":11'),
        (b'{"code":310', b'{"code":310,"code":34'),
        (b'"a":"shop"', b'"a":"\xff"'),
        (b"order", b"\\ud800"),
    ],
    ids=str,
)
async def test_a_header_that_is_uncommon_is_read_as_by_the_general_path(
    tmp_path: Path, changed: tuple[bytes, bytes]
) -> None:
    common = frames(a_send(properties=COMMON, unit_mode=False, batch=False))
    assert changed[0] in common
    header = common[8 : 8 + int.from_bytes(common[5:8], "big")].replace(*changed)
    odd = (4 + len(header) + 5).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + b"hello"
    async with connection_to(tmp_path / "a") as short, connection_to(tmp_path / "b", fast_path=False) as long:
        for connection in (short, long):
            await connection.feed(common)
        assert await short.feed(odd + common) == await long.feed(odd + common)
        assert short.everything_stored() == long.everything_stored()


# --- what must hold on either way -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fast_path", [True, False])
async def test_sends_of_many_connections_share_one_append(tmp_path: Path, fast_path: bool) -> None:
    async with connection_to(tmp_path, fast_path=fast_path) as first:
        connections = [first, *(FakeConnection(first.broker, fast_path=fast_path) for _ in range(7))]
        appends = []
        real = first.broker.store.append
        first.broker.store.append = lambda drafts: appends.append(len(drafts)) or real(drafts)  # type: ignore[method-assign,func-returns-value]
        for number, connection in enumerate(connections):
            connection.connection.data_received(frames(*[a_send(properties=COMMON)] * 4, first=10 * number))
        await asyncio.sleep(0)
        assert appends == [32]
        for number, connection in enumerate(connections):
            assert sorted(await connection.feed(b"")) == [10 * number + place for place in range(4)]


async def test_a_topic_that_is_closed_refuses_the_next_send(tmp_path: Path) -> None:
    async with connection_to(tmp_path, refuse_unpermitted_sends=True) as sender:
        await sender.feed(frames(a_send(properties=COMMON), a_send(properties=COMMON)))
        sender.broker.topics.put(TopicConfig(topic_name=TOPIC, perm=4))
        responses = await sender.feed(frames(a_send(properties=COMMON)))
        assert responses[1].code == ResponseCode.NO_PERMISSION
        sender.broker.topics.put(TopicConfig(topic_name=TOPIC, write_queue_nums=1, read_queue_nums=1))
        responses = await sender.feed(frames(a_send(properties=COMMON), a_send(properties=COMMON, queue_id=1)))
        assert [responses[1].code, responses[2].code] == [0, ResponseCode.SYSTEM_ERROR]


async def test_a_broker_that_is_closed_for_writing_refuses_each_send_of_a_chunk(tmp_path: Path) -> None:
    async with connection_to(tmp_path, refuse_unpermitted_sends=True) as sender:
        await sender.feed(frames(a_send(properties=COMMON)))
        object.__setattr__(sender.broker.settings, "permission", 4)
        responses = await sender.feed(frames(*[a_send(properties=COMMON)] * 3))
        assert {response.code for response in responses.values()} == {ResponseCode.NO_PERMISSION}
        assert len(responses) == 3


async def test_a_queue_id_below_zero_means_any_queue(tmp_path: Path) -> None:
    async with connection_to(tmp_path) as sender:
        await sender.feed(frames(a_send(properties=COMMON)))
        responses = await sender.feed(frames(*[a_send(properties=COMMON, queue_id=-1)] * 20))
        assert {response.ext["queueId"] for response in responses.values()} <= {"0", "1"}


async def test_a_mistake_of_ours_is_answered_and_not_kept_from_those_who_wait(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with connection_to(tmp_path) as sender:
        await sender.feed(frames(a_send(properties=COMMON)))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sender.broker.store, "append", lambda _: 1 / 0)
            responses = await sender.feed(frames(*[a_send(properties=COMMON)] * 3))
        assert {response.code for response in responses.values()} == {ResponseCode.SYSTEM_ERROR}
        assert len(responses) == 3
        assert "ZeroDivisionError" in (responses[1].remark or "")


async def test_who_does_not_want_to_wait_for_a_sync_is_answered_before_it(tmp_path: Path) -> None:
    async with connection_to(tmp_path, flush=FlushDiskType.SYNC) as sender:
        await sender.broker.call(a_send(properties=COMMON))
        hasty = COMMON.replace("WAIT\x01true", "WAIT\x01false")
        responses = await sender.feed(frames(a_send(properties=COMMON), a_send(properties=hasty)))
        assert list(responses) == [2]
        async with asyncio.timeout(30):
            while not responses.get(1):
                responses |= await sender.feed(b"")
        assert responses[1].code == 0


async def test_a_stopping_server_answers_what_it_took(tmp_path: Path) -> None:
    async with connection_to(tmp_path) as sender:
        await sender.feed(frames(a_send(properties=COMMON)))
        sender.connection.data_received(frames(a_send(properties=COMMON), first=9))
        closing = asyncio.ensure_future(sender.connection.drain(5))
        closed = [0]
        sender.sink.close = lambda: closed.append(len(sender.sink.written))  # type: ignore[method-assign]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        sender.connection.connection_lost(None)
        await closing
        assert closed[1] > 0, "closed before the answer was written"
