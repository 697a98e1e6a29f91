"""Parsing, validation and formatting of setting values of every type."""

from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.errors import SettingsError
from ariane.settings.values import Secret, ValueKind, to_text


class Flush(StrEnum):
    SYNC = "sync"
    ASYNC = "async"


PORT = ValueKind(int, minimum=0, maximum=65_535)
SECONDS = ValueKind(float, minimum=0.1)


@pytest.mark.parametrize("text", ["9_876", " 9876", "0x10", "٩", "9876.0", "1e3", "9" * 5000, "+", "nan"])
def test_only_plain_digits_are_a_whole_number(text: str) -> None:
    with pytest.raises(SettingsError, match="expected a whole number from 0 to 65535"):
        PORT.parse(text)


@pytest.mark.parametrize("text", ["nan", "inf", "1e400", "1_0", ".5", "0"])
def test_only_finite_numbers_in_range_are_a_number(text: str) -> None:
    with pytest.raises(SettingsError, match=r"expected a number of at least 0\.1"):
        SECONDS.parse(text)


@pytest.mark.parametrize("value", [True, 1.0, "1", None, [1], -1, 65_536, 10**400])
def test_a_typed_value_of_the_wrong_type_or_size_is_refused(value: object) -> None:
    with pytest.raises(SettingsError, match="expected a whole number from 0 to 65535"):
        PORT.check(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, True, "1.5"])
def test_a_float_setting_accepts_finite_numbers_only(value: object) -> None:
    with pytest.raises(SettingsError):
        ValueKind(float).check(value)


def test_a_float_setting_accepts_a_whole_number() -> None:
    value = SECONDS.check(2)
    assert value == 2.0
    assert isinstance(value, float)


def test_bools_are_true_or_false_and_nothing_else() -> None:
    kind = ValueKind(bool)
    assert kind.parse("TRUE") is True
    assert kind.parse("false") is False
    for text in ("yes", "1", "on", "treu"):
        with pytest.raises(SettingsError, match="expected true or false"):
            kind.parse(text)
    with pytest.raises(SettingsError, match="expected true or false"):
        kind.check(1)


def test_enums_are_read_by_value_in_any_case() -> None:
    kind = ValueKind(Flush)
    assert kind.parse("ASYNC") is Flush.ASYNC
    assert kind.check(Flush.SYNC) is Flush.SYNC
    with pytest.raises(SettingsError, match="expected one of sync, async"):
        kind.parse("never")


def test_a_path_may_start_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert ValueKind(Path).parse("~/kv.json") == Path("/home/ada/kv.json")
    with pytest.raises(SettingsError, match="home directory"):
        ValueKind(Path).parse("~no-such-user-here/kv.json")


@pytest.mark.parametrize("text", ["a\nb", "a\x00b", "\x1b[2J", "a\x7f", "a\u2028b", "a\x85b", "\udc80"])
def test_a_value_must_not_contain_control_characters(text: str) -> None:
    for kind in (ValueKind(str), ValueKind(Path), ValueKind(Secret)):
        with pytest.raises(SettingsError, match="must not contain control characters"):
            kind.parse(text)


def test_empty_text_unsets_what_is_optional_and_is_refused_elsewhere() -> None:
    assert ValueKind(Path, optional=True).parse("") is None
    with pytest.raises(SettingsError, match="the value is empty, expected text"):
        ValueKind(str).parse("")


def test_a_type_hint_gives_the_kind() -> None:
    assert ValueKind.of(Path | None, None, None) == ValueKind(Path, optional=True)
    assert ValueKind.of(int, 1, None) == ValueKind(int, minimum=1)


def test_a_secret_shows_only_when_revealed() -> None:
    secret = ValueKind(Secret).parse("hunter2")
    assert isinstance(secret, Secret)
    assert secret == Secret("hunter2")
    assert secret.reveal() == "hunter2"
    assert "hunter2" not in f"{secret} {secret!r} {[secret]}"


@given(st.integers(-(2**63) + 1, 2**63 - 1) | st.booleans() | st.sampled_from(Flush) | st.integers(0, 10**9).map(float))
def test_what_is_written_as_text_is_read_back(value: object) -> None:
    assert ValueKind(type(value)).parse(to_text(value)) == value


@given(st.text())
def test_any_text_gives_a_value_or_a_settings_error(text: str) -> None:
    for kind in (PORT, SECONDS, ValueKind(bool), ValueKind(Flush), ValueKind(str), ValueKind(Path)):
        with suppress(SettingsError):
            assert isinstance(kind.parse(text), kind.type)
