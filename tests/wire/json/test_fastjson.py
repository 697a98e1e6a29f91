"""The parser of fastjson's dialect: recorded bodies, leniency, errors and limits."""

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.errors import BodyError, HeaderError, WireError
from ariane.wire.json.fastjson import DEPTH_MAX, SIZE_MAX, check_depth, emit, parse
from tests.wire.golden_bodies import GoldenBody, damaged, golden_bodies
from tests.wire.json.json_values import values

QUEUE_TEXT = '{"brokerName":"b","queueId":0,"topic":"T"}'


# --- what real peers send


@pytest.mark.parametrize("body", golden_bodies(), ids=lambda body: f"{body.client}-{body.code}")
def test_every_recorded_body_is_read_and_keeps_its_meaning(body: GoldenBody) -> None:
    value = parse(body.data)
    assert isinstance(value, dict)
    assert value
    assert parse(emit(value)) == value
    assert json.loads(emit(value, standard=True))


def test_the_recording_contains_bodies_of_all_three_clients() -> None:
    assert {body.client for body in golden_bodies()} == {"java-4.9.8", "go", "cpp"}
    assert any(b"{{" in body.data for body in golden_bodies())
    assert any(b"{0:" in body.data for body in golden_bodies())


def test_trap_04_object_keyed_maps_and_refs() -> None:
    value = parse(f'{{"offsetTable":{{{QUEUE_TEXT}:12,{{"topic":"T","queueId":1,"brokerName":"b"}}:7}}}}')
    assert value == {
        "offsetTable": {
            (("brokerName", "b"), ("queueId", 0), ("topic", "T")): 12,
            (("brokerName", "b"), ("queueId", 1), ("topic", "T")): 7,
        }
    }
    shared = parse('{"a":{"tags":["x"]},"b":{"$ref":"$.a"},"c":{"$ref":"$.a.tags"},"d":[{"$ref":"$.a.tags"}]}')
    assert shared == {"a": {"tags": ["x"]}, "b": {"tags": ["x"]}, "c": ["x"], "d": [["x"]]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"a",-1:"b","0":"c"}', {0: "a", -1: "b", "0": "c"}),
        ("{code:0,$x_1:1,'flag':2}", {"code": 0, "$x_1": 1, "flag": 2}),
        ("{true:1,null:2,1.5:3}", {"true": 1, "null": 2, "1.5": 3}),
        ("{,,\"a\":1,,'b':[,1,,2,],}", {"a": 1, "b": [1, 2]}),
        ('{"a":1}\n', {"a": 1}),
        (' \t\r\n[ 1 ,\b\f2 ] \n', [1, 2]),
        ('{"a" : 1}', {"a": 1}),
        ('{"a":1,"a":2}', {"a": 2}),
        ("[007,-0,1.,1e3,2.5E-1]", [7, 0, 1.0, 1000.0, 0.25]),
        ("[true,false,null]", [True, False, None]),
        ('"text"', "text"),
        ("12", 12),
        ("[]", []),
        ("{}", {}),
        ("{{}:1}", {(): 1}),
        (r'"\"\\\/\b\f\n\r\tA\u0042"', '"\\/\b\f\n\r\tAB'),
        (r"'\'\x41\v\F\0\7'", "'A\v\f\0\7"),
        ("'say \"hi\"'", 'say "hi"'),
        ('"it\'s\traw"', "it's\traw"),
    ],
)  # fmt: skip
def test_what_fastjson_accepts_is_accepted(text: str, value: object) -> None:
    assert parse(text) == value
    assert parse(text.encode()) == value


def test_integer_keys_stay_integers_and_quoted_ones_stay_text() -> None:
    value = parse('{0:1,"1":2}')
    assert isinstance(value, dict)
    assert list(value) == [0, "1"]


# --- text


def test_surrogate_pairs_are_joined_and_lone_surrogates_are_replaced() -> None:
    assert parse(r'"\ud83d\ude00"') == "😀"
    assert parse(r'"a\ud83db\ude00"') == "a�b�"
    assert emit(parse(r'{"\ud83d":1}')) == '{"�":1}'.encode()


@pytest.mark.parametrize("data", [b'"\xff"', b'"\xed\xa0\xbd"', "'\ud83d'"])
def test_text_that_is_not_utf_8_is_refused(data: bytes | str) -> None:
    with pytest.raises(BodyError, match="UTF-8"):
        parse(data)


