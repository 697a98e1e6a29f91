"""The fast path for batches: it gives the same answers and leaves the same files as the general path."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from itertools import cycle, repeat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ariane.broker.send import batch
from ariane.errors import StoreFull
from ariane.model.topic import TopicConfig
from ariane.store.settings import FlushDiskType
from ariane.wire.codes import ResponseCode, Serialization
from ariane.wire.record.batch import BatchItem, encode_batch
from ariane.wire.record.read import decode_all
from ariane.wire.requests.send import Send, SendBatch
from tests.broker.in_process_broker import TOPIC, InProcessBroker, a_send
from tests.broker.send.test_fast_path import (
    COMMON,
    READ_ONLY,
    RETRY,
    TWO_TAGS,
    FakeConnection,
    chunk_bytes,
    connection_to,
    flags,
    frames,
    kinds,
    oddities,
    sends,
)

OWN = "KEYS\x01order-%d\x02UNIQ_KEY\x017F00000100%02d\x02WAIT\x01true\x02TAGS\x01%s\x02"
SMALL_FILES = {"segment_bytes": 64 * 1024}
WAIT = "WAIT\x01true\x02"


def a_batch(*items: BatchItem, body: bytes | None = None, **changes: Any) -> SendBatch:
    single = a_send(encode_batch(items) if body is None else body, **{"batch": True, "properties": WAIT, **changes})
    return SendBatch(**{name: getattr(single, name) for name in single.__struct_fields__})


def even(count: int = 32, body: bytes = b"hello", text: str = OWN, tag: str = "paid") -> list[BatchItem]:
    """Items of one shape, as a loop makes them."""
    return [BatchItem(body, (text % (n % 10, n % 100, tag)).encode(), flag=n) for n in range(count)]


@contextmanager
def failing_appends(broker: InProcessBroker, error: Exception) -> Iterator[None]:
    """The disk, or a fault of ours, lets no byte into the log."""

    def fail(_: bytes) -> int:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker.store.components.commit_log, "append", fail)
        yield


def uneven(count: int = 32) -> list[BatchItem]:
    return [BatchItem(b"x" * (1 + n), (OWN % (n**2, n, "paid")).encode()) for n in range(count)]


# --- the same as the general path ------------------------------------------------------------------------------------

names = st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "WAIT", "DELAY", "TRAN_MSG", "__CRC32#", "a", "é", ""])
values = st.sampled_from(["", "0", "true", "k1", "k2", "k 1", " k", "é1", "a\x01", "a\x02", "a\x03b", "\0\0"])
texts = st.lists(st.tuples(names, values), max_size=3).map(
    lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode()
) | st.sampled_from([b"\xff", b"KEYS\x01\xc3\x02", b"KEYS", b"x" * 32767])
odd_items = st.builds(BatchItem, st.sampled_from([b"", b"a", b"bb"]), texts, st.sampled_from([0, -1, 7]))
evens = st.builds(
    even,
    st.integers(1, 40),
    st.sampled_from([b"a", b"hello", b"x" * 1000]),
    st.sampled_from([OWN, OWN[:-1], OWN.replace("KEYS", "TEXT"), OWN.replace("order-", "a or-"), "%d%d\x01%s"]),
    st.sampled_from(["paid", "open"]),
)
mixed = st.builds(lambda items, place, odd: [*items[:place], odd, *items[place:]], evens, st.integers(0, 40), odd_items)
two_tags = st.builds(lambda *parts: [*parts[0], *parts[1]], evens, evens)
batch_bodies = st.one_of(
    *[evens] * 4, two_tags, st.builds(uneven, st.integers(1, 40)), mixed, st.lists(odd_items, max_size=4)
).map(encode_batch)
broken = st.builds(
    lambda body, at, byte: body[: at % len(body)] + bytes([byte]) + body[at % len(body) + 1 :] if body else b"",
    batch_bodies,
    st.integers(0, 200),
    st.integers(0, 255),
) | st.builds(lambda body, size: body[:size], batch_bodies, st.integers(0, 300))
batches = st.builds(
    a_batch,
    body=st.one_of(*[batch_bodies] * 4, broken),
    topic=st.sampled_from([TOPIC] * 12 + [TWO_TAGS] * 3 + [READ_ONLY, RETRY, "unknown"]),
    queue_id=st.sampled_from([0, 0, 1, 3, 4]),
    sys_flag=st.sampled_from([0] * 8 + [1, 4, 8, 0x30]),
    born_timestamp=st.sampled_from([0, 1_700_000_000_000]),
    properties=st.sampled_from([WAIT] * 8 + [None, "", COMMON, "UNIQ_KEY\x01é", "DELAY\x013", "a\x01b\x01c"]),
    reconsume_times=st.sampled_from([None, 0, 3]),
    batch=st.sampled_from([True] * 12 + [False, 1]),
)
common_batches = st.builds(
    a_batch, body=st.one_of(evens, evens, st.builds(uneven, st.integers(1, 40))).map(encode_batch)
)
to_queues = st.builds(
    lambda request, queue_ids: [msgspec.structs.replace(request, queue_id=queue_id) for queue_id in queue_ids],
    common_batches,
    st.lists(st.integers(0, 3), max_size=5),
)
chunks = st.lists(
    st.one_of(*[to_queues] * 4, *[st.lists(batches, max_size=3)] * 2, st.lists(sends, max_size=2)), max_size=4
)
COMMON_CHUNK: list[Send] = [a_batch(*even(tag=tag), queue_id=n % 2) for n, tag in enumerate(["paid", "open", "paid"])]


def left(broker: FakeConnection) -> Any:
    """All that a chunk leaves: the log's last files, the queues' last entries, keys for the index, counters."""
    parts, counters = broker.broker.store.components, broker.broker.writer.counters
    log = [
        bytes(segment.file.view()[: parts.commit_log.max_offset]) for segment in list(parts.commit_log.segments)[-3:]
    ]
    queues = {
        (queue.topic, queue.queue_id): (queue.max_physical, queue.entries(max(queue.max_offset - 500, 0), 500))
        for queue in parts.queues
    }
    keys = [column.tolist() for column in parts.dispatcher.keys.rows(-1)]
    tallies = {topic: (tally.messages, tally.bytes, tally.merged) for topic, tally in counters.puts.items()}
    return log, queues, keys, tallies, counters.sizes, counters.bytes_in, counters.merged_in, counters.rejected_sends


def test_every_batch_is_answered_and_stored_as_by_the_general_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "UNIFORM_MIN", 1)  # few messages are as good as many to find a difference
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def opened() -> tuple[FakeConnection, FakeConnection]:
            short = connection_to(tmp_path / "a", fast_path=True, store=SMALL_FILES)
            long = connection_to(tmp_path / "b", fast_path=False, store=SMALL_FILES)
            return await stack.enter_async_context(short), await stack.enter_async_context(long)

        short, long = runner.run(opened())

        @settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
        @given(
            chunk=chunks,
            flag=flags,
            mix=st.lists(kinds, min_size=1, max_size=4),
            changes=st.lists(oddities, max_size=8),
            cuts=st.lists(st.integers(0, 20_000), max_size=2),
        )
        @example(chunk=[COMMON_CHUNK], flag=0, mix=[Serialization.JSON], changes=[], cuts=[])
        @example(
            chunk=[[a_batch(*uneven())] * 2, COMMON_CHUNK], flag=0, mix=[Serialization.BINARY], changes=[], cuts=[]
        )
        def check(
            chunk: list[list[Send]],
            flag: int,
            mix: list[Serialization],
            changes: list[tuple[bytes, bytes]],
            cuts: list[int],
        ) -> None:
            async def both() -> None:
                requests = [request for part in chunk for request in part]
                data = chunk_bytes(list(zip(requests, repeat(flag), cycle(mix), strict=False)), changes)
                assert await short.feed(data, *cuts) == await long.feed(data, *cuts)
                assert left(short) == left(long)
                short.broker.store.derived.write()
                long.broker.store.derived.write()

            runner.run(both())

        try:
            check()
            assert short.general < long.general
        finally:
            runner.run(stack.aclose())


@pytest.mark.parametrize("kind", Serialization)
@pytest.mark.parametrize(
    "items", [even(), even(text=OWN[:-1]), uneven(), even(1)], ids=["even", "open", "uneven", "one"]
)
async def test_common_batches_never_meet_the_general_path_once_their_topic_is_known(
    tmp_path: Path, items: list[BatchItem], kind: Serialization
) -> None:
    async with connection_to(tmp_path) as sender:
        await sender.feed(frames(a_send(properties=COMMON)))
        responses = await sender.feed(frames(*[a_batch(*items)] * 5, serialization=kind))
        assert sender.general == 1
        assert [responses[opaque].code for opaque in range(1, 6)] == [0] * 5
        offsets = [responses[opaque].ext["queueOffset"] for opaque in range(1, 6)]
        assert offsets == [str(1 + n * len(items)) for n in range(5)]


async def test_batches_that_came_together_share_one_write(tmp_path: Path) -> None:
    async with connection_to(tmp_path) as sender:
        await sender.feed(frames(a_send(properties=COMMON)))
        log, writes = sender.broker.store.components.commit_log, []
        real = log.append
        log.append = lambda records: writes.append(len(records)) or real(records)  # type: ignore[method-assign,func-returns-value]
        await sender.feed(frames(*[a_batch(*even(), queue_id=n % 2) for n in range(8)]))
        assert len(writes) == 1


async def test_one_odd_batch_does_not_keep_the_others_from_the_line(tmp_path: Path) -> None:
    async with connection_to(tmp_path) as sender:
        await sender.feed(frames(a_send(properties=COMMON)))
        odd = a_batch(BatchItem(b"a", b"DELAY\x013\x02"))
        responses = await sender.feed(frames(*[a_batch(*even())] * 4, odd, *[a_batch(*even())] * 4))
        assert [responses[opaque].code for opaque in range(1, 10)] == [0] * 4 + [ResponseCode.MESSAGE_ILLEGAL] + [0] * 4
        assert sender.general == 1  # the first send; the odd one gets its error here


async def test_batches_and_single_sends_are_stored_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    async with connection_to(tmp_path) as sender:
        await sender.feed(frames(a_send(b"0", COMMON)))
        requests: list[Send] = [
            a_send(b"1", COMMON),
            a_batch(*even(2, b"2")),
            a_send(b"3", COMMON),
            a_batch(*even(2, b"4")),
        ]
        await sender.feed(frames(*requests))
        stored = decode_all(b"".join(sender.broker.store.reader.read(TOPIC, 0, 0, 32).slices))
        assert [message.body for message in stored] == [b"0", b"1", b"2", b"2", b"3", b"4", b"4"]


async def test_a_broker_that_is_closed_for_writing_refuses_each_batch_of_a_chunk(tmp_path: Path) -> None:
    async with connection_to(tmp_path, refuse_unpermitted_sends=True) as sender:
        await sender.feed(frames(a_batch(*even())))
        sender.broker.topics.put(TopicConfig(topic_name=TOPIC, perm=4))
        responses = await sender.feed(frames(*[a_batch(*even())] * 3))
        assert [responses[opaque].code for opaque in (1, 2, 3)] == [ResponseCode.NO_PERMISSION] * 3


@pytest.mark.parametrize("error", [ZeroDivisionError(), StoreFull("no space")], ids=["ours", "the disk's"])
async def test_every_batch_of_a_failed_append_is_answered(tmp_path: Path, error: Exception) -> None:
    async with connection_to(tmp_path) as sender:
        await sender.feed(frames(a_send(properties=COMMON)))
        with failing_appends(sender.broker, error):
            responses = await sender.feed(frames(*[a_batch(*even())] * 3))
        assert len({responses[opaque].code for opaque in (1, 2, 3)} - {0}) == 1
        assert sender.broker.store.components.queues.get(TOPIC, 0).max_offset == 1  # type: ignore[union-attr]


async def test_who_does_not_want_to_wait_for_a_sync_is_answered_before_it(tmp_path: Path) -> None:
    async with connection_to(tmp_path, flush=FlushDiskType.SYNC) as sender:
        await sender.broker.call(a_send(properties=COMMON))
        hasty = a_batch(*even(), properties="WAIT\x01false\x02")
        responses = await sender.feed(frames(a_batch(*even()), hasty))
        assert list(responses) == [2]
        async with asyncio.timeout(30):
            while not responses.get(1):
                responses |= await sender.feed(b"")
        assert responses[1].code == 0
        assert len(responses[1].ext["msgId"].split(",")) == 32
