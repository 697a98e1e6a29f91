"""Filters applied while records are decoded: the same rows as filtering messages one by one."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ariane.arrow.decode import decode_records
from ariane.arrow.filter import OffsetRange, Selection
from ariane.model.ids import QueueOffset
from ariane.model.message import StoredMessage
from ariane.wire.record.layout import encode
from tests.wire.sample_records import MESSAGE

TOPICS, TAGS, KEYS = ["a", "b", "topic-c", "tttt" * 50], ["x", "y", "Aa", "BB"], ["k1", "k2", "k3"]  # Aa, BB: one hash

sent_messages = st.builds(
    lambda topic, queue_id, offset, stored_ms, tag, keys, unique, sys_flag: replace(
        MESSAGE,
        topic=topic,
        queue_id=queue_id,
        queue_offset=QueueOffset(offset),
        store_timestamp_ms=stored_ms,
        sys_flag=sys_flag,
        properties={
            name: value for name, value in (("TAGS", tag), ("KEYS", " ".join(keys)), ("UNIQ_KEY", unique)) if value
        },
    ),
    st.sampled_from(TOPICS),
    st.integers(-1, 3),
    st.integers(0, 5),
    st.integers(0, 10),
    st.sampled_from([*TAGS, ""]),
    st.lists(st.sampled_from(KEYS), max_size=2),
    st.sampled_from([*KEYS, ""]),
    st.sampled_from([0, 4, 8, 12]),
)


def some(values: list[str]) -> "st.SearchStrategy[frozenset[str] | None]":
    return st.none() | st.frozensets(st.sampled_from(values))


selections = st.builds(
    Selection,
    topics=some([*TOPICS, "missing"]),
    queue_ids=st.none() | st.frozensets(st.integers(-1, 4)),
    ranges=st.none()
    | st.lists(
        st.builds(OffsetRange, st.sampled_from(TOPICS), st.integers(-1, 3), st.integers(0, 3), st.integers(0, 6)),
        max_size=4,
        unique_by=lambda one: (one.topic, one.queue_id),
    ).map(tuple),
    stored_from_ms=st.none() | st.integers(0, 10),
    stored_before_ms=st.none() | st.integers(0, 10),
    tags=some([*TAGS, "missing"]),
    keys=some([*KEYS, "missing"]),
    queued_only=st.booleans(),
)


def is_selected(message: StoredMessage, selection: Selection) -> bool:
    ranges = [
        chosen
        for chosen in selection.ranges or ()
        if (chosen.topic, chosen.queue_id) == (message.topic, message.queue_id)
    ]
    return (
        (selection.topics is None or message.topic in selection.topics)
        and (selection.queue_ids is None or message.queue_id in selection.queue_ids)
        and (selection.ranges is None or any(chosen.first <= message.queue_offset < chosen.end for chosen in ranges))
        and (selection.stored_from_ms is None or message.store_timestamp_ms >= selection.stored_from_ms)
        and (selection.stored_before_ms is None or message.store_timestamp_ms < selection.stored_before_ms)
        and (selection.tags is None or message.tags in selection.tags)
        and (selection.keys is None or bool(selection.keys & {*message.keys, message.unique_key}))
        and not (selection.queued_only and message.sys_flag & 4)
    )


@settings(deadline=None, max_examples=200)
@given(st.lists(sent_messages, max_size=30), selections)
def test_every_selection_equals_filtering_message_by_message(sent: list[StoredMessage], selection: Selection) -> None:
    numbered = [replace(message, flag=number) for number, message in enumerate(sent)]
    result = decode_records(
        b"".join(map(encode, numbered)), columns=["flag", "tags", "keys"], selection=selection
    ).batch
    expected = [(m.flag, m.tags, list(m.keys)) for m in numbered if is_selected(m, selection)]
    assert [tuple(row.values()) for row in result.to_pylist()] == expected
