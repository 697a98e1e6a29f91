"""Headers of commands in both formats: tolerant reading, limits, and errors."""

import json
import struct

import pytest

from ariane.errors import HeaderError
from ariane.wire.codes import Language, Serialization
from ariane.wire.frame import (
    EXT_FIELDS_MAX,
    EXT_VALUE_MAX,
    HEADER_BYTES_MAX,
    Command,
    decode_header,
    encode_binary_header,
    encode_json_header,
)


def read(header: str | bytes | dict[str, object], serialization: int = Serialization.JSON) -> Command:
    if isinstance(header, dict):
        header = json.dumps(header)
    return decode_header(serialization, header.encode() if isinstance(header, str) else header, b"")


def test_trap_02_numbers_and_booleans_in_ext_fields_become_text() -> None:
    command = read('{"code":310,"extFields":{"e":0,"k":false,"m":true,"g":1700000000000,"t":1.5,"x":null,"b":"T"}}')
    assert command.ext == {"e": "0", "k": "false", "m": "true", "g": "1700000000000", "t": "1.5", "b": "T"}


def test_trap_02_emitted_ext_values_are_strings() -> None:
    header = json.loads(encode_json_header(Command(code=0, ext_texts={"queueId": "1", "offset": "22"})))
    assert header["extFields"] == {"queueId": "1", "offset": "22"}


@pytest.mark.parametrize("ext", ["", ',"extFields":{}', ',"extFields":null'])
def test_ext_fields_may_be_missing_empty_or_null(ext: str) -> None:
    assert read(f'{{"code":105{ext}}}').ext == {}


def test_a_newline_after_the_header_is_accepted() -> None:
    assert read('{"code":105,"extFields":{"topic":"T"}}\n').ext == {"topic": "T"}


def test_unknown_members_are_ignored() -> None:
    assert read('{"code":105,"serializeTypeCurrentRPC":"JSON","later":{"a":[1]}}').code == 105


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ('"JAVA"', Language.JAVA), ('"other"', Language.OTHER), ('"go"', Language.GO), ("3", Language.PYTHON),
        ('"COBOL"', Language.OTHER), ("99", Language.OTHER), ("null", Language.OTHER),
    ],
)  # fmt: skip
def test_a_language_is_a_name_in_any_case_or_a_number(sent: str, meant: Language) -> None:
    assert read(f'{{"code":1,"language":{sent}}}').language_code is meant


def test_headers_that_only_fastjson_accepts_are_read() -> None:
    command = read("{code:105,'opaque':'7',extFields:{topic:'T',n:4,},flag:0,}")
    assert (command.code, command.opaque, command.ext) == (105, 7, {"topic": "T", "n": "4"})


def test_a_peer_cannot_set_attributes_that_are_not_in_the_header() -> None:
    command = read({"code": 1, "body": "x", "\x7fbody": "eA==", "\x7fserialization": 1, "\x7fext": {"a": "b"}})
    assert (command.body, command.serialization, command.ext) == (b"", Serialization.JSON, {})


@pytest.mark.parametrize(
    "header",
    [
        b"", b"{", b"[]", b"5", b"null", b'"x"', b"{}", b'{"code":"x"}', b'{"code":99999999999}', b"\xff\xfe",
        b'{"code":1,"opaque":3000000000}', b'{"code":1,"extFields":[]}', b'{"code":1,"extFields":{"a":{"b":1}}}',
        b'{"code":1,"remark":"\xff"}', b'{"code":1,"extFields":{"a":"\xff"}}',
    ],
)  # fmt: skip
def test_a_malformed_header_is_a_header_error(header: bytes) -> None:
    with pytest.raises(HeaderError):
        read(header).ext  # noqa: B018 - reading the fields finds some of the errors


def test_nesting_is_limited() -> None:
    def nested(depth: int) -> bytes:
        return b'{"code":1,"x":' + b"[" * depth + b"]" * depth + b"}"

    assert read(nested(31)).code == 1
    with pytest.raises(HeaderError, match="32"):
        read(nested(32))
    with pytest.raises(HeaderError):
        read(nested(30_000))


def test_brackets_in_strings_are_not_nesting() -> None:
    command = read({"code": 1, "extFields": {"i": "[{" * 500, "j": '"' * 3 + "{" * 100}})
    assert command.ext["i"] == "[{" * 500


