"""Every scenario, in the order of the report."""

from bench.scenarios.batches import Batches
from bench.scenarios.connections import Connections
from bench.scenarios.delayed import Delayed
from bench.scenarios.idle_consumers import IdleConsumers
from bench.scenarios.java_loads import java_scenarios
from bench.scenarios.latency import Latency
from bench.scenarios.offered_load import OfferedLoad
from bench.scenarios.pulls import Pulls
from bench.scenarios.push import Push
from bench.scenarios.python_clients import PythonClients
from bench.scenarios.replicated_catch_up import ReplicatedCatchUp
from bench.scenarios.replicated_lag import ReplicatedLag
from bench.scenarios.replicated_sends import ReplicatedLatency, ReplicatedSends
from bench.scenarios.scenario import Scenario
from bench.scenarios.sends import Sends
from bench.scenarios.start import Start
from bench.scenarios.topics import Topics
from bench.systems.system import Flush


def all_scenarios() -> list[Scenario]:
    return [
        *java_scenarios(),
        Sends(Flush.ASYNC),
        Sends(Flush.SYNC),
        OfferedLoad(),
        Latency(),
        Batches(),
        Pulls(),
        Push(),
        Topics(),
        Connections(),
        IdleConsumers(),
        Delayed(),
        Start(),
        PythonClients(),
        *replication_scenarios(),
    ]


def replication_scenarios() -> list[Scenario]:
    return [
        ReplicatedSends(Flush.ASYNC),
        ReplicatedSends(Flush.SYNC),
        ReplicatedLatency(),
        ReplicatedLag(),
        ReplicatedCatchUp(),
    ]
