"""Every declared request and response survives encoding in both serialisations; every required one is declared."""

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ariane.wire.requests  # noqa: F401 - fills REQUESTS
from ariane.errors import WireError
from ariane.wire.codes import RequestCode, Serialization
from ariane.wire.exchange import (
    REQUESTS,
    Declaration,
    ServedBy,
    read_request,
    read_response,
    request_command,
    response_command,
)
from ariane.wire.frame import Command, FrameDecoder, encode_frame
from tests.wire.requests.struct_values import smallest, structs

NEEDED_BY_CLIENTS = [
    10, 11, 12, 14, 15, 17, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 46, 105, 220, 221, 307, 309,
    310, 320, 324, 325, 326, 361,
]  # fmt: skip
NEEDED_BY_ADMINISTRATORS = [
    12, 15, 17, 21, 25, 26, 28, 29, 30, 31, 33, 50, 51, 52, 53, 54, 100, 101, 102, 105, 106, 200, 201, 202, 203,
    204, 205, 206, 207, 208, 215, 216, 219, 222, 223, 224, 300, 303, 304, 305, 306, 307, 308, 309, 311, 312,
    313, 314, 315, 316, 317, 318, 319, 321, 323, 327, 328, 329, 351, 352,
]  # fmt: skip
NEEDED_BY_SERVERS = [21, 43, 45, 103, 104, 201, 322, 904]

DECLARATIONS = [pytest.param(REQUESTS[code], id=RequestCode(code).name) for code in sorted(REQUESTS)]
SERIALIZATIONS = st.sampled_from(Serialization)
REMARKS = st.none() | st.text(min_size=1, max_size=20)  # the binary header has no empty remark


def over_the_wire(command: Command) -> Command:
    decoder = FrameDecoder()
    decoder.feed(encode_frame(command))
    (received,) = decoder
    assert not decoder.mid_frame
    return received


@pytest.mark.parametrize("declaration", DECLARATIONS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_request_survives_the_wire(declaration: Declaration, data: st.DataObject) -> None:
    request = data.draw(structs(declaration.request))
    command = over_the_wire(request_command(request, opaque=7, serialization=data.draw(SERIALIZATIONS)))
    assert (command.code, command.opaque, command.is_response) == (declaration.code, 7, False)
    assert read_request(declaration, command) == request


@pytest.mark.parametrize("declaration", DECLARATIONS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_response_survives_the_wire(declaration: Declaration, data: st.DataObject) -> None:
    accepted = st.sampled_from(sorted(declaration.response.accepts))
    response = data.draw(structs(declaration.response, code=accepted, remark=REMARKS))
    request: Any = smallest(declaration.request)
    received = over_the_wire(request_command(request, opaque=7, serialization=data.draw(SERIALIZATIONS)))
    command = over_the_wire(response_command(received, response))
    assert (command.opaque, command.is_response, command.serialization) == (7, True, received.serialization)
    assert read_response(request, command) == response


@pytest.mark.parametrize("code", sorted({*NEEDED_BY_CLIENTS, *NEEDED_BY_ADMINISTRATORS, *NEEDED_BY_SERVERS}))
def test_a_required_request_is_declared(code: int) -> None:
    assert code in REQUESTS


@pytest.mark.parametrize("declaration", DECLARATIONS)
def test_the_fields_of_a_request_have_different_wire_names(declaration: Declaration) -> None:
    """Two attributes with one wire name would overwrite each other."""
    for kind in (declaration.request, declaration.response):
        names = kind.__struct_encode_fields__
        assert len(set(names)) == len(names)


def test_requests_to_consumers_are_served_by_brokers_too_where_administrators_send_them() -> None:
    both = {
        code for code, declaration in REQUESTS.items() if declaration.served_by == ServedBy.BROKER | ServedBy.CLIENT
    }
    assert both == {RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY}


@pytest.mark.parametrize("declaration", DECLARATIONS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_fields_and_body_are_read_or_refused(declaration: Declaration, data: st.DataObject) -> None:
    names = st.sampled_from(declaration.request.__struct_encode_fields__ or ("topic",))
    words = st.text(max_size=8) | st.integers().map(str) | st.sampled_from(["true", "1e3", "null", "-0", "NaN"])
    command = Command(code=declaration.code, ext_texts=data.draw(st.dictionaries(names, words)))
    command.body = data.draw(
        st.binary() | st.sampled_from([b"{}", b"[]", b"null", b'{"offsetTable":1}', b'{"topic":[]}'])
    )
    with contextlib.suppress(WireError):
        read_request(declaration, command)
