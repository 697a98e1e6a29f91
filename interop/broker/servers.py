"""A nameserver and a broker of one maker, told by the same configuration file."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from interop.apache import BROKER_PORT_OFFSETS, BrokerPlan, start_broker, start_nameserver
from interop.processes import LOOPBACK, free_port, running

COMMAND = [sys.executable, "-m", "ariane"]
DELAY_LEVEL, DELAY_S = 2, 2.0
SETTINGS = {
    # Retries take level 3 and above: short, so that a message is a dead letter after seconds, not hours.
    "messageDelayLevel": "1s 2s " + "1s " * 16,
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "traceTopicEnable": "true",
    "registerNameServerPeriod": "10000",
    # Apache's brokers drop what has waited 200 ms, which a cold Java machine needs for its first messages; nobody hears
    # of a one-way message that was dropped.
    "waitTimeMillsInSendQueue": "10000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    name: str
    nameserver: str
    plan: BrokerPlan
    delivers_at_a_time: bool
    is_ours: bool


@contextlib.contextmanager
def our_servers(home: Path) -> Iterator[Servers]:
    home.mkdir()
    nameserver = f"{LOOPBACK}:{free_port()}"
    plan = _plan(nameserver)
    config = home / "broker.conf"
    config.write_text(plan.properties(home))
    with (
        running([*COMMAND, "namesrv", "--listen", nameserver], ready="ready", log=home / "namesrv.log"),
        running([*COMMAND, "broker", "-c", str(config)], ready="ready", log=home / "broker.log"),
    ):
        yield Servers(name="Ariane", nameserver=nameserver, plan=plan, delivers_at_a_time=True, is_ours=True)


@contextlib.contextmanager
def apache_servers(home: Path, version: str) -> Iterator[Servers]:
    port = free_port()
    plan = _plan(f"{LOOPBACK}:{port}")
    with (
        start_nameserver(port, home / "namesrv", version=version),
        start_broker(plan, home / "broker", version=version),
    ):
        yield Servers(
            name=f"Apache {version}",
            nameserver=plan.nameserver,
            plan=plan,
            delivers_at_a_time=version.startswith("5"),
            is_ours=False,
        )


def _plan(nameserver: str) -> BrokerPlan:
    return BrokerPlan(
        nameserver=nameserver,
        port=free_port(BROKER_PORT_OFFSETS),
        settings=SETTINGS,
        cluster="InteropCluster",
        name="interop-a",
    )
