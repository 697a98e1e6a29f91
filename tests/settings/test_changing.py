"""Settings that change while they are used: an allow-list, all or none."""

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


def fault(settings: Outer, **wanted: str) -> str:
    before = (settings.fixed, settings.wait_s, settings.password, settings.inner.low, settings.inner.high)
    with pytest.raises(SettingsError) as caught:
        change(settings, wanted)
    assert (settings.fixed, settings.wait_s, settings.password, settings.inner.low, settings.inner.high) == before
    return str(caught.value)


def test_a_change_is_seen_through_every_reference() -> None:
    settings = Outer()
    inner = settings.inner
    assert change(settings, {"waitMills": "2500", "low": "5"}) == ["wait_s", "inner.low"]
    assert (settings.wait_s, inner.low) == (2.5, 5)


def test_all_or_none_and_every_fault_is_told() -> None:
    told = fault(Outer(), waitMills="2000", fixed="b", nothing="1", low="x", password="p")
    assert told.count(";") >= 3
    for word in ("fixed: ", "nothing: there is no such setting", "low: expected", "password: a secret"):
        assert word in told


def test_what_settings_demand_of_each_other_holds_for_the_new_values() -> None:
    assert fault(Outer(), low="10") == "low is above high"
    settings = Outer()
    change(settings, {"low": "10", "high": "20"})
    assert (settings.inner.low, settings.inner.high) == (10, 20)


def test_a_value_that_is_in_force_is_no_change() -> None:
    assert change(Outer(), {"fixed": "a", "waitMills": "1000"}) == []


def test_the_range_counts() -> None:
    assert "waitMills" in fault(Outer(), waitMills="1")
