"""What takes The fast path for pulls and what does not, and that nothing it remembers outlives its truth."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ariane.broker.pull.checks import CACHED_CHECKS_MAX, PullCheckCache
from ariane.model.group import GroupConfig, MessageModel, Subscription
from ariane.model.topic import TopicConfig
from ariane.settings import change
from ariane.store.disk import RealFile
from ariane.wire.codes import ResponseCode, Serialization
from ariane.wire.frame import FrameDecoder, encode_frame
from ariane.wire.hashes import java_hash
from ariane.wire.record.read import decode_all
from tests.broker.in_process_broker import GROUP, TOPIC, a_pull, a_send
from tests.broker.pull.pull_connections import (
    BIG,
    SMALL_FILES,
    TOPICS,
    a_heartbeat,
    apply,
    command,
    connection_to,
    fill,
    pull_frames,
    responses,
)
from tests.broker.send.test_fast_path import FakeConnection


@pytest.mark.parametrize("kind", Serialization)
@pytest.mark.parametrize("queue_id", [0, 2], ids=["scattered records", "records in a row"])
async def test_common_pulls_never_meet_the_general_path(tmp_path: Path, queue_id: int, kind: Serialization) -> None:
    async with connection_to(tmp_path) as puller:
        await fill(puller)
        requests = [a_pull(queue_offset=offset, queue_id=queue_id) for offset in range(30)]
        got = await responses(puller, pull_frames(*requests, serialization=kind))
        assert puller.general == 0
        assert len(got) == 30


@pytest.mark.parametrize("fast_path", [True, False])
async def test_a_broker_that_may_give_128_messages_gives_128(tmp_path: Path, fast_path: bool) -> None:
    async with connection_to(tmp_path, fast_path=fast_path, store={"pull_count_max": 128}) as puller:
        for _ in range(20):
            await responses(puller, b"".join(encode_frame(command(a_send(bytes(1000)), 9)) for _ in range(8)))
        puller.general = 0
        assert await code_and_count(puller, max_msg_nums=200) == (ResponseCode.SUCCESS, 128, fast_path)
        assert await code_and_count(puller, max_msg_nums=100) == (ResponseCode.SUCCESS, 100, fast_path)
        assert await code_and_count(puller, max_msg_nums=200, queue_offset=128) == (ResponseCode.SUCCESS, 32, fast_path)
        change(puller.broker.settings, {"maxTransferCountOnMessageInMemory": "32"})
        assert await code_and_count(puller, max_msg_nums=200) == (ResponseCode.SUCCESS, 32, fast_path)
        change(puller.broker.settings, {"maxTransferBytesOnMessageInMemory": "10000"})
        assert await code_and_count(puller, max_msg_nums=200) == (ResponseCode.SUCCESS, 8, fast_path)


async def test_records_that_are_too_many_bytes_for_one_answer_take_the_line(tmp_path: Path) -> None:
    async with connection_to(tmp_path) as puller:
        for _ in range(4):
            await responses(puller, b"".join(encode_frame(command(a_send(bytes(10_000)), 9)) for _ in range(8)))
        puller.general = 0
        assert await code_and_count(puller) == (ResponseCode.SUCCESS, 25, True)


@pytest.mark.parametrize("count", [1, 3, 7, 32])
async def test_pulls_in_a_row_are_answered_as_each_by_itself(tmp_path: Path, count: int) -> None:
    """Rows of several queues, rows that end at the queue's end or are broken off, and an offset that comes again."""
    async with (
        connection_to(tmp_path, store=SMALL_FILES) as puller,
        connection_to(tmp_path / "other", fast_path=False, store=SMALL_FILES) as other,
    ):
        for connection in (puller, other):
            await fill(connection)
        places = [(TOPIC, 0), (TOPIC, 2), (BIG, 0)]
        rows = [
            a_pull(topic=topic, queue_id=queue_id, queue_offset=offset, max_msg_nums=count)
            for topic, queue_id in places
            for offset in (*range(0, 64, count), 0, count, 5, 5 + count, 5 + count)
        ]
        together = await responses(puller, pull_frames(*rows))
        one_by_one: dict[int, bytes] = {}
        for number, request in enumerate(rows, 1):
            one_by_one |= await responses(other, pull_frames(request, first=number))
        assert together == one_by_one
        assert puller.general < other.general == len(rows)


async def code_and_count(to: FakeConnection, **fields: Any) -> tuple[int, int, bool]:
    """Of one pull: what it is answered, with how many messages, and whether by the line."""
    general = to.general
    (response,) = (await to.feed(pull_frames(a_pull(**fields)))).values()
    return response.code, len(decode_all(response.body)), to.general == general


