"""Frames and reports of the replication port: the golden streams, any cut of the bytes, and bytes of strangers."""

import hashlib
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.errors import FrameError
from ariane.replication.frames import (
    CLASSIC_BODY_BYTES_MAX,
    HELLO_BYTES_MAX,
    NATIVE_BODY_BYTES_MAX,
    FrameDecoder,
    HelloDecoder,
    Kind,
    Report,
    ReportDecoder,
    ReportKind,
    classic_frame_head,
    classic_report,
    hello_bytes,
    native_frame_head,
    native_report,
)
from tests.replication.golden_ha import STREAMS, recording

Decoded = tuple[Kind, int, bytes]


def frames_of(decoder: FrameDecoder, data: bytes, sizes: list[int]) -> list[Decoded]:
    """The frames of a stream that is read in pieces of these sizes, over and over."""
    frames, at, number = [], 0, 0
    while at < len(data):
        room = decoder.get_buffer()
        count = min(sizes[number % len(sizes)], len(room), len(data) - at)
        room[:count] = data[at : at + count]
        decoder.buffer_updated(count)
        at, number = at + count, number + 1
        while (frame := decoder.next_frame()) is not None:
            frames.append((frame.kind, frame.offset, bytes(frame.body)))
    return frames


@pytest.mark.parametrize("name", STREAMS)
@given(sizes=st.lists(st.integers(1, 100_000), min_size=1, max_size=20))
def test_a_recorded_stream_is_decoded_in_any_cut(name: str, sizes: list[int]) -> None:
    golden = recording(name)
    frames = frames_of(FrameDecoder(native=False), golden.to_slave, sizes)
    assert [(offset, body) for _, offset, body in frames] == golden.frames
    assert len(frames) == golden.facts["frames"]
    assert [kind for kind, _, _ in frames].count(Kind.HEARTBEAT) == golden.facts["heartbeats"]
    assert hashlib.sha256(b"".join(body for _, _, body in frames)).hexdigest() == golden.facts["sha256"]


@pytest.mark.parametrize("name", STREAMS)
@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_recorded_reports_are_decoded_in_any_cut(name: str, sizes: list[int]) -> None:
    golden, decoder = recording(name), ReportDecoder(native=False)
    reports: list[Report] = []
    at = number = 0
    while at < len(golden.to_master):
        size = sizes[number % len(sizes)]
        reports += decoder.feed(golden.to_master[at : at + size])
        at, number = at + size, number + 1
    assert [report.end for report in reports] == golden.reports
    assert len(reports) == golden.facts["reports"]


@given(
    bodies=st.lists(st.binary(max_size=5_000), min_size=1, max_size=20),
    sizes=st.lists(st.integers(1, 9_000), min_size=1, max_size=20),
    native=st.booleans(),
)
def test_what_is_encoded_is_decoded_again(bodies: list[bytes], sizes: list[int], native: bool) -> None:
    stream, expected, offset = b"", [], 1_000
    for body in bodies:
        kind = Kind.DATA if body else Kind.HEARTBEAT
        head = native_frame_head(kind, offset, body, 77) if native else classic_frame_head(offset, len(body))
        stream += head + body
        expected.append((kind, offset, body))
        offset += len(body)
    assert frames_of(FrameDecoder(native=native), stream, sizes) == expected


def test_a_native_frame_says_what_is_confirmed_and_a_native_report_what_is_dispatched() -> None:
    decoder = FrameDecoder(native=True)
    decoder.add(native_frame_head(Kind.DATA, 5, b"abc", 1234, epoch=7) + b"abc")
    frame = decoder.next_frame()
    assert frame is not None
    assert (frame.confirmed, frame.epoch) == (1234, 7)
    assert list(ReportDecoder(native=True).feed(native_report(Report(9, 8, 7)))) == [Report(9, 8, 7)]


