"""Request signatures: the signed content, and verification."""

import hmac
from base64 import b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.wire.signature import access_key_of, content_to_sign, content_v2, sign, sign_v2, verify, verify_v2

SECRET = "12345678"


def signed(ext: dict[str, str], body: bytes | None = None, *, with_unique_key_query: bool = False) -> dict[str, str]:
    content = content_to_sign(ext, body, with_unique_key_query=with_unique_key_query)
    return ext | {"Signature": sign(SECRET, content)}


def test_the_signature_is_base64_of_hmac_sha1() -> None:
    assert sign("adiaushdiaushd", b"Hello RocketMQ Client ACL Feature") == "tAb/54Rwwcq+pbH8Loi7FWX4QSQ="


def test_a_route_request_is_signed_as_java_signs_it() -> None:
    ext = {"topic": "T", "AccessKey": "RocketMQ"}
    assert content_to_sign(ext, None, with_unique_key_query=False) == b"RocketMQT"
    assert signed(ext)["Signature"] == "qij/uwizWhQy5fp70E15Y7+y++Q="


def test_values_are_signed_in_the_order_of_their_keys_with_upper_case_first() -> None:
    ext = {"b": "2", "a": "1", "B": "0", "Signature": "x", "SecurityToken": "s", "_": "_"}
    assert content_to_sign(ext, b"body", with_unique_key_query=False) == b"0s_12body"


def test_keys_are_ordered_by_utf16_unit_as_java_does() -> None:
    # By code point the first key is the smaller one; by unit the second, which starts with a surrogate.
    assert content_to_sign({"\uffff": "2", "😀": "1"}, b"", with_unique_key_query=False) == b"12"


def test_a_body_is_signed_as_it_is_sent() -> None:
    assert content_to_sign({}, b"\x00\xff", with_unique_key_query=True) == b"\x00\xff"


@pytest.mark.parametrize("signs_it", [False, True])
def test_trap_17_a_signature_with_or_without_the_unique_key_query_is_valid(signs_it: bool) -> None:
    ext = {"AccessKey": "RocketMQ", "topic": "T", "_UNIQUE_KEY_QUERY": "true"}
    request = signed(ext, b"body", with_unique_key_query=signs_it)
    assert content_to_sign(ext, b"", with_unique_key_query=signs_it) == (b"RocketMQtrueT" if signs_it else b"RocketMQT")
    assert verify(SECRET, request, b"body")


def test_trap_17_keys_that_a_server_does_not_know_are_signed_too() -> None:
    request = signed({"AccessKey": "RocketMQ", "topic": "T", "OnsChannel": "ALIYUN"})
    assert verify(SECRET, request, None)
    del request["OnsChannel"]
    assert not verify(SECRET, request, None)


@pytest.mark.parametrize("ext", [{}, {"AccessKey": ""}])
def test_trap_17_an_empty_access_key_means_no_credentials(ext: dict[str, str]) -> None:
    assert access_key_of(ext) is None


def test_a_signed_request_names_its_key() -> None:
    assert access_key_of({"AccessKey": "RocketMQ"}) == "RocketMQ"


@settings(deadline=None)
@given(
    st.dictionaries(st.text(max_size=5).filter(lambda key: key != "Signature"), st.text(max_size=10), max_size=5),
    st.binary(max_size=20),
    st.booleans(),
)
def test_what_was_signed_is_verified_and_nothing_else(ext: dict[str, str], body: bytes, signs_it: bool) -> None:
    request = signed(ext, body, with_unique_key_query=signs_it)
    assert verify(SECRET, request, body)
    assert not verify(SECRET, request, body + b"x")
    assert not verify(SECRET, request | {"zz": "more"}, body)
    assert not verify("another secret", request, body)


@pytest.mark.parametrize("claimed", ["", "é", "\ud800", "qij/uwizWhQy5fp70E15Y7+y++Q", "QIJ/UWIZWHQY5FP70E15Y7+Y++Q="])
def test_a_wrong_signature_is_refused_whatever_it_contains(claimed: str) -> None:
    assert not verify(SECRET, {"topic": "T", "AccessKey": "RocketMQ", "Signature": claimed}, None)


def test_a_request_without_a_signature_is_not_verified() -> None:
    assert not verify(SECRET, {"topic": "T", "AccessKey": "RocketMQ"}, None)


def test_version_2_signs_code_names_values_and_body() -> None:
    ext = {"topic": 'T"', "AccessKey": "RocketMQ", "SignatureNonce": "c.1", "SignedAt": "5", "SignatureV2": "left out"}
    content = content_v2(105, ext, b"body")
    assert content == (
        b'["2 105","AccessKey","RocketMQ","SignatureNonce","c.1","SignedAt","5","topic","T\\""]' + b"body"
    )
    expected = b64encode(hmac.digest(SECRET.encode(), content, "sha256")).decode()
    assert sign_v2(SECRET, content) == expected
    assert verify_v2(SECRET, 105, ext | {"SignatureV2": expected}, b"body")
    assert not verify_v2(SECRET, 106, ext | {"SignatureV2": expected}, b"body")


@settings(deadline=None)
@given(
    st.dictionaries(st.text(max_size=5), st.text(max_size=10), max_size=5),
    st.dictionaries(st.text(max_size=5), st.text(max_size=10), max_size=5),
    st.binary(max_size=20),
    st.binary(max_size=20),
)
def test_two_requests_have_the_same_content_of_version_2_only_if_they_are_the_same(
    first: dict[str, str], second: dict[str, str], body: bytes, other_body: bytes
) -> None:
    first.pop("SignatureV2", None)
    second.pop("SignatureV2", None)
    same = first == second and body == other_body
    assert (content_v2(10, first, body) == content_v2(10, second, other_body)) is same


def test_a_lone_surrogate_is_signed_as_java_does() -> None:
    assert content_to_sign({"a": "x\ud800"}, None, with_unique_key_query=False) == b"x?"