def test_the_number_and_the_size_of_fields_are_limited() -> None:
    assert len(read({"code": 1, "extFields": {f"k{n}": "v" for n in range(EXT_FIELDS_MAX)}}).ext) == EXT_FIELDS_MAX
    many = {f"k{n}": "v" for n in range(EXT_FIELDS_MAX + 1)}
    long = {"topic": "x" * (EXT_VALUE_MAX + 1)}
    for fields, reason in ((many, "at most 256"), (long, "'topic' has 32769 characters")):
        refused = read({"code": 1, "opaque": 9, "extFields": fields})
        assert (refused.code, refused.opaque, refused.ext) == (1, 9, {})
        assert reason in (refused.excess or "")
        with pytest.raises(HeaderError, match=reason):
            read({"code": 0, "flag": 1, "extFields": fields})


def test_long_properties_reach_the_broker_which_responds_with_a_code() -> None:
    assert len(read({"code": 310, "extFields": {"i": "x" * 40_000}}).ext["i"]) == 40_000


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(character):04x}" for character in text)


def test_the_longest_properties_are_read_however_json_escapes_them() -> None:
    properties = "a\x01" + "x" * 32_764 + "\x02"
    command = read(f'{{"code":310,"opaque":3,"extFields":{{"b":"T","i":"{escaped(properties)}"}}}}'.encode())
    assert command.excess is None
    assert command.ext == {"b": "T", "i": properties}


@pytest.mark.parametrize("serialization", list(Serialization))
def test_a_header_beyond_the_limit_is_known_by_its_numbers_alone(serialization: Serialization) -> None:
    request = Command(code=310, opaque=77, flag=2, ext_texts={"i": "x" * HEADER_BYTES_MAX}, serialization=serialization)
    encode = encode_json_header if serialization is Serialization.JSON else encode_binary_header
    command = read(encode(request), serialization)
    assert (command.code, command.opaque, command.flag, command.ext) == (310, 77, 2, {})
    assert str(HEADER_BYTES_MAX) in (command.excess or "")
    assert command.serialization is serialization


@pytest.mark.parametrize(
    "members",
    [
        '"extFields":{' + ",".join(f'"{n:x}":1' for n in range(20_000)) + "}",
        '"extFields":[' + "1," * 100_000 + "1]",
        "'extFields':{" + ",".join(f"'{n:x}':{{}}" for n in range(20_000)) + "}",
        "'x':[" + "1," * 100_000 + "1]",
    ],
    ids=["fields", "array", "quotes of fastjson", "unknown member"],
)
def test_headers_of_very_many_values_are_not_parsed_in_python(members: str) -> None:
    """The tolerant parser would hold the event loop for half a second, before any account is checked."""
    try:
        assert read(f'{{"code":310,{members}}}'.encode()).excess
    except HeaderError as error:
        assert "more than 1024 keys and values" in str(error)  # noqa: PT017


class TestBinary:
    def header(self, **changes: object) -> bytes:
        ext = changes.pop("ext", {"topic": "T"})
        assert isinstance(ext, dict)
        return encode_binary_header(Command(code=105, opaque=9, ext_texts=ext, **changes))  # type: ignore[arg-type]

    def test_round_trip(self) -> None:
        command = read(self.header(remark="é", ext={"topic": "订单", "empty": ""}), Serialization.BINARY)
        assert (command.remark, command.ext, command.opaque) == ("é", {"topic": "订单", "empty": ""}, 9)

    def test_every_truncation_is_a_header_error(self) -> None:
        whole = self.header(remark="remark", ext={"topic": "T", "key": "value"})
        for length in range(len(whole)):
            with pytest.raises(HeaderError):
                read(whole[:length], Serialization.BINARY)

    @pytest.mark.parametrize("length", [-1, 2**31 - 1, 1_000_000])
    def test_lengths_that_lie_are_header_errors(self, length: int) -> None:
        whole = self.header()
        for position in (13, 17):  # the remark's length and the fields' length
            lying = whole[:position] + struct.pack(">i", length) + whole[position + 4 :]
            with pytest.raises(HeaderError):
                read(lying, Serialization.BINARY)

    def test_too_many_fields_are_refused(self) -> None:
        command = read(self.header(ext={f"k{n}": "" for n in range(300)}), Serialization.BINARY)
        assert "at most 256" in (command.excess or "")
        assert command.ext == {}

    def test_a_code_beyond_16_bits_is_refused_with_a_hint(self) -> None:
        with pytest.raises(HeaderError, match="use JSON"):
            encode_binary_header(Command(code=200050))


def test_trap_01_unknown_serialisation_is_refused() -> None:
    with pytest.raises(HeaderError, match="unknown header serialisation 2"):
        read(b"{}", serialization=2)
