"""The fast decoder of sends with binary headers: it yields what the general decoder yields, or leaves a frame alone."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.errors import WireError
from ariane.wire.codes import HeaderFlag
from ariane.wire.exchange import declaration_of, read_request
from ariane.wire.fast import binary_headers
from ariane.wire.fast.binary_headers import BinarySendFrames
from ariane.wire.fast.fields import SendFields
from ariane.wire.fields import Request
from ariane.wire.frame import Command, FrameDecoder, FrameLimits
from ariane.wire.requests.send import Send, SendBatch, SendMessageV2
from ariane.wire.signature import SIGNATURE, SIGNATURE_V2
from tests.wire.fast.binary_frames import binary_frame, changed_frames, fields_of, replaced, with_header

SEND = SendMessageV2(
    producer_group="shop", topic="orders", default_topic="TBW102", default_topic_queue_nums=4, queue_id=1, sys_flag=0,
    born_timestamp=1_700_000_000_000, flag=0, properties="TAGS\x01paid\x02", reconsume_times=0, unit_mode=False,
    batch=False, broker_name="broker-a", body=b"hello",
)  # fmt: skip
NAMES = [field.name for field in msgspec.structs.fields(Send) if field.name != "body"]
int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
sends = st.builds(
    lambda kind, **fields: kind(**fields),
    kind=st.sampled_from([SendMessageV2, SendMessageV2, SendBatch]),
    producer_group=st.sampled_from(["shop", "a much longer group"]) | texts,
    topic=st.sampled_from(["orders", "payments"]) | texts,
    default_topic=st.just("TBW102") | texts,
    default_topic_queue_nums=st.just(4) | int32,
    queue_id=st.integers(0, 20) | int32,
    sys_flag=st.just(0) | int32,
    born_timestamp=st.integers(1_700_000_000_000, 1_700_000_099_999) | int64,
    flag=st.just(0) | int32,
    properties=st.just("TAGS\x01paid\x02") | texts | st.none(),
    reconsume_times=st.just(0) | st.none() | int32,
    batch=st.booleans(),
    broker_name=st.none() | texts,
    body=st.binary(max_size=20),
)


def decoded(data: bytes) -> tuple[Command, Send]:
    """As the general decoder reads it."""
    decoder = FrameDecoder()
    decoder.feed(data)
    command = next(decoder)
    request = read_request(declaration_of(SendMessageV2), command)
    assert isinstance(request, Send)
    return command, request


def values(request: Send) -> dict[str, Any]:
    return {name: getattr(request, name) for name in NAMES}


def check(decoder: BinarySendFrames, data: bytes) -> int:
    """How many frames it took: what it takes is what the general decoder reads."""
    position = number = 0
    for end, opaque, fields, body_at in decoder.frames(data, 0, FrameLimits()):
        command, general = decoded(data[position:end])
        assert (command.code in (310, 320), command.flag, command.body) == (True, 0, data[body_at:end])
        assert int.from_bytes(opaque, "big", signed=True) == command.opaque
        assert values(fields) == values(general)
        position, number = end, number + 1
    return number


def test_frames_back_to_back_are_all_taken() -> None:
    one, batch = binary_frame(SEND), binary_frame(SendBatch(**values(SEND) | {"batch": True, "body": b"items"}))
    assert check(BinarySendFrames(), one * 3 + batch * 2 + one) == 6


def test_headers_that_differ_in_what_varies_are_cut_by_one_layout() -> None:
    decoder = BinarySendFrames()
    requests = [
        msgspec.structs.replace(SEND, queue_id=n % 10, born_timestamp=1_700_000_000_000 + n, properties="T\x01" * n)
        for n in range(50)
    ]
    assert check(decoder, b"".join(map(binary_frame, requests))) == 50
    ((layout,),) = decoder.layouts.values()
    assert len(layout.known) == 1


@given(st.lists(sends, min_size=1, max_size=6), int32)
def test_the_fields_are_those_of_the_general_decoder(requests: list[Send], opaque: int) -> None:
    """The second time they are known."""
    decoder = BinarySendFrames()
    data = b"".join(binary_frame(request, opaque) for request in requests)
    assert check(decoder, data) == check(decoder, data) == len(requests)


def test_what_a_hostile_peer_changes_is_read_as_by_the_general_decoder_or_left() -> None:
    decoder = BinarySendFrames()  # one for all: each change meets what was learned of all others

    @given(changed_frames(sends.map(binary_frame) | st.just(binary_frame(SEND))))
    def changed(data: bytes) -> None:
        check(decoder, binary_frame(SEND) + data)

    changed()


@pytest.mark.parametrize(
    ("old", "new", "is_taken"),
    [
        (b"\0\1e\0\0\0\x011", b"\0\1e\0\0\0\x01x", False),
        (b"\0\1e\0\0\0\x011", b"\0\1e\0\0\0\x01-", False),
        (b"\0\1e\0\0\0\x011", b"\0\1e\0\0\0\x0210", True),
        (b"\0\1e\0\0\0\x011", b"\0\1e\0\0\0\x0207", False),
        (b"\0\1e\0\0\0\x011", b"\0\1e\0\0\0\x02-7", True),
        (b"\0\1e\0\0\0\x011", b"\0\1e\0\0\0\x0a9999999999", False),
        (b"\x0d1700000000000", b"\x0d1_00000000000", False),
        (b"\x0d1700000000000", b"\x0d0000000000007", True),
        (b"\x0d1700000000000", b"\x0d-700000000000", False),
        (b"\0\1e", b"\0\1z", False),
        (b"\0\1e", b"\0\1f", False),
        (b"\0\1b\0\0\0\x06orders", b"\0\1b\0\0\0\x06order\xff", False),
        (b"paid", b"p\xc3id", False),
        (b"\0\0\0\x0aTAGS", b"\0\0\0\x09TAGS", False),
        (b"\0\0\0\x0aTAGS", b"\xff\xff\xff\xffTAGS", False),
        (b"\0\1k\0\0\0\x05false", b"\0\1k\0\0\0\x05False", True),
        (b"\0\1k\0\0\0\x05false", b"\0\1k\0\0\0\x05never", False),
    ],
    ids=str,
)
def test_numbers_and_texts_that_are_odd(old: bytes, new: bytes, is_taken: bool) -> None:
    decoder = BinarySendFrames()
    assert check(decoder, binary_frame(SEND) * 2) == 2
    assert check(decoder, replaced(binary_frame(SEND), old, new)) == is_taken


def test_fields_in_another_order_are_read_each_time() -> None:
    decoder = BinarySendFrames()
    for ordered, layouts in (("iabcdefgh", 0), ("abcdfghei", 0), ("abcdeghif", 1)):
        pairs = [(name, "7" if name in "defgh" else name) for name in ordered]
        header = bytes.fromhex("0136 00 0163 00000007 00000000 00000000 00000000") + fields_of(*pairs)
        header = header[:17] + (len(header) - 21).to_bytes(4, "big") + header[21:]
        assert check(decoder, with_header(binary_frame(SEND), header) * 2) == 2
        assert len(decoder.layouts) == layouts


def test_a_name_that_comes_twice_and_a_signature_are_read_each_time() -> None:
    decoder = BinarySendFrames()
    twice = with_header(binary_frame(SEND), _with_field(binary_frame(SEND), ("e", "2")))
    assert check(decoder, twice * 2) == 2
    for name in (SIGNATURE, SIGNATURE_V2):
        assert check(decoder, binary_frame(SEND, 7, 0, AccessKey="shop", **{name: "c2lnbg=="}) * 2) == 2
    assert decoder.layouts == {}


def _with_field(frame: bytes, *pairs: tuple[str, str]) -> bytes:
    header = frame[8 : 8 + int.from_bytes(frame[5:8], "big")] + fields_of(*pairs)
    return header[:17] + (len(header) - 21).to_bytes(4, "big") + header[21:]


def test_a_response_a_one_way_call_a_remark_and_an_unknown_field_are_left_alone() -> None:
    decoder = BinarySendFrames()
    one = binary_frame(SEND)
    assert check(decoder, one) == 1
    for flag in (HeaderFlag.RESPONSE, HeaderFlag.ONEWAY):
        assert check(decoder, binary_frame(SEND, 7, flag)) == 0
    assert check(decoder, binary_frame(SEND, 7, 0, novelty="1")) == 0
    header = one[8 : 8 + int.from_bytes(one[5:8], "big")]
    assert check(decoder, with_header(one, header[:13] + b"\0\0\0\2hi" + header[17:])) == 0


@pytest.mark.parametrize("missing", [1, 5, 6, 100, 200])
def test_a_frame_that_is_not_whole_is_left_alone(missing: int) -> None:
    decoder, one = BinarySendFrames(), binary_frame(SEND)
    assert check(decoder, one + one[:-missing]) == 1
    assert check(decoder, one[:-missing]) == 0


@pytest.mark.parametrize("limits", [FrameLimits(frame_bytes_max=100), FrameLimits(header_bytes_max=50)])
def test_a_frame_above_a_limit_is_left_alone(limits: FrameLimits) -> None:
    assert list(BinarySendFrames().frames(binary_frame(SEND), 0, limits)) == []


def test_a_header_that_may_pass_a_limit_on_fields_is_left_alone() -> None:
    assert check(BinarySendFrames(), binary_frame(msgspec.structs.replace(SEND, properties="x" * 2000))) == 0


def test_lengths_that_contradict_each_other_are_left_alone() -> None:
    decoder, one = BinarySendFrames(), binary_frame(SEND)
    assert check(decoder, one) == 1
    for length in (-1, 0, 3, 20, -(2**31)):
        assert list(decoder.frames(length.to_bytes(4, "big", signed=True) + one[4:], 0, FrameLimits())) == []
    header_bytes = int.from_bytes(one[5:8], "big")
    for kind, length in ((0, header_bytes), (2, header_bytes), (255, header_bytes), (1, header_bytes - 1), (1, 0)):
        word = (kind << 24 | length).to_bytes(4, "big")
        assert list(decoder.frames(one[:4] + word + one[8:], 0, FrameLimits())) == []


def test_a_frame_that_does_not_pass_the_check_ends_the_run() -> None:
    decoder = BinarySendFrames()
    other = msgspec.structs.replace(SEND, topic="secret", body=b"!")
    data = binary_frame(SEND) + binary_frame(other) + binary_frame(SEND)
    checked: list[tuple[str, bytes]] = []

    def is_open(request: Request[Any], header: bytes, body: bytes) -> bool:
        assert isinstance(request, SendFields)
        assert header.startswith(b"\x01\x36")
        checked.append((request.topic, body))
        return request.topic == "orders"

    for _ in range(2):
        assert [fields.topic for _, _, fields, _ in decoder.frames(data, 0, FrameLimits(), is_open)] == ["orders"]
    assert checked == [("orders", b"hello"), ("secret", b"!")] * 2


@given(st.binary(max_size=60), st.integers(0, 80))
def test_any_bytes_are_left_alone(data: bytes, position: int) -> None:
    assert list(BinarySendFrames().frames(data, position, FrameLimits())) == []


def test_what_peers_make_up_is_forgotten_at_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary_headers, "KNOWN_MAX", 100)
    monkeypatch.setattr(binary_headers, "LAYOUTS_MAX", 20)
    decoder = BinarySendFrames()
    for number in range(1000):
        topic = "t" * (1 + number % 60) + str(number)
        assert check(decoder, binary_frame(msgspec.structs.replace(SEND, topic=topic))) == 1
        layouts = [layout for layouts in decoder.layouts.values() for layout in layouts]
        assert len(layouts) <= 20
        assert sum(len(layout.known) for layout in layouts) <= 100


def test_layouts_of_one_key_are_few_and_the_newest_stay() -> None:
    decoder = BinarySendFrames()
    for digits in range(1, 19):
        assert check(decoder, binary_frame(msgspec.structs.replace(SEND, born_timestamp=10**digits))) == 1
    ((*layouts,),) = decoder.layouts.values()
    assert len(layouts) == 8
    assert check(decoder, binary_frame(msgspec.structs.replace(SEND, born_timestamp=10**17))) == 1


def test_a_broken_header_is_an_error_of_the_general_decoder_alone() -> None:
    broken = binary_frame(SEND)[:-60]
    broken = (len(broken) - 4).to_bytes(4, "big") + broken[4:]
    assert check(BinarySendFrames(), broken) == 0
    with pytest.raises(WireError):
        decoded(broken)