def test_a_pair_knows_reports_of_its_log_only() -> None:
    log, state = Report(9, 8, 7), Report(9, 8, 7, ReportKind.STATE)
    assert native_report(log) == struct.pack(">iiqq", 0, 7, 9, 8)
    assert native_report(state) == struct.pack(">iiqq", 1, 7, 9, 8)
    with pytest.raises(FrameError, match="a report of kind 1"):
        list(ReportDecoder(native=True).feed(native_report(state)))
    decoder = ReportDecoder(native=True, kinds=frozenset(ReportKind))
    assert list(decoder.feed(native_report(state) + native_report(log))) == [state, log]


def test_a_frame_as_large_as_allowed_is_taken_and_a_larger_one_is_refused_by_its_head() -> None:
    body = bytes(CLASSIC_BODY_BYTES_MAX)
    stream = classic_frame_head(0, len(body)) + body
    assert frames_of(FrameDecoder(native=False), stream, [1_000_000]) == [(Kind.DATA, 0, body)]
    for decoder, head in (
        (FrameDecoder(native=False), classic_frame_head(0, CLASSIC_BODY_BYTES_MAX + 1)),
        (FrameDecoder(native=True), struct.pack(">ib3xiqqI", NATIVE_BODY_BYTES_MAX + 1, 1, 0, 0, 0, 0)),
    ):
        decoder.add(head)
        with pytest.raises(FrameError, match="bytes, expected"):
            decoder.next_frame()
        assert len(decoder._memory) <= 256 * 1024, "nothing was allocated for it"


@pytest.mark.parametrize(
    ("native", "head"),
    [
        (False, struct.pack(">qi", -1, 10)),
        (False, struct.pack(">qi", 0, -1)),
        (False, struct.pack(">qi", 2**63 - 1, 10)),
        (True, struct.pack(">ib3xiqqI", -1, 1, 0, 0, 0, 0)),
        (True, struct.pack(">ib3xiqqI", 0, 9, 0, 0, 0, 0)),
        (True, struct.pack(">ib3xiqqI", 0, 0, 0, -5, 0, 0)),
        (True, struct.pack(">ib3xiqqI", 3, 1, 0, 0, 0, zlib.crc32(b"abd")) + b"abc"),
    ],
)
def test_an_impossible_head_is_an_error(native: bool, head: bytes) -> None:
    decoder = FrameDecoder(native=native)
    decoder.add(head)
    with pytest.raises(FrameError):
        decoder.next_frame()


@given(data=st.binary(max_size=2_000), native=st.booleans(), sizes=st.lists(st.integers(1, 300), min_size=1))
def test_garbage_raises_nothing_but_a_frame_error(data: bytes, native: bool, sizes: list[int]) -> None:
    for decode in (
        lambda: frames_of(FrameDecoder(native=native), data, sizes),
        lambda: list(ReportDecoder(native=native).feed(data)),
        lambda: HelloDecoder().feed(data),
    ):
        try:
            decode()
        except FrameError:
            continue


@pytest.mark.parametrize("data", [classic_report(-1), struct.pack(">q", -(2**63))])
def test_a_negative_report_is_an_error(data: bytes) -> None:
    with pytest.raises(FrameError, match="not the end of a log"):
        list(ReportDecoder(native=False).feed(data))


def test_an_introduction_comes_in_pieces_and_leaves_the_rest() -> None:
    decoder, data = HelloDecoder(), hello_bytes(b'{"a":1}') + b"rest"
    assert decoder.feed(data[:2]) is None
    assert decoder.feed(data[2:9]) is None
    assert decoder.feed(data[9:]) == b'{"a":1}'
    assert decoder.rest == b"rest"


def test_an_introduction_has_a_limit() -> None:
    with pytest.raises(FrameError):
        hello_bytes(bytes(HELLO_BYTES_MAX + 1))
    with pytest.raises(FrameError):
        HelloDecoder().feed(struct.pack(">i", HELLO_BYTES_MAX + 1))
