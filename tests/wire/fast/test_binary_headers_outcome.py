"""The fast decoders of outcomes of transactions: they yield what the general decoder yields, or leave a frame alone."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.model.ids import PhysicalOffset, QueueOffset
from ariane.wire.codes import HeaderFlag, Serialization
from ariane.wire.exchange import declaration_of, read_request, request_command
from ariane.wire.fast.decoders import OutcomeDecoder, begins_with_outcome
from ariane.wire.fast.fields import Opaque, command_of
from ariane.wire.frame import Command, FrameDecoder, FrameLimits, encode_frame
from ariane.wire.requests.send import EndTransaction
from tests.wire.fast.binary_frames import binary_frame, changed_frames, replaced

OUTCOME = EndTransaction(
    producer_group="payers", tran_state_table_offset=QueueOffset(41), commit_log_offset=PhysicalOffset(123_456),
    commit_or_rollback=8, msg_id="7F0000010001", from_transaction_check=False, transaction_id="7F0000010001",
)  # fmt: skip
NAMES = [field.name for field in msgspec.structs.fields(EndTransaction)]
int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
offsets = st.integers(0, 2000) | int64
outcomes = st.builds(
    EndTransaction,
    producer_group=st.just("payers") | texts,
    tran_state_table_offset=offsets,
    commit_log_offset=offsets,
    commit_or_rollback=st.sampled_from([8, 12, 0]) | int32,
    msg_id=st.sampled_from(["7F0000010001", "7F0000010002"]) | texts,
    from_transaction_check=st.booleans(),
    transaction_id=st.none() | st.just("7F0000010001") | texts,
)
flags = st.sampled_from([0, int(HeaderFlag.ONEWAY)])


def frame(request: EndTransaction, kind: Serialization, flag: int = 0, opaque: int = 7) -> bytes:
    command = request_command(request, opaque=opaque, serialization=kind)
    command.flag = flag
    return encode_frame(command)


def decoded(data: bytes) -> tuple[Command, dict[str, Any]]:
    """As the general decoder reads it."""
    decoder = FrameDecoder()
    decoder.feed(data)
    command = next(decoder)
    return command, values(read_request(declaration_of(EndTransaction), command))


def values(request: Any) -> dict[str, Any]:
    return {name: getattr(request, name) for name in NAMES}


def number(opaque: Opaque | None) -> int | None:
    return None if opaque is None else command_of(37, opaque).opaque


def check(decoder: OutcomeDecoder, data: bytes) -> int:
    """How many frames it took: what it takes is what the general decoder reads."""
    position = taken = 0
    while begins_with_outcome(data, position):
        before = position
        for end, opaque, fields, _ in decoder.frames(data, position, FrameLimits()):
            command, general = decoded(data[position:end])
            assert number(opaque) == (None if command.is_oneway else command.opaque)
            assert values(fields) == general
            position, taken = end, taken + 1
        if position == before:
            break
    return taken


@given(st.lists(st.tuples(outcomes, st.sampled_from(Serialization), flags), min_size=1, max_size=6), int32)
def test_the_fields_are_those_of_the_general_decoder(
    requests: list[tuple[EndTransaction, Serialization, int]], opaque: int
) -> None:
    """The second time they are known."""
    decoder = OutcomeDecoder()
    data = b"".join(frame(request, kind, flag, opaque) for request, kind, flag in requests)
    assert check(decoder, data) == check(decoder, data) == len(requests)


def test_what_a_hostile_peer_changes_is_read_as_by_the_general_decoder_or_left() -> None:
    decoder = OutcomeDecoder()  # one for all: each change meets what was learned of all others
    common = binary_frame(OUTCOME)

    @given(changed_frames(outcomes.map(binary_frame) | st.just(common)))
    def changed(data: bytes) -> None:
        check(decoder, common + data)

    changed()


def test_headers_that_differ_in_what_varies_are_cut_by_one_layout() -> None:
    decoder = OutcomeDecoder()
    requests = [
        msgspec.structs.replace(
            OUTCOME,
            tran_state_table_offset=QueueOffset(10 + n),
            commit_log_offset=PhysicalOffset(100_000 + n),
            msg_id=f"7F00000100{n:02}",
            transaction_id=f"7F00000100{n:02}",
        )
        for n in range(50)
    ]
    assert check(decoder, b"".join(map(binary_frame, requests))) == 50
    ((layout,),) = decoder._binary.learned.layouts.values()
    assert len(layout.known) == 1


@pytest.mark.parametrize("kind", Serialization)
def test_a_response_an_unknown_field_and_a_signed_outcome_are_left_alone(kind: Serialization) -> None:
    decoder = OutcomeDecoder()
    assert check(decoder, frame(OUTCOME, kind)) == 1
    assert check(decoder, frame(OUTCOME, kind, int(HeaderFlag.RESPONSE))) == 0
    for name in ("novelty", "AccessKey"):
        command = request_command(OUTCOME, opaque=7, serialization=kind)
        command.ext_texts = command.ext | {name: "1"}
        assert check(decoder, encode_frame(command)) == 0


@pytest.mark.parametrize(
    ("old", "new", "is_taken"),
    [
        (b"tranStateTableOffset\0\0\0\x0241", b"tranStateTableOffset\0\0\0\x024x", False),
        (b"tranStateTableOffset\0\0\0\x0241", b"tranStateTableOffset\0\0\0\x02-1", False),
        (b"tranStateTableOffset\0\0\0\x0241", b"tranStateTableOffset\0\0\0\x0242", True),
        (b"commitLogOffset\0\0\0\x06123456", b"commitLogOffset\0\0\0\x06 23456", False),
        (b"7F0000010001", b"7F000001000\xff", False),
        (b"commitOrRollback\0\0\0\x018", b"commitOrRollback\0\0\0\x01y", False),
    ],
    ids=str,
)
def test_numbers_and_texts_that_are_odd(old: bytes, new: bytes, is_taken: bool) -> None:
    decoder = OutcomeDecoder()
    assert check(decoder, binary_frame(OUTCOME) * 2) == 2
    assert check(decoder, replaced(binary_frame(OUTCOME), old, new)) == is_taken


@given(st.binary(max_size=60), st.integers(0, 80))
def test_any_bytes_are_left_alone(data: bytes, position: int) -> None:
    assert check(OutcomeDecoder(), data) == 0
    assert begins_with_outcome(data, position) is False
