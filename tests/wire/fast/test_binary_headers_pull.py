"""The fast decoder of pulls with binary headers: it yields what the general decoder yields, or leaves a frame alone."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.model.ids import QueueOffset
from ariane.wire.codes import HeaderFlag
from ariane.wire.exchange import declaration_of, read_request
from ariane.wire.fast.binary_headers import BinaryPullFrames
from ariane.wire.frame import Command, FrameDecoder, FrameLimits
from ariane.wire.requests.pull import LitePull, Pull, PullMessage
from tests.wire.fast.binary_frames import binary_frame, changed_frames, fields_of, header_of, replaced, with_header

PULL = PullMessage(
    consumer_group="billing", topic="orders", queue_id=1, queue_offset=QueueOffset(7), max_msg_nums=32, sys_flag=3,
    commit_offset=QueueOffset(5), suspend_timeout_millis=15_000, sub_version=0, subscription="*", expression_type="TAG",
)  # fmt: skip
NAMES = [field.name for field in msgspec.structs.fields(Pull)]
int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
offsets = st.integers(0, 2000) | int64
pulls = st.builds(
    lambda kind, **fields: kind(**fields),
    kind=st.sampled_from([PullMessage, PullMessage, LitePull]),
    consumer_group=st.just("billing") | texts,
    topic=st.sampled_from(["orders", "payments"]) | texts,
    queue_id=st.integers(0, 300) | int32,
    queue_offset=offsets,
    max_msg_nums=st.just(32) | int32,
    sys_flag=st.sampled_from([2, 3]) | int32,
    commit_offset=offsets,
    suspend_timeout_millis=st.just(15_000) | int64,
    sub_version=st.sampled_from([0, 1_700_000_000_000]) | int64,
    subscription=st.just("*") | st.none() | texts,
    expression_type=st.just("TAG") | st.none() | texts,
    max_msg_bytes=st.none() | int32,
)


def decoded(data: bytes) -> tuple[Command, Pull]:
    """As the general decoder reads it."""
    decoder = FrameDecoder()
    decoder.feed(data)
    command = next(decoder)
    request = read_request(declaration_of(PullMessage), command)
    assert isinstance(request, Pull)
    return command, request


def values(request: Pull) -> dict[str, Any]:
    return {name: getattr(request, name) for name in NAMES}


def check(decoder: BinaryPullFrames, data: bytes) -> int:
    """How many frames it took: what it takes is what the general decoder reads."""
    position = number = 0
    for end, opaque, fields, _ in decoder.frames(data, 0, FrameLimits()):
        command, general = decoded(data[position:end])
        assert (command.code in (11, 361), command.flag) == (True, 0)
        assert int.from_bytes(opaque, "big", signed=True) == command.opaque
        assert values(fields) == values(general)
        position, number = end, number + 1
    return number


def pull_at(offset: int, queue_id: int = 1, commit_offset: int = 5) -> PullMessage:
    offsets = {"queue_offset": QueueOffset(offset), "commit_offset": QueueOffset(commit_offset)}
    return msgspec.structs.replace(PULL, queue_id=queue_id, **offsets)


def test_headers_that_differ_in_what_varies_are_cut_by_one_layout() -> None:
    decoder = BinaryPullFrames()
    requests = [pull_at(1000 + n, n % 10, 900 + n) for n in range(50)]
    assert check(decoder, b"".join(map(binary_frame, requests))) == 50
    ((layout,),) = decoder.layouts.values()
    assert len(layout.known) == 1


def test_offsets_of_other_lengths_are_cut_by_other_layouts() -> None:
    decoder = BinaryPullFrames()
    requests = [pull_at(10**n, commit_offset=10 ** (9 - n)) for n in range(10)]
    assert check(decoder, b"".join(map(binary_frame, requests))) == 10
    assert check(decoder, b"".join(map(binary_frame, requests))) == 10


def test_fields_in_any_order_are_learned() -> None:
    decoder = BinaryPullFrames()
    pairs = sorted({**header_fields(), "bname": "broker-a", "ReqT": "0"}.items())
    header = header_of(binary_frame(PULL))[:17] + (0).to_bytes(4, "big") + fields_of(*pairs)
    header = header[:17] + (len(header) - 21).to_bytes(4, "big") + header[21:]
    assert check(decoder, with_header(binary_frame(PULL), header) * 2) == 2
    assert len(decoder.layouts) == 1


def header_fields() -> dict[str, str]:
    command, _ = decoded(binary_frame(PULL))
    return command.ext


@given(st.lists(pulls, min_size=1, max_size=6), int32)
def test_the_fields_are_those_of_the_general_decoder(requests: list[Pull], opaque: int) -> None:
    """The second time they are known."""
    decoder = BinaryPullFrames()
    data = b"".join(binary_frame(request, opaque) for request in requests)
    assert check(decoder, data) == check(decoder, data) == len(requests)


def test_what_a_hostile_peer_changes_is_read_as_by_the_general_decoder_or_left() -> None:
    decoder = BinaryPullFrames()  # one for all: each change meets what was learned of all others

    @given(changed_frames(pulls.map(binary_frame) | st.just(binary_frame(PULL))))
    def changed(data: bytes) -> None:
        check(decoder, binary_frame(PULL) + data)

    changed()


@pytest.mark.parametrize(
    ("old", "new", "is_taken"),
    [
        (b"queueId\0\0\0\x011", b"queueId\0\0\0\x01x", False),
        (b"queueId\0\0\0\x011", b"queueId\0\0\0\x0212", True),
        (b"queueOffset\0\0\0\x017", b"queueOffset\0\0\0\x01-", False),
        (b"queueOffset\0\0\0\x017", b"queueOffset\0\0\0\x02-1", True),
        (b"queueOffset\0\0\0\x017", b"queueOffset\0\0\0\x139999999999999999999", False),
        (b"commitOffset\0\0\0\x015", b"commitOffset\0\0\0\x01 ", False),
        (b"queueId", b"queueiD", False),
        (b"orders", b"order\xff", False),
    ],
    ids=str,
)
def test_numbers_and_texts_that_are_odd(old: bytes, new: bytes, is_taken: bool) -> None:
    decoder = BinaryPullFrames()
    assert check(decoder, binary_frame(PULL) * 2) == 2
    assert check(decoder, replaced(binary_frame(PULL), old, new)) == is_taken


def test_a_response_a_one_way_call_and_an_unknown_field_are_left_alone() -> None:
    decoder = BinaryPullFrames()
    assert check(decoder, binary_frame(PULL)) == 1
    for flag in (HeaderFlag.RESPONSE, HeaderFlag.ONEWAY):
        assert check(decoder, binary_frame(PULL, 7, flag)) == 0
    assert check(decoder, binary_frame(PULL, 7, 0, novelty="1")) == 0


@pytest.mark.parametrize("missing", [1, 5, 6, 100, 200])
def test_a_frame_that_is_not_whole_is_left_alone(missing: int) -> None:
    decoder, one = BinaryPullFrames(), binary_frame(PULL)
    assert check(decoder, one + one[:-missing]) == 1


@pytest.mark.parametrize("limits", [FrameLimits(frame_bytes_max=100), FrameLimits(header_bytes_max=50)])
def test_a_frame_above_a_limit_is_left_alone(limits: FrameLimits) -> None:
    assert list(BinaryPullFrames().frames(binary_frame(PULL), 0, limits)) == []


@given(st.binary(max_size=60), st.integers(0, 80))
def test_any_bytes_are_left_alone(data: bytes, position: int) -> None:
    assert list(BinaryPullFrames().frames(data, position, FrameLimits())) == []
