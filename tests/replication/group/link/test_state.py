"""What is not in the log, as frames: nothing is lost in between, limits hold, bytes of strangers are refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.errors import FrameError
from ariane.model.group import GroupConfig
from ariane.model.topic import DataVersion, TopicConfig
from ariane.replication.frames import NATIVE_BODY_BYTES_MAX
from ariane.replication.group.link import state
from ariane.replication.group.link.state import (
    NAME_MAX,
    Change,
    OffsetLine,
    OffsetLines,
    StateChange,
    StateDecoder,
    TimerState,
    state_bodies,
)
from ariane.wire.requests.groups import GroupTable
from ariane.wire.requests.topics import TopicTable


def topics(*names: str, deleted: dict[str, int] | None = None) -> TopicTable:
    table = {name: TopicConfig(topic_name=name, read_queue_nums=3) for name in names}
    return TopicTable(
        data_version=DataVersion(timestamp=5, counter=6), topic_config_table=table, deleted_topics=deleted
    )


def groups(*names: str) -> GroupTable:
    table = {name: GroupConfig(group_name=name, retry_max_times=-1) for name in names}
    return GroupTable(data_version=DataVersion(counter=2), subscription_group_table=table)


EVERYTHING = StateChange(
    topics("orders", deleted={"old": 77}),
    groups("billing"),
    (OffsetLine("orders@billing", 0, 126), OffsetLine("orders@gone", None, 0)),
    {1: 5, 18: 2**40},
    TimerState(9, 1_700_000_000_000, 60_000),
    is_full=True,
)


def decoded(bodies: tuple[bytes, ...], decoder: StateDecoder | None = None) -> Change:
    decoder = StateDecoder() if decoder is None else decoder
    for body in bodies[:-1]:
        assert decoder.feed(body) is None
    change = decoder.feed(bodies[-1])
    assert change is not None
    return change


def test_what_is_encoded_is_decoded_again() -> None:
    bodies = state_bodies(7, 912_384, EVERYTHING)
    assert len(bodies) == 1
    assert decoded(bodies) == Change(7, 912_384, EVERYTHING)
    assert bodies[0].startswith(b'{"number":7,"end":912384,"full":true,')


names = st.text(min_size=1, max_size=NAME_MAX).filter(lambda name: "@" not in name)
lines = st.builds(
    OffsetLine,
    st.builds("{}@{}".format, names, names),
    st.none() | st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
).map(lambda line: line._replace(offset=0) if line.queue is None else line)


@given(st.lists(names, max_size=5), st.lists(names, max_size=5), st.lists(lines, max_size=10), st.booleans())
def test_any_names_and_numbers_survive(
    topic_names: list[str], group_names: list[str], offsets: list[OffsetLine], is_full: bool
) -> None:
    change = StateChange(topics(*topic_names), groups(*group_names), tuple(OffsetLines(offsets)), is_full=is_full)
    decoder = StateDecoder()
    decoder.feed(state_bodies(1, 0, EVERYTHING)[0])
    assert decoded(state_bodies(2, 5, change), decoder) == Change(2, 5, change)


def test_large_tables_are_split_below_the_limit_of_a_frame_and_put_together_again() -> None:
    """Names of control characters are the longest in JSON."""
    worst = [f"{number:04d}".ljust(NAME_MAX, "\x01") for number in range(300)]
    offsets = tuple(OffsetLine(f"orders@group-{number}", 1, number) for number in range(20_000))
    change = StateChange(topics(*worst, deleted={}), groups(*worst), offsets, {1: 1}, is_full=True)
    bodies = state_bodies(1, 4, change)
    assert len(bodies) > 10
    assert max(map(len, bodies)) <= NATIVE_BODY_BYTES_MAX
    assert decoded(bodies) == Change(1, 4, change)


def test_a_deletion_stays_before_what_was_committed_after_it() -> None:
    pair = "orders@billing"
    gathered = OffsetLines([OffsetLine(pair, 0, 5), OffsetLine(pair, 1, 5), OffsetLine(pair, None, 0)])
    gathered.add(OffsetLine(pair, 1, 2))
    gathered.add(OffsetLine(pair, 1, 3))
    assert list(gathered) == [OffsetLine(pair, None, 0), OffsetLine(pair, 1, 3)]


def applied(*changes: StateChange) -> dict[str, dict[int, int]]:
    """The table of offsets of a slave."""
    table: dict[str, dict[int, int]] = {}
    for change in changes:
        if change.is_full:
            table = {}
        for line in change.offsets:
            if line.queue is None:
                table.pop(line.pair, None)
            else:
                table.setdefault(line.pair, {})[line.queue] = line.offset
    return table


few_lines = st.builds(OffsetLine, st.sampled_from(["a@g", "b@g"]), st.none() | st.integers(0, 2), st.integers(0, 9))


@given(st.lists(st.lists(few_lines, max_size=5), min_size=1, max_size=6))
def test_changes_that_are_merged_leave_what_they_leave_one_by_one(batches: list[list[OffsetLine]]) -> None:
    changes = [StateChange(offsets=tuple(batch)) for batch in batches]
    merged = changes[0]
    for change in changes[1:]:
        merged = merged.then(change)
    start = StateChange(offsets=(OffsetLine("a@g", 0, 1), OffsetLine("b@g", 2, 1)), is_full=True)
    assert applied(start, merged) == applied(start, *changes) == applied(start.then(merged))


def test_newer_tables_replace_older_ones_and_nothing_replaces_nothing() -> None:
    older = StateChange(topics("a"), groups("g"), (), {1: 1, 2: 2}, TimerState(1, 1, 1))
    newer = StateChange(topics("b"), delays={2: 3})
    assert older.then(newer) == StateChange(topics("b"), groups("g"), (), {1: 1, 2: 3}, TimerState(1, 1, 1))
    assert older.then(EVERYTHING) == EVERYTHING


FIRST = state_bodies(1, 0, EVERYTHING)[0]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"number":0,"end":0,"full":true,"topics":{},"groups":{}}',
        b'{"number":1,"end":-1,"full":true,"topics":{},"groups":{}}',
        b'{"number":1,"end":9223372036854775808,"full":true,"topics":{},"groups":{}}',
        b'{"number":1,"end":0}',
        b'{"number":1,"end":0,"full":true}',
        b'{"number":1,"end":0,"full":true,"topics":{},"groups":{},"timer":[1,2]}',
        b'{"number":1,"end":0,"full":true,"topics":{},"groups":{},"delays":{"-1":2}}',
        b'{"number":1,"end":0,"full":true,"topics":{},"groups":{},"offsets":[["nobody",0,1]]}',
        b'{"number":1,"end":0,"full":true,"topics":{},"groups":{},"offsets":[["a@b",0,-1]]}',
        b'{"number":1,"end":0,"full":true,"topics":{},"groups":{},"offsets":[["a@b",2147483648,1]]}',
        b'{"number":1,"end":0,"full":true,"topics":{"topicConfigTable":{"a":{"topicName":"b"}}},"groups":{}}',
        b'{"number":1,"end":0,"full":true,"topics":{"topicConfigTable":{"a":{"topicName":"a","perm":-1}}},"groups":{}}',
        b'{"number":1,"end":0,"full":true,"topics":{"deletedTopics":{"a":-1}},"groups":{}}',
        b'{"number":1,"end":0,"full":true,"topics":{"dataVersion":{"counter":99999999999999999999}},"groups":{}}',
        b'{"number":1,"end":0,"full":true,"topics":{},"groups":{"subscriptionGroupTable":{"":{"groupName":""}}}}',
        b'{"a":' * 5_000,
    ],
)
def test_a_body_with_something_else_is_refused(body: bytes) -> None:
    with pytest.raises(FrameError):
        StateDecoder().feed(body)


def test_numbers_rise_and_a_change_is_whole_before_the_next() -> None:
    decoder = StateDecoder()
    assert decoder.feed(FIRST) is not None
    with pytest.raises(FrameError, match="change 1 after change 1"):
        decoder.feed(FIRST)
    decoder = StateDecoder()
    begun = msgspec.json.encode({**msgspec.json.decode(FIRST), "more": True})
    assert decoder.feed(begun) is None
    with pytest.raises(FrameError, match="change 2 begins before change 1 is whole"):
        decoder.feed(state_bodies(2, 0, EVERYTHING)[0])


def test_a_change_without_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "CHANGE_BYTES_MAX", 3 * len(FIRST))
    decoder, begun = StateDecoder(), msgspec.json.encode({**msgspec.json.decode(FIRST), "more": True})
    for _ in range(2):
        assert decoder.feed(begun) is None
    with pytest.raises(FrameError, match="a change of tables and offsets of more than"):
        decoder.feed(begun)
    with pytest.raises(FrameError, match="delete topics or groups"):
        state_bodies(1, 0, StateChange(topics(*(f"topic-{number}" for number in range(100)))))


def test_what_a_slave_would_refuse_is_not_sent() -> None:
    with pytest.raises(FrameError, match="under the name"):
        state_bodies(1, 0, StateChange(topics("x" * (NAME_MAX + 1))))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_change_or_refused(body: bytes) -> None:
    try:
        change = StateDecoder().feed(body)
    except FrameError:
        return
    assert change is None or change.change.is_full
