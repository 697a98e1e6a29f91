"""Apache's nameserver and brokers, for tests that compare with the original. They take seconds to start and need Java,
so `make test` skips them; ARIANE_INTEROP=1 enables them."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from interop.apache import BROKER_PORT_OFFSETS, BrokerPlan, start_broker, start_nameserver
from interop.processes import LOOPBACK, free_port

needs_apache = pytest.mark.skipif(
    os.environ.get("ARIANE_INTEROP") != "1", reason="set ARIANE_INTEROP=1: it needs Java and Apache's jars"
)
CLUSTER = "ApacheCluster"
SETTINGS = {"transactionTimeOut": "1000", "transactionCheckInterval": "1000", "traceTopicEnable": "true"}


@dataclass(frozen=True)
class Apache:
    nameserver: str
    brokers: dict[str, str]
    """Addresses by name."""


@contextlib.contextmanager
def apache(home: Path, *, brokers: int = 1, **settings: str) -> Iterator[Apache]:
    """A nameserver and brokers named broker-0, broker-1, ... while the block runs."""
    nameserver = f"{LOOPBACK}:{free_port()}"
    addresses: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(start_nameserver(int(nameserver.rpartition(":")[2]), home / "namesrv"))
        for number in range(brokers):
            plan = BrokerPlan(
                nameserver=nameserver,
                port=free_port(BROKER_PORT_OFFSETS),
                settings={**SETTINGS, **settings},
                cluster=CLUSTER,
                name=f"broker-{number}",
            )
            stack.enter_context(start_broker(plan, home / plan.name))
            addresses[plan.name] = plan.address
        yield Apache(nameserver, addresses)
