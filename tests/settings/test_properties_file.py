"""The properties parser against Java's rules: separators, comments, continuation lines and escapes."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.errors import SettingsError
from ariane.settings.properties_file import PropertiesEntry, read_properties

# Everything but lone surrogates, which no text file can hold.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def read(text: str) -> dict[str, str]:
    return {entry.key: entry.value for entry in read_properties(text)}


def as_java_escapes(text: str) -> str:
    """Every character as \\uXXXX, those beyond U+FFFF as the pair of units that Java writes."""
    units = text.encode("utf-16-be")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04X}" for at in range(0, len(units), 2))


@pytest.mark.parametrize(
    "line", ["port=9876", "port = 9876", "port: 9876", "port :9876", "port 9876", "\tport\t9876 \t"]
)
def test_a_key_ends_at_an_equals_sign_a_colon_or_white_space(line: str) -> None:
    assert read(line) == {"port": "9876"}


def test_only_the_first_separator_counts() -> None:
    assert read("a==b\nc=d=e:f\ng:=h") == {"a": "=b", "c": "d=e:f", "g": "=h"}


def test_a_key_without_a_value_has_an_empty_one() -> None:
    assert read("alone\nempty=\nblank =   ") == {"alone": "", "empty": "", "blank": ""}


def test_comments_and_blank_lines_are_skipped() -> None:
    assert read("# one\n  ! two\n\n \t \na=1 # part of the value\n") == {"a": "1 # part of the value"}


def test_a_comment_does_not_go_on_in_the_next_line() -> None:
    assert read("# comment \\\na=1") == {"a": "1"}


def test_an_odd_number_of_backslashes_joins_the_next_line() -> None:
    assert read("path=/var/\\\n   lib\nback=x\\\\\nnext=1") == {"path": "/var/lib", "back": "x\\", "next": "1"}


def test_a_joined_line_may_look_like_a_comment() -> None:
    assert read("a=1\\\n#2") == {"a": "1#2"}


def test_a_backslash_at_the_end_of_the_file_joins_nothing() -> None:
    assert read("a=1\\") == {"a": "1"}
    assert read("\\") == {}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_as_on_any_system(end: str) -> None:
    assert read(end.join(["a=1", "b=2\\", " 3"])) == {"a": "1", "b": "23"}


def test_escapes_are_resolved_in_keys_and_values() -> None:
    assert read(r"a\=b\:c\ d = \q\t1") == {"a=b:c d": "q\t1"}
    assert read(r"caf\u00e9=\ud83d\ude00") == {"café": "😀"}


def test_each_entry_knows_its_first_line_and_the_last_of_two_comes_last() -> None:
    entries = list(read_properties("# head\na=1\\\n 2\nb=3\na=4"))
    assert entries == [PropertiesEntry(2, "a", "12"), PropertiesEntry(4, "b", "3"), PropertiesEntry(5, "a", "4")]


def test_a_broken_unicode_escape_names_its_line() -> None:
    with pytest.raises(SettingsError, match=r"line 2: .*four hexadecimal digits"):
        read("a=1\nb=\\u12")


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"line 1: .*half of a surrogate pair"):
        read("a=\\ud83d")


@given(TEXTS, TEXTS)
def test_what_java_escapes_is_read_back(key: str, value: str) -> None:
    escaped = as_java_escapes(key) + "=" + as_java_escapes(value)
    assert read(escaped) == {key: value.strip(" \t\f\r\n")}


@given(st.text(st.sampled_from("a\\u0=: \t\f\r\n#!é")))
def test_any_text_gives_entries_or_a_settings_error(text: str) -> None:
    with suppress(SettingsError):
        for entry in read_properties(text):
            assert entry.value == entry.value.strip(" \t\f\r\n")
