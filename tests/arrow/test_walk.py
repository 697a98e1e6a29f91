"""The chain of records, followed in parallel segments or one by one: the same offsets."""

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ariane.arrow import walk
from ariane.arrow.gather import ByteGatherer, Int64s
from ariane.arrow.walk import find_chains, find_record_offsets
from ariane.wire.record.layout import encode
from tests.wire.sample_records import MESSAGE

RECORDS = [encode(replace(MESSAGE, body=bytes(size))) for size in (0, 1, 50, 1000, 5000)]
TRAP = encode(replace(MESSAGE, body=encode(MESSAGE) * 3))


@settings(deadline=None)
@given(st.lists(st.sampled_from([*RECORDS, TRAP]), min_size=1, max_size=300), st.data())
def test_segments_find_the_same_offsets_as_a_sequential_walk(records: list[bytes], data: st.DataObject) -> None:
    log = b"".join(records)
    edges = [0, *accumulate(map(len, records))]
    first = data.draw(st.integers(0, len(records) - 1))
    end = data.draw(st.integers(edges[first] + 1, len(log)))
    chain = find_record_offsets(ByteGatherer(log), edges[first], end, len(log))
    expected = [edge for edge in edges[first:-1] if edge < end]
    assert chain.starts.tolist() == expected
    assert chain.stop == edges[edges.index(expected[-1]) + 1]


def test_a_long_log_is_walked_in_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the sequential walk is for logs whose segments do not join")

    monkeypatch.setattr(walk, "_walk", refuse)
    log = b"".join(RECORDS * 500)
    edges = list(accumulate(map(len, RECORDS * 500), initial=0))
    chain = find_record_offsets(ByteGatherer(log), 0, len(log), len(log))
    assert (chain.starts.tolist(), chain.stop) == (edges[:-1], len(log))


def test_no_segments_are_searched_where_no_record_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a file that is not full ends with megabytes of zeros")

    monkeypatch.setattr(walk, "_segment_starts", refuse)
    chain = find_record_offsets(ByteGatherer(bytes(1 << 20) + RECORDS[0]), 0, 1 << 20, 1 << 20)
    assert chain.starts.tolist() == [0]


def laid_out(pieces: list[list[bytes]]) -> tuple[ByteGatherer, Int64s, Int64s, list[int]]:
    """Pieces in one buffer with something else before each; where they begin and end, and where all records do."""
    memory, begins, ends, edges = b"", [], [], []
    for records in pieces:
        memory += b"\xda\xa3 and more of a header"
        begins.append(len(memory))
        edges += list(accumulate(map(len, records), initial=len(memory)))[:-1]
        memory += b"".join(records)
        ends.append(len(memory))
    return ByteGatherer(memory), np.array(begins, np.int64), np.array(ends, np.int64), edges


EVEN = st.tuples(st.sampled_from(RECORDS), st.integers(1, 32)).map(lambda drawn: [drawn[0]] * drawn[1])
MIXED = st.lists(st.sampled_from([*RECORDS, TRAP]), min_size=1, max_size=32)


@settings(deadline=None)
@given(st.lists(EVEN, min_size=1, max_size=8) | st.lists(EVEN | MIXED, min_size=1, max_size=8))
def test_pieces_with_other_bytes_between_them_are_followed_each_to_its_end(pieces: list[list[bytes]]) -> None:
    source, begins, ends, edges = laid_out(pieces)
    result = find_chains(source, begins, ends)
    assert result is not None
    assert result.tolist() == edges


@pytest.mark.parametrize("moved", [-1, 1, -91])
@pytest.mark.parametrize("records", [RECORDS, [RECORDS[2]] * 5])
def test_pieces_that_do_not_end_with_a_record_are_not_followed(records: list[bytes], moved: int) -> None:
    source, begins, ends, _ = laid_out([records, records])
    ends[0] += moved
    assert find_chains(source, begins, ends) is None


def test_pieces_too_short_for_a_record_have_no_chain() -> None:
    nothing = np.array([], np.int64)
    assert find_chains(ByteGatherer(b""), nothing, nothing) is None
    assert (
        find_chains(ByteGatherer(RECORDS[0]), np.array([0, len(RECORDS[0])]), np.array([len(RECORDS[0])] * 2)) is None
    )
