"""Fakes that ship: what Ariane's own tests use, for tests of programs built on it.

    def test_an_order_is_paid(ariane_broker):           # pytest finds the fixture by itself
        pay(ariane_broker.namesrv)
        (message,) = ariane_broker.wait_for_messages("orders", 1)

Names are imported when they are used: pytest loads this package into every session for its plugin, and a session that
never asks for a broker shall not pay for one.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ariane.testing.broker import BrokerForTests, running_broker
    from ariane.testing.clock import FakeClock

__all__ = ["BrokerForTests", "FakeClock", "running_broker"]

_HOMES = {
    "BrokerForTests": "broker",
    "running_broker": "broker",
    "FakeClock": "clock",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
