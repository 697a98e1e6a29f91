"""Forms of headers: filled in they are what the general path writes."""

from hypothesis import given
from hypothesis import strategies as st

from ariane.model.ids import QueueOffset
from ariane.wire.exchange import request_command
from ariane.wire.fast_frames import frame_of, header_form
from ariane.wire.frame import FRAME_BYTES_MAX, encode_frame
from ariane.wire.requests.offsets import UpdateConsumerOffset

MARK = 3_000_222_000
texts = st.text(st.characters(codec="utf-8"), max_size=12)


def request(group: str, topic: str, offset: int) -> UpdateConsumerOffset:
    return UpdateConsumerOffset(group, topic, 3, QueueOffset(offset))


@given(texts, texts, st.integers(1, 2**31 - 1), st.integers(0, 2**63 - 1))
def test_a_form_says_what_the_general_path_says(group: str, topic: str, opaque: int, offset: int) -> None:
    form = header_form(request(group, topic, MARK), {b"%d" % MARK: b"%d"})
    assert form is not None
    assert frame_of(form % (opaque, offset)) == encode_frame(
        request_command(request(group, topic, offset), opaque=opaque)
    )


def test_a_name_that_looks_like_a_mark_has_no_form() -> None:
    assert header_form(request("g", f"t{MARK}", MARK), {b"%d" % MARK: b"%d"}) is None
    assert header_form(request("2000111000", "t", MARK), {b"%d" % MARK: b"%d"}) is None


def test_marks_must_come_in_the_order_of_the_header() -> None:
    marks = {b"%d" % MARK: b"%d", b'"g"': b"%b"}
    assert header_form(request("g", "t", MARK), marks) is None


def test_what_no_frame_may_hold_is_left_to_the_general_path() -> None:
    assert frame_of(b"x" * FRAME_BYTES_MAX) is None
    assert frame_of(b"{}", b"x" * FRAME_BYTES_MAX) is None
    assert frame_of(b"{}", b"x") is not None
