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


def is_wanted(message: StoredMessage, wanted: Selection) -> bool:
    ranges = [one for one in wanted.ranges or () if (one.topic, one.queue_id) == (message.topic, message.queue_id)]
    return (
        (wanted.topics is None or message.topic in wanted.topics)
        and (wanted.queue_ids is None or message.queue_id in wanted.queue_ids)
        and (wanted.ranges is None or any(one.first <= message.queue_offset < one.end for one in ranges))
        and (wanted.stored_from_ms is None or message.store_timestamp_ms >= wanted.stored_from_ms)
        and (wanted.stored_before_ms is None or message.store_timestamp_ms < wanted.stored_before_ms)
        and (wanted.tags is None or message.tags in wanted.tags)
        and (wanted.keys is None or bool(wanted.keys & {*message.keys, message.unique_key}))
        and not (wanted.queued_only and message.sys_flag & 4)
    )


@settings(deadline=None, max_examples=200)
@given(st.lists(sent_messages, max_size=30), selections)
def test_every_filter_chooses_what_it_says(sent: list[StoredMessage], wanted: Selection) -> None:
    numbered = [replace(message, flag=number) for number, message in enumerate(sent)]
    found = decode_records(b"".join(map(encode, numbered)), columns=["flag", "tags", "keys"], selection=wanted).batch
    expected = [(m.flag, m.tags, list(m.keys)) for m in numbered if is_wanted(m, wanted)]
    assert [tuple(row.values()) for row in found.to_pylist()] == expected
