"""The chain of records, followed in many lanes or one by one: the same starts."""

from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ariane.arrow import starts
from ariane.arrow.source import Source
from ariane.arrow.starts import find_chain
from ariane.wire.record import encode
from tests.wire.sample_records import MESSAGE

RECORDS = [encode(replace(MESSAGE, body=bytes(size))) for size in (0, 1, 50, 1000, 5000)]
TRAP = encode(replace(MESSAGE, body=encode(MESSAGE) * 3))


@settings(deadline=None)
@given(st.lists(st.sampled_from([*RECORDS, TRAP]), min_size=1, max_size=300), st.data())
def test_lanes_find_the_starts_that_a_walk_finds(records: list[bytes], data: st.DataObject) -> None:
    log = b"".join(records)
    edges = [0, *accumulate(map(len, records))]
    first = data.draw(st.integers(0, len(records) - 1))
    end = data.draw(st.integers(edges[first] + 1, len(log)))
    chain = find_chain(Source(log), edges[first], end, len(log))
    expected = [edge for edge in edges[first:-1] if edge < end]
    assert chain.starts.tolist() == expected
    assert chain.stop == edges[edges.index(expected[-1]) + 1]


def test_a_long_log_is_walked_in_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the walk one by one is for logs that mislead the lanes")

    monkeypatch.setattr(starts, "_walk", refuse)
    log = b"".join(RECORDS * 500)
    edges = list(accumulate(map(len, RECORDS * 500), initial=0))
    chain = find_chain(Source(log), 0, len(log), len(log))
    assert (chain.starts.tolist(), chain.stop) == (edges[:-1], len(log))


def test_where_no_record_begins_none_is_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a file that is not full ends with megabytes of zeros")

    monkeypatch.setattr(starts, "_lane_starts", refuse)
    chain = find_chain(Source(bytes(1 << 20) + RECORDS[0]), 0, 1 << 20, 1 << 20)
    assert chain.starts.tolist() == [0]
