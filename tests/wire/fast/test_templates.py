"""Forms of headers: filled in they are what the general path writes."""

from hypothesis import given
from hypothesis import strategies as st

from ariane.model.ids import QueueOffset
from ariane.wire.exchange import request_command
from ariane.wire.fast.templates import form_of_samples, frame_of, header_form, sample_numbers
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


# --- from two samples -------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(min_size=1, max_size=6), min_size=1, max_size=4), st.data())
def test_what_two_samples_share_is_the_template(shared: list[bytes], data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=len(shared) - 1, max_size=len(shared) - 1))

    def filled(values: list[bytes]) -> bytes:
        return b"".join(piece + value for piece, value in zip(shared, [*values, b""], strict=True))

    one, other = filled([b"\0" * size for size in sizes]), filled([b"\xff" * size for size in sizes])
    values = [data.draw(st.binary(min_size=size, max_size=size)) for size in sizes]
    assert form_of_samples(one, other, *[b"%b"] * len(sizes)) % tuple(values) == filled(values)


def test_sample_numbers_differ_in_each_digit_and_fit_64_bits() -> None:
    for digits in range(1, 20):
        one, other = map(str, sample_numbers(digits))
        assert len(one) == len(other) == digits
        assert all(map(str.__ne__, one, other))
        assert int(other) < 2**63
