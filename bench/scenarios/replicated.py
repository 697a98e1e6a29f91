"""What the scenarios with masters and slaves share: setups of roles, and the wait until the slaves have everything."""

from bench.load.plan import Kind
from bench.log_ends import LogEnd
from bench.outcome import OURS
from bench.scenarios.loads import load, warm_up
from bench.scenarios.scenario import Effort
from bench.systems.system import Flush, Running, Setup, System
from interop.processes import wait_until

ALONE = "alone"
ASYNC_MASTER, SYNC_MASTER = "ASYNC_MASTER", "SYNC_MASTER"
PAIRS = {
    ALONE: ("", 0),
    "ASYNC_MASTER, 1 slave": (ASYNC_MASTER, 1),
    "ASYNC_MASTER, 2 slaves": (ASYNC_MASTER, 2),
    "SYNC_MASTER, 1 slave": (SYNC_MASTER, 1),
    "SYNC_MASTER, 2 slaves": (SYNC_MASTER, 2),
}
"""brokerRole and number of slaves."""
APACHE_KEY = "apache"
CAUGHT_UP_S = 60.0
INTERPRETED_SHARE = 0.25
"""Of the warm-up, for Ariane: nothing is compiled there while it runs."""


def setups_of(labels: tuple[str, ...], flush: Flush = Flush.ASYNC) -> dict[str, Setup]:
    return {label: Setup(flush=flush, role=PAIRS[label][0], slaves=PAIRS[label][1]) for label in labels}


def is_pair_at_most(system: System, label: str) -> bool:
    """Apache with one slave: the memory of a machine with two cores does not hold more heaps."""
    return not system.key.startswith(APACHE_KEY) or PAIRS[label][1] < 2


class Logs:
    """Of a master and its slaves."""

    def __init__(self, running: Running) -> None:
        assert running.log is not None
        self._running = running
        self.master = LogEnd(running.log)
        self.slaves = [LogEnd(slave.log) for slave in running.slaves]

    def are_equal(self) -> bool:
        end = self.master.read()
        return all(slave.read() == end for slave in self.slaves)

    def await_equal(self) -> None:
        """After a stop of all processes their connection may have to be made again: a message goes through first."""
        name = self._running.name
        if self.slaves:
            wait_until(self._has_accepted, f"{name}: a message that a slave has, too", CAUGHT_UP_S)
            wait_until(self.are_equal, f"{name}: slaves that have all that their master has", CAUGHT_UP_S)

    def _has_accepted(self) -> bool:
        sent = load(self._running, Kind.SEND, connections=1, in_flight=1, body_bytes=1024, requests=1)
        return not sent.refused


def warm(running: Running, effort: Effort) -> None:
    warm_up(running, effort, share=INTERPRETED_SHARE if running.name == OURS else 1.0)
