"""The fast path for pulls: it gives the same bytes and counts the same as the general path."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ariane.model.group import GroupConfig, MessageModel, Subscription
from ariane.model.topic import TopicConfig
from ariane.store.blocking_io import run_sync
from ariane.wire.codes import HeaderFlag, Serialization
from ariane.wire.frame import encode_frame
from ariane.wire.hashes import java_hash
from ariane.wire.requests.pull import LitePull, PullMessage
from tests.broker.in_process_broker import GROUP, TOPIC, a_pull
from tests.broker.pull.pull_connections import (
    BIG,
    CLOSED,
    SMALL_FILES,
    TOPICS,
    a_heartbeat,
    apply,
    command,
    confirm_most,
    connection_to,
    counted,
    fill,
    responses,
)
from tests.broker.send.test_fast_path import FakeConnection
from tests.wire.fast.binary_frames import replaced

heard = st.builds(
    Subscription,
    topic=st.sampled_from([TOPIC, BIG]),
    sub_string=st.sampled_from(["*", "*", "", "paid"]),
    code_set=st.sampled_from([[], [java_hash("paid")]]),
    sub_version=st.sampled_from([0, 5, 6]),
    class_filter_mode=st.booleans(),
)
heartbeats = st.builds(
    a_heartbeat,
    subscriptions=st.lists(heard, max_size=2, unique_by=lambda one: one.topic),
    model=st.sampled_from(MessageModel),
)
common_pulls = st.builds(
    lambda place, **fields: a_pull(topic=place[0], queue_id=place[1], **fields),
    place=st.sampled_from([(TOPIC, 0), (TOPIC, 1), (TOPIC, 2), (BIG, 0)]),
    queue_offset=st.integers(0, 30),
    max_msg_nums=st.integers(1, 40),
    sys_flag=st.sampled_from([4, 5, 6, 7, 20, 2, 3]),
    commit_offset=st.integers(0, 40),
    sub_version=st.sampled_from([0, 0, 5]),
    max_msg_bytes=st.sampled_from([None, None, None, 3000, 10**6]),
)
any_pulls = st.builds(
    lambda kind, **fields: kind(**fields),
    kind=st.sampled_from([PullMessage] * 4 + [LitePull]),
    consumer_group=st.sampled_from([GROUP] * 8 + ["new", "no broadcast", "x" * 300, ""]),
    topic=st.sampled_from([TOPIC] * 6 + [BIG] * 3 + [CLOSED, "unknown", ""]),
    queue_id=st.sampled_from([0, 0, 0, 1, 2, 2, 3, 4, -1, 2**31 - 1]),
    queue_offset=st.sampled_from([0, 0, 1, 3, 8, 17, 28, 29, 30, 31, 40, 60, 61, 10**6, -1, 2**63 - 1]),
    max_msg_nums=st.sampled_from([32, 32, 32, 8, 5, 1, 0, -1, 100]),
    sys_flag=st.sampled_from([4, 4, 5, 2, 3, 6, 7]) | st.integers(0, 31),
    commit_offset=st.sampled_from([0, 0, 3, 7, 10**6, -1]),
    suspend_timeout_millis=st.sampled_from([0, 15_000]),
    sub_version=st.sampled_from([0, 0, 5, 6]),
    subscription=st.sampled_from(["*", "*", None, "", "paid", "paid || sent", "||", "a > 1", "a >"]),
    expression_type=st.sampled_from([None, "TAG", "TAG", "", "SQL92", "OTHER"]),
    max_msg_bytes=st.sampled_from([None, None, None, 0, -1, 100, 3000, 10**6]),
)
flags = st.sampled_from([0] * 20 + [int(HeaderFlag.ONEWAY), 4])
kinds = st.sampled_from(Serialization)
oddities = st.sampled_from(
    [(b"", b"")] * 24
    + [
        (b'"extFields":{', b'"extFields":{"AccessKey":"key","Signature":"c2lnbg==","bname":"broker-a","ReqT":"0",'),
        (b'"extFields":{', b'"extFields":{"novelty":"1",'),
        (b'"extFields":{', b'"extFields":{"OnsChannel":7,'),
        (b'"flag":0', b'"flag":0,"serializeTypeCurrentRPC":"JSON"'),
        (b'"flag":0', b'"flag":0,"flag":2'),
        (b'"code":11', b'"code":11,"code":361'),
        (b'"code":11', b'"opaque":5,"code":11'),
        (b'"queueId":"0"', b'"queueId":0'),
        (b'"queueId":"0"', b'"queueId":"00"'),
        (b'"queueOffset":"0"', b'"queueOffset":" 0"'),
        (b"queueId\0\0\0\x010", b"queueId\0\0\0\x01x"),
        (b"queueId\0\0\0\x010", b"queueId\0\0\0\x0200"),
        (b"queueOffset\0\0\0\x010", b"queueOffset\0\0\0\x01-"),
        (b"commitOffset\0\0\0\x010", b"commitOffset\0\0\0\x01 "),
        (b"\0\x0aexpression", b"\0\x0anovelties!"),
        (b"\0\x05topic", b"\0\x05bname\0\0\0\x08broker-a\0\x05topic"),
        (b"\0\x05topic", b"\0\x09Signature\0\0\0\x04sign\0\x05topic"),
    ]
)


def odd(frame: bytes, change: tuple[bytes, bytes]) -> bytes:
    """The same frame with something else in its header."""
    header_end = 8 + int.from_bytes(frame[5:8], "big")
    if not change[0] or change[0] not in frame[8:header_end]:
        return frame
    if frame[4]:
        return replaced(frame, *change)
    header = frame[8:header_end].replace(change[0], change[1], 1)
    return (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header


mostly_common = st.sampled_from([common_pulls] * 4 + [any_pulls]).flatmap(lambda chosen: chosen)
asked = st.tuples(mostly_common, flags, kinds, oddities)
beats = st.tuples(heartbeats, st.just(0), st.just(Serialization.JSON), st.just((b"", b"")))
chunks = st.lists(st.sampled_from([asked] * 8 + [beats]).flatmap(lambda chosen: chosen), max_size=10)
changes = st.sampled_from(
    [None] * 6
    + [
        TopicConfig(topic_name=TOPIC, read_queue_nums=2, write_queue_nums=4),
        TopicConfig(topic_name=TOPIC, perm=2),
        TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4),
        GroupConfig(group_name=GROUP, consume_enable=False),
        GroupConfig(group_name=GROUP, consume_broadcast_enable=False),
        GroupConfig(group_name=GROUP, broker_id=3),
        GroupConfig(group_name=GROUP),
        2,
        6,
    ]
)


@pytest.mark.parametrize(
    ("slave_read", "limits", "gated"),
    [
        (False, {}, False),
        (True, {}, False),
        (False, {"pull_count_max": 36, "pull_bytes_max": 9000}, False),
        (False, {}, True),
    ],
    ids=["master only", "slave read", "other limits", "gated"],
)
def test_every_pull_is_answered_byte_for_byte_as_by_the_general_path(
    tmp_path: Path, slave_read: bool, limits: dict[str, int], gated: bool
) -> None:
    """Gated: of each queue, messages wait behind the visible end."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def opened() -> list[FakeConnection]:
            connections = []
            for name, fast_path in (("a", True), ("b", False)):
                made = connection_to(
                    tmp_path / name,
                    fast_path=fast_path,
                    store=SMALL_FILES | limits,
                    slave_read=slave_read,
                    gated=gated,
                )
                connections.append(await stack.enter_async_context(made))
                await fill(connections[-1])
                confirm_most(connections[-1])
                run_sync(connections[-1].broker.store.components.commit_log.segments.drop_first_steps())
            return connections

        short, long = runner.run(opened())

        @settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
        @given(chunk=chunks, change=changes)
        def check(chunk: list[tuple[Any, int, Serialization, tuple[bytes, bytes]]], change: Any) -> None:
            async def both() -> None:
                data = b"".join(
                    odd(encode_frame(command(request, opaque, flag, kind)), change_of_header)
                    for opaque, (request, flag, kind, change_of_header) in enumerate(chunk, start=1)
                )
                for puller in (short, long):
                    apply(puller, change)
                assert await responses(short, data) == await responses(long, data)
                assert counted(short) == counted(long)
                for puller in (short, long):
                    apply(puller, TOPICS[0])
                    apply(puller, GroupConfig(group_name=GROUP))
                    apply(puller, 6)

            runner.run(both())

        try:
            check()
            assert long.general - short.general > 50, "hardly any took the line"
        finally:
            runner.run(stack.aclose())
