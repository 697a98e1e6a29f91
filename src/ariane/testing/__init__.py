"""Test tools for programs that use Ariane: a broker inside the test process, and a fake clock.

    def test_an_order_is_paid(ariane_broker):           # the pytest plugin provides the fixture
        pay(ariane_broker.namesrv)
        (message,) = ariane_broker.wait_for_messages("orders", 1)

Names are imported on first use: pytest loads this package into every session for its plugin, and a session that does
not use a broker should not pay for the import.
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
