"""Fakes that ship: what Ariane's own tests use, for tests of programs built on it."""

from ariane.testing.clock import FakeClock
from ariane.testing.disk import PowerCut, SimulatedDisk

__all__ = ["FakeClock", "PowerCut", "SimulatedDisk"]
