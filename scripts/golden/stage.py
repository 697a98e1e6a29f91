"""The environment of one recording: real servers behind recording proxies, with their ports and files."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from interop.apache import (
    BROKER_PORT_OFFSETS,
    CLIENT_VERSION,
    SERVER_VERSION,
    BrokerPlan,
    Serialisation,
    start_broker,
    start_nameserver,
)
from interop.other_clients import GO_CLIENT_VERSION, NODE_CLIENT_VERSION
from interop.processes import LOOPBACK, free_port
from scripts.golden.frames import Header, Recorded
from scripts.golden.proxy import RecordingProxy, unchanged

REGISTRATIONS = {103, 104, 322}
# Clients by (language, version): the Node client claims to be an old Java client.
CLIENT_NAMES = {
    ("JAVA", 409): f"java-{CLIENT_VERSION}",
    ("JAVA", 407): f"broker-{SERVER_VERSION}",
    ("GO", 317): f"go-{GO_CLIENT_VERSION}",
    ("JAVA", 121): f"ali-ons-{NODE_CLIENT_VERSION}",
}
MASTER_SETTINGS = {
    "aclEnable": "true",
    # Check pending transactions soon, and register at the nameserver as often as is allowed.
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "2000",
    "registerNameServerPeriod": "10000",
}
ACCESS_RULES = f'globalWhiteRemoteAddresses: ["{LOOPBACK}"]\naccounts: []\n'


@dataclass(frozen=True, slots=True)
class Stage:
    """The ports and files of one recording; clients and brokers only know the two proxies."""

    serialisation: Serialisation
    work: Path
    recorded: list[Recorded]
    nameserver_port: int
    nameserver_proxy_port: int
    broker_port: int
    broker_proxy_port: int
    slave_port: int

    @property
    def nameserver(self) -> str:
        return f"{LOOPBACK}:{self.nameserver_proxy_port}"

    @property
    def broker(self) -> str:
        return f"{LOOPBACK}:{self.broker_proxy_port}"

    def announce_proxy(self, header: Header, frame: bytes) -> bytes:
        """Make the broker register the proxy's port as its own, so that every route uses the proxy.

        Ports have five digits, so no length changes; the recorded copy is the original.
        """
        if header.code not in REGISTRATIONS:
            return frame
        return frame.replace(f"{LOOPBACK}:{self.broker_port}".encode(), self.broker.encode())

    def proxy(self, kind: str) -> RecordingProxy:
        is_nameserver = kind == "namesrv"
        ports = {"namesrv": self.nameserver_port, "broker": self.broker_port, "vip": self.broker_port - 2}
        return RecordingProxy(
            peer="namesrv" if is_nameserver else "broker",
            server_name=f"apache-{SERVER_VERSION}",
            upstream_port=ports[kind],
            client_names=CLIENT_NAMES,
            rewrite=self.announce_proxy if is_nameserver else unchanged,
            recorded=self.recorded,
        )

    @contextlib.asynccontextmanager
    async def proxies(self) -> AsyncIterator[None]:
        async with (
            self.proxy("namesrv").listening(self.nameserver_proxy_port),
            self.proxy("broker").listening(self.broker_proxy_port),
            self.proxy("vip").listening(self.broker_proxy_port - 2),
        ):
            yield

    @contextlib.contextmanager
    def servers(self) -> Iterator[None]:
        """The nameserver and the master broker."""
        home = self.work / "broker"
        (home / "conf").mkdir(parents=True)
        (home / "conf" / "plain_acl.yml").write_text(ACCESS_RULES)
        master = BrokerPlan(nameserver=self.nameserver, port=self.broker_port, settings=MASTER_SETTINGS)
        with (
            start_nameserver(self.nameserver_port, self.work / "namesrv", self.serialisation),
            start_broker(master, home, self.serialisation),
        ):
            yield


def set_stage(serialisation: Serialisation, work: Path, recorded: list[Recorded]) -> Stage:
    return Stage(
        serialisation,
        work,
        recorded,
        nameserver_port=free_port(),
        nameserver_proxy_port=free_port(),
        broker_port=free_port(BROKER_PORT_OFFSETS),
        broker_proxy_port=free_port((-2, 0)),
        slave_port=free_port(BROKER_PORT_OFFSETS),
    )
