"""Starts a nameserver and a broker of one vendor; all vendors get the same configuration file."""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from ariane.client.settings import ClientSettings
from interop.apache import BROKER_PORT_OFFSETS, BrokerPlan, start_broker, start_nameserver
from interop.broker.security import Security, client_settings
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
    # Apache's brokers reject requests that waited 200 ms, which a cold JVM exceeds for its first messages. The sender
    # of a one-way message does not notice the rejection.
    "waitTimeMillsInSendQueue": "10000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    name: str
    nameserver: str
    plan: BrokerPlan
    delivers_at_a_time: bool
    is_ours: bool
    security: Security | None = None

    @property
    def answers_queries(self) -> bool:
        """Apache's broker writes query results around the TLS layer, which breaks the connection."""
        return self.is_ours or self.security is None

    @property
    def client_settings(self) -> ClientSettings:
        return client_settings(self.nameserver, self.security)


@contextlib.contextmanager
def our_servers(home: Path, security: Security | None = None) -> Iterator[Servers]:
    home.mkdir(exist_ok=True)
    nameserver = f"{LOOPBACK}:{free_port()}"
    plan = _plan(nameserver, _broker_lines(security))
    config = home / "broker.conf"
    config.write_text(plan.properties(home))
    nameserver_config = home / "namesrv.conf"
    # Both TLS and plain connections: the broker connects to the nameserver without TLS.
    lines = security.server_lines("permissive") if security else {}
    nameserver_config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    listen = ["namesrv", "-c", str(nameserver_config), "--listen", nameserver]
    with (
        running([*COMMAND, *listen], ready="ready", log=home / "namesrv.log"),
        running([*COMMAND, "broker", "-c", str(config)], ready="ready", log=home / "broker.log"),
    ):
        yield Servers(
            name="Ariane", nameserver=nameserver, plan=plan, delivers_at_a_time=True, is_ours=True, security=security
        )


@contextlib.contextmanager
def our_secured_servers(home: Path) -> Iterator[Servers]:
    """Requests must be signed, and the broker accepts only TLS connections."""
    with our_servers(home, Security.made(home / "security")) as servers:
        yield replace(servers, name="Ariane, with ACL and TLS")


@contextlib.contextmanager
def apache_servers(home: Path, version: str, security: Security | None = None) -> Iterator[Servers]:
    port = free_port()
    plan = _plan(f"{LOOPBACK}:{port}", {"aclEnable": "true"} if security else {})
    properties = security.apache_server("permissive") if security else {}
    if security:
        security.write_accounts(home / "broker")
    with (
        start_nameserver(port, home / "namesrv", version=version, properties=properties),
        start_broker(
            plan,
            home / "broker",
            version=version,
            properties=security.apache_server("enforcing") if security else {},
        ),
    ):
        yield Servers(
            name=f"Apache {version}",
            nameserver=plan.nameserver,
            plan=plan,
            delivers_at_a_time=version.startswith("5"),
            is_ours=False,
            security=security,
        )


@contextlib.contextmanager
def secured_apache_servers(home: Path, version: str) -> Iterator[Servers]:
    with apache_servers(home, version, Security.made(home / "security")) as servers:
        yield replace(servers, name=f"{servers.name}, with ACL and TLS")


def _broker_lines(security: Security | None) -> dict[str, str]:
    return {**security.server_lines("enforcing"), **security.broker_lines()} if security else {}


def _plan(nameserver: str, more: Mapping[str, str] = MappingProxyType({})) -> BrokerPlan:
    return BrokerPlan(
        nameserver=nameserver,
        port=free_port(BROKER_PORT_OFFSETS),
        settings={**SETTINGS, **more},
        cluster="InteropCluster",
        name="interop-a",
    )