# --- errors


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "{", "[", '"', "'a", "{]", "[}", "]", ",", ":", "{1", "{1:", "{1:}", "{1:2", "[1 2]", '{"a":1 "b":2}',
        '{"a":,1}', ",1", "1,", "1 2", "{} {}", "[1]]", "NaN", "-Infinity", "[Infinity]", "undefined", "[a]", "+1",
        ".5", "-", "1e999", '"\\q"', '"\\u12"', '"\\x1"', '"\\"', '{"a"}', "{[1]:2}", "{{:1}", '{{"a":[]}:1}',
        '{{"":1}:1}', "{{1:2}:3}", "{9223372036854775808:1}", "/* x */1", "\x00",
    ],
)  # fmt: skip
def test_invalid_json_is_refused_with_its_position(text: str) -> None:
    with pytest.raises(BodyError, match=r"at character \d+, near"):
        parse(text)


def test_an_error_names_the_position() -> None:
    with pytest.raises(BodyError, match=r"not JSON: a comma is missing, at character 6, near ' \"b\":2\}'"):
        parse('{"a":1 "b":2}')


@pytest.mark.parametrize("unit", [b"[", b'{"a":', b"{{", b"{0:[", b'[{"a":'])
def test_text_nested_200000_deep_is_refused(unit: bytes) -> None:
    with pytest.raises(BodyError, match="nested deeper than 32 levels"):
        parse(unit * 200_000)


def test_text_nested_as_deep_as_allowed_is_read() -> None:
    parse("[" * DEPTH_MAX + "]" * DEPTH_MAX)
    parse("[[]]", depth_max=2)
    with pytest.raises(BodyError):
        parse("[[]]", depth_max=1)


def test_a_number_of_100000_digits_is_refused() -> None:
    with pytest.raises(BodyError, match="100000 characters"):
        parse("1" * 100_000)
    with pytest.raises(BodyError, match="100002 characters"):
        parse("1." + "1" * 100_000)


def test_a_text_longer_than_any_frame_is_refused() -> None:
    with pytest.raises(BodyError, match="at most"):
        parse(b" " * (SIZE_MAX + 1))


def test_integer_keys_are_limited_because_they_can_be_chosen_to_collide() -> None:
    parse("{" + ",".join(f"{key}:0" for key in range(8192)) + "}")
    with pytest.raises(BodyError, match="integer keys"):
        parse("{" + ",".join(f"{key}:0" for key in range(8193)) + "}")


def test_a_key_object_is_limited_because_it_is_hashed_at_each_use() -> None:
    members = ",".join(f'"m{number}":0' for number in range(17))
    with pytest.raises(BodyError, match="at most 16 members"):
        parse(f"{{{{{members}}}:1}}")


@pytest.mark.parametrize(
    "text",
    [
        "[" + "0," * 1_000_000, '["' + "\\n" * 1_000_000, '"' + '\\"' * 1_000_000, "," * 1_000_000, " " * 1_000_000,
        "[" + '""' * 500_000, "{" * 500_000, "'" * 999_999, "1e" * 500_000, "[" + '{"$ref":"$"},' * 100_000,
        '{"' + "\\ud83d" * 200_000, '{"$ref":"$' + ".a" * 300_000 + '"}', '{"$ref":"$' + "\\\\a" * 300_000 + '"}',
    ],
    ids=lambda text: text[:6],
)  # fmt: skip
def test_a_megabyte_of_anything_is_refused_without_quadratic_work(text: str) -> None:
    # Quadratic work on a million characters would take hours, so that this test ends is what it shows.
    with pytest.raises(BodyError):
        parse(text)


@given(st.binary(max_size=200) | st.text(alphabet="{}[]:,\"'\\$ref.@0-1eE+xu \n", max_size=60))
def test_anything_at_all_is_read_or_refused(data: bytes | str) -> None:
    with suppress(WireError):
        parse(data)


@given(damaged(tuple(body.data for body in golden_bodies())))
@settings(deadline=None)
def test_damaged_bodies_are_read_or_refused(data: bytes) -> None:
    with suppress(WireError):
        parse(data)


# --- depth


def test_brackets_in_strings_do_not_count_as_depth() -> None:
    check_depth(b'["' + b"[" * 100 + b'",' + b"'{{{{'" + b"]", 1)
    check_depth(b'["\\"[[[[","\\\\",[]]', 2)
    check_depth(b"[" + b"{}," * 1000 + b"{}]", 2)
    with pytest.raises(BodyError, match="deeper than 1"):
        check_depth(b'["\\\\",[]]', 1)


@pytest.mark.parametrize("unit", [b"[", b'{"a":', b'["\\"",', b"{'a':["])
def test_a_depth_of_200000_is_refused_before_decoding(unit: bytes) -> None:
    with pytest.raises(HeaderError, match="deeper than 32"):
        check_depth(unit * 200_000, 32, HeaderError)


@given(values)
def test_depth_allows_exactly_what_the_parser_allows(value: object) -> None:
    data = emit(value)
    depth = 0
    while True:
        try:
            parse(data, depth_max=depth)
            break
        except BodyError:
            with pytest.raises(BodyError):
                check_depth(data, depth)
            depth += 1
    check_depth(data, depth)