async def test_what_heartbeats_say_counts_for_the_next_pull(tmp_path: Path) -> None:
    paid = Subscription(topic=TOPIC, sub_string="paid", code_set=[java_hash("paid")], sub_version=2)
    async with connection_to(tmp_path) as puller:
        await fill(puller)

        async def hears(*subscriptions: Subscription, model: MessageModel = MessageModel.CLUSTERING) -> None:
            await responses(puller, encode_frame(command(a_heartbeat(list(subscriptions), model), 9)))

        assert await code_and_count(puller, sys_flag=0) == (ResponseCode.SUBSCRIPTION_NOT_EXIST, 0, False)
        await hears(Subscription(topic=TOPIC, sub_version=1))
        assert await code_and_count(puller, sys_flag=0) == (ResponseCode.SUCCESS, 30, True)
        await hears(paid)
        assert await code_and_count(puller, sys_flag=0) == (ResponseCode.SUCCESS, 10, False)
        await hears(Subscription(topic=TOPIC, sub_version=3))
        assert await code_and_count(puller, sys_flag=0) == (ResponseCode.SUCCESS, 30, True)
        assert (await code_and_count(puller, sys_flag=0, sub_version=4))[0] == ResponseCode.SUBSCRIPTION_NOT_LATEST
        puller.broker.groups.put(GroupConfig(group_name=GROUP, consume_broadcast_enable=False))
        assert await code_and_count(puller, sys_flag=0) == (ResponseCode.SUCCESS, 30, True)
        await hears(Subscription(topic=TOPIC, sub_version=3), model=MessageModel.BROADCASTING)
        assert (await code_and_count(puller, sys_flag=0))[0] == ResponseCode.NO_PERMISSION
        await hears(Subscription(topic=BIG))
        assert (await code_and_count(puller, sys_flag=0))[0] == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_a_permission_that_is_taken_away_counts_for_the_next_pull(tmp_path: Path) -> None:
    async with connection_to(tmp_path) as puller:
        await fill(puller)
        for refused, common in (
            (2, 6),
            (TopicConfig(topic_name=TOPIC, perm=2), TOPICS[0]),
            (GroupConfig(group_name=GROUP, consume_enable=False), GroupConfig(group_name=GROUP)),
        ):
            assert await code_and_count(puller) == (ResponseCode.SUCCESS, 30, True)
            apply(puller, refused)
            assert await code_and_count(puller) == (ResponseCode.NO_PERMISSION, 0, False)
            apply(puller, common)


async def test_more_than_a_write_takes_is_answered_in_several(tmp_path: Path) -> None:
    async with connection_to(tmp_path) as puller:
        await fill(puller)
        got = await responses(puller, pull_frames(*[a_pull(topic=BIG, queue_offset=20)] * 12))
        assert (puller.general, len(got)) == (0, 12)
        assert sum(map(len, got.values())) > 3 * 256 * 1024


async def test_a_pull_cut_in_two_is_answered_when_all_of_it_is_there(tmp_path: Path) -> None:
    async with connection_to(tmp_path) as puller:
        await fill(puller)
        data = pull_frames(a_pull(), a_pull())
        assert list(await responses(puller, data[:-5])) == [1]
        assert list(await responses(puller, data[-5:])) == [2]


async def test_sends_and_pulls_may_come_in_one_chunk(tmp_path: Path) -> None:
    async with connection_to(tmp_path) as puller:
        await fill(puller)
        send = encode_frame(command(a_send(b"between", queue_id=1), 50))
        got = await responses(puller, pull_frames(a_pull()) + send + pull_frames(a_pull(queue_offset=5), first=2))
        assert sorted(got) == [1, 2, 50]
        assert puller.general == 0


async def test_what_left_the_page_cache_is_left_to_the_general_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connection_to(tmp_path) as puller:
        await fill(puller)
        puller.broker.store.make_durable()  # what was written since then is taken to be in memory
        monkeypatch.setattr(RealFile, "read_cached", lambda self, length, position: None)
        got = await responses(puller, pull_frames(a_pull()))
        assert puller.general == 1
        async with asyncio.timeout(30):
            while not got:
                got = await responses(puller, b"")
        decoder = FrameDecoder()
        decoder.feed(got[1])
        assert len(decode_all(next(decoder).body)) == 30
        assert puller.broker.writer.counters.cold_read_s.count == 1


async def test_a_queue_that_cannot_be_read_is_left_to_the_general_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connection_to(tmp_path) as puller:
        await fill(puller)

        def fails(self: RealFile) -> memoryview:
            raise OSError(12, "no memory for a mapping")

        monkeypatch.setattr(RealFile, "view", fails)
        got = await responses(puller, pull_frames(a_pull()))
        assert b'"code":1,' in got[1]


async def test_checks_that_were_passed_are_not_remembered_without_end(tmp_path: Path) -> None:
    async with connection_to(tmp_path) as puller:
        await fill(puller)
        handlers = puller.broker.dispatcher._table.get(11)
        assert handlers is not None
        checks: PullCheckCache = handlers.handler.__self__.fast_path.__self__._checks  # type: ignore[attr-defined]
        for version in range(CACHED_CHECKS_MAX + 5):
            assert checks.find(a_pull(sub_version=version), puller.connection) is not None
        assert len(checks._cached) == 5
