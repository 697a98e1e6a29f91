"""Changing settings at run time: only reloadable ones, and all changes or none."""

from dataclasses import dataclass, field

import pytest

from ariane.errors import SettingsError
from ariane.settings import Key, Secret, change, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    low: int = setting(1, key="low", doc="Below high.", reloadable=True)
    high: int = setting(9, key="high", doc="Above low.", reloadable=True)

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise SettingsError("low is above high")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    fixed: str = setting("a", key="fixed", doc="Never changes.")
    wait_s: float = setting(1.0, key=Key("waitMills", per_unit=1000), minimum=0.1, doc="A time.", reloadable=True)
    password: Secret | None = setting(None, key="password", doc="A secret.", reloadable=True)
    inner: Inner = field(default_factory=Inner)


def error_of(settings: Outer, **updates: str) -> str:
    before = (settings.fixed, settings.wait_s, settings.password, settings.inner.low, settings.inner.high)
    with pytest.raises(SettingsError) as caught:
        change(settings, updates)
    assert (settings.fixed, settings.wait_s, settings.password, settings.inner.low, settings.inner.high) == before
    return str(caught.value)


def test_a_change_is_seen_through_every_reference() -> None:
    settings = Outer()
    inner = settings.inner
    assert change(settings, {"waitMills": "2500", "low": "5"}) == ["wait_s", "inner.low"]
    assert (settings.wait_s, inner.low) == (2.5, 5)


def test_all_or_none_and_every_problem_is_reported() -> None:
    message = error_of(Outer(), waitMills="2000", fixed="b", nothing="1", low="x", password="p")
    assert message.count(";") >= 3
    for word in ("fixed: ", "nothing: there is no such setting", "low: expected", "password: a secret"):
        assert word in message


def test_rules_between_settings_are_checked_with_the_new_values() -> None:
    assert error_of(Outer(), low="10") == "low is above high"
    settings = Outer()
    change(settings, {"low": "10", "high": "20"})
    assert (settings.inner.low, settings.inner.high) == (10, 20)


def test_setting_the_current_value_changes_nothing() -> None:
    assert change(Outer(), {"fixed": "a", "waitMills": "1000"}) == []


def test_the_range_is_checked() -> None:
    assert "waitMills" in error_of(Outer(), waitMills="1")
