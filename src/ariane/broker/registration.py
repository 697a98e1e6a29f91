"""Registers the broker and its topics with every nameserver, and resolves the address that it advertises.

Each nameserver has its own background job, so one that is down or slow does not delay the others. A registration is due
at the start, every 30 s, after a topic change, and after the connection was lost, because a nameserver removes a broker
whose connection closes. Changes during a registration are sent together by the next one. An administrator's change of a
topic is answered when the nameservers have it (`announced`): the next request for its route finds it.

The advertised address is determined if it is not configured, and checked before clients get it. A wrong address is a
common problem of brokers in containers or with several network interfaces: clients get a route and then cannot connect.
What can be detected here is rejected or logged.
"""

import asyncio
import dataclasses
import logging
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from msgspec.structs import replace

from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.clock import Clock
from ariane.errors import ArianeError, SettingsError
from ariane.lifecycle import Backoff, Job, TaskSet, background, every, in_thread
from ariane.model.address import Address
from ariane.model.message import HostPort
from ariane.model.topic import DataVersion, Permission, TopicConfig
from ariane.rpc.caller import Caller
from ariane.rpc.dispatcher import Dispatcher
from ariane.rpc.handlers import HandlerTable
from ariane.rpc.signing import Signer
from ariane.transport.connection import Connection
from ariane.transport.pool import Pool
from ariane.wire.host import encode_host
from ariane.wire.registration import RegistrationBody, encode_registration
from ariane.wire.requests.brokers import QueryDataVersion, RegisterBroker, UnregisterBroker

log = logging.getLogger(__name__)

_UNREGISTER_TIMEOUT_S = 1.0  # a stop must not wait for a nameserver that is gone
_RETRY_LONGEST_S = 5.0


OnMaster = Callable[[str | None, str | None], None]
"""Gets the master's address and that of its replication port; None when the nameserver knows no master."""


@dataclass(eq=False, slots=True)
class _Nameserver:
    address: str
    due: asyncio.Event = field(default_factory=asyncio.Event)
    tried: asyncio.Event = field(default_factory=asyncio.Event)
    attempt_ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Replaced after each attempt, so that each wait is for the end of one attempt."""
    backoff: Backoff = field(default_factory=partial(Backoff, longest_s=_RETRY_LONGEST_S))
    connection: Connection | None = None
    is_registered: bool = False
    is_failing: bool = False
    """The last attempt failed. The first failure is logged, not every attempt."""
    known_change: int = -1
    """The counter of the newest data version that this nameserver has confirmed."""

    def end_attempt(self) -> None:
        self.tried.set()
        self.attempt_ended.set()
        self.attempt_ended = asyncio.Event()

    async def until_known(self, change: int) -> None:
        """Returns when the nameserver has this change, or an attempt to register failed."""
        while self.known_change < change and not self.is_failing:
            await self.attempt_ended.wait()


class Registration:
    """Create it with `open`, which registers first and unregisters at its end."""

    def __init__(self, settings: BrokerSettings, topics: Topics, pool: Pool, clock: Clock) -> None:
        self._settings = settings
        self._topics = topics
        self._pool = pool
        self._caller = Caller(pool, signer=_signer(settings, clock))
        self._clock = clock
        self._nameservers = [_Nameserver(address) for address in settings.nameservers]
        self._encoded: tuple[DataVersion, int, bytes, int] | None = None
        self._on_master: OnMaster | None = None
        self._is_leaving = False

    @classmethod
    @asynccontextmanager
    async def open(
        cls, settings: BrokerSettings, topics: Topics, clock: Clock, on_master: OnMaster | None = None
    ) -> AsyncIterator["Registration"]:
        """Enters the body after one attempt per nameserver, so that clients find the topics of a ready broker.

        `on_master`, of a slave, is called with what a nameserver says about its master.
        """
        no_handlers = Dispatcher(HandlerTable.of()).receive
        async with Pool.open(settings.transport, clock, no_handlers) as pool:
            registration = cls(settings, topics, pool, clock)
            registration._on_master = on_master
            topics.on_change(lambda _: registration.make_due())
            topics.announce_by(registration.announced)
            async with background(*registration._jobs()):
                registration.make_due()
                for nameserver in registration._nameservers:
                    await nameserver.tried.wait()
                try:
                    yield registration
                finally:
                    await registration._unregister_all()
                    registration._give_up_announcing()

    def make_due(self) -> None:
        for nameserver in self._nameservers:
            nameserver.due.set()

    async def announced(self) -> None:
        """Returns when every nameserver that responds has the topics as they are now.

        A nameserver that is down is not waited for, and one that stopped responding only for `announce_timeout_s`.
        """
        change = self._topics.version.counter
        try:
            async with asyncio.timeout(self._settings.announce_timeout_s):
                for nameserver in self._nameservers:
                    await nameserver.until_known(change)
        except TimeoutError:
            missing = [entry.address for entry in self._nameservers if entry.known_change < change]
            log.warning("a topic change is not confirmed yet", extra={"nameservers": ", ".join(missing)})

    def _give_up_announcing(self) -> None:
        """At the end: a change that waits for a nameserver is answered, so that it does not delay the stop."""
        for nameserver in self._nameservers:
            nameserver.is_failing = True
            nameserver.end_attempt()

    @property
    def registered(self) -> list[str]:
        """The nameservers that the broker is registered with now."""
        return [nameserver.address for nameserver in self._nameservers if nameserver.is_registered]

    def _jobs(self) -> list[Job]:
        period_s = self._settings.register_interval_s
        jobs: list[Job] = [partial(self._keep_registered, nameserver) for nameserver in self._nameservers]
        return [*jobs, partial(every, self._clock, period_s, self.make_due, period_s)] if jobs else []

    async def _keep_registered(self, nameserver: _Nameserver) -> None:
        while True:
            await nameserver.due.wait()
            nameserver.due.clear()
            if not await self._try(nameserver):
                nameserver.due.set()
                await self._clock.sleep(nameserver.backoff.next_s())

    async def _try(self, nameserver: _Nameserver) -> bool:
        try:
            await self._register(nameserver)
        except ArianeError as error:
            self._on_failure(nameserver, error)
            return False
        finally:
            nameserver.end_attempt()
        nameserver.backoff.reset()
        return True

    # --- one registration -------------------------------------------------------------------------------------------

    async def _register(self, nameserver: _Nameserver) -> None:
        change = self._topics.version.counter
        may_skip = nameserver.is_registered and not self._settings.force_register and not self._settings.is_slave
        if may_skip and not await self._is_outdated(nameserver):
            nameserver.known_change = change
            return
        change = self._topics.version.counter
        body, crc = await self._body()
        if self._is_leaving:  # a slave that has lost its master asks for it again: behind an unregistration, too
            return
        request = RegisterBroker(
            **self._identity(),
            ha_server_addr=str(self._settings.advertised_replication),
            compressed=self._settings.compressed_register,
            body_crc32=crc,
            body=body,
        )
        response = await self._caller.call(nameserver.address, request, self._settings.register_timeout_s)
        nameserver.known_change = change
        await self._on_success(nameserver)
        if self._on_master is not None and self._is_first_registered(nameserver):
            self._on_master(response.master_addr, response.ha_server_addr)
        if response.body is not None and self._is_first_registered(nameserver):
            self._topics.apply_order_configs(response.body.table)

    async def _is_outdated(self, nameserver: _Nameserver) -> bool:
        """Also serves as a heartbeat: a nameserver that has this data version needs no more."""
        request = QueryDataVersion(**self._identity(), body=self._topics.version)
        return (await self._caller.call(nameserver.address, request, self._settings.register_timeout_s)).changed

    def _is_first_registered(self, nameserver: _Nameserver) -> bool:
        """The first one decides which topics are ordered, and who the master is: if several disagree, it would flap."""
        return nameserver is next(candidate for candidate in self._nameservers if candidate.is_registered)

    async def _body(self) -> tuple[bytes, int]:
        """Encoded by a thread: a hundred thousand topics take a quarter of a second."""
        version, permission = self._topics.version, self._settings.permission
        if self._encoded is None or self._encoded[:2] != (version, permission):
            topics = dict(self._topics.all())
            body, crc = await in_thread(
                lambda: encode_registration(
                    RegistrationBody(data_version=version, topics=_permitted(topics, permission)),
                    self._settings.compressed_register,
                )
            )
            self._encoded = (version, permission, body, crc)
        return self._encoded[2:]

    def _identity(self) -> dict[str, Any]:
        settings = self._settings
        return {
            "broker_name": settings.name,
            "broker_addr": str(settings.advertised),
            "cluster_name": settings.cluster,
            "broker_id": settings.broker_id,
        }

    # --- results ----------------------------------------------------------------------------------------------------

    async def _on_success(self, nameserver: _Nameserver) -> None:
        if not nameserver.is_registered:
            log.info("registered", extra={"nameserver": nameserver.address, "as": str(self._settings.advertised)})
        nameserver.is_registered, nameserver.is_failing = True, False
        connection = await self._pool.connection(nameserver.address)
        if connection is not nameserver.connection:
            nameserver.connection = connection
            connection.on_close(partial(self._lost, nameserver))

    def _on_failure(self, nameserver: _Nameserver, error: ArianeError) -> None:
        nameserver.is_registered = False
        if not nameserver.is_failing:
            nameserver.is_failing = True
            log.warning(
                "registration failed, retrying",
                extra={"nameserver": nameserver.address, "reason": str(error)},
            )

    def _lost(self, nameserver: _Nameserver) -> None:
        nameserver.is_registered = False
        nameserver.connection = None
        nameserver.known_change = -1  # it may have restarted, and then it has no topics
        nameserver.due.set()

    async def _unregister_all(self) -> None:
        self._is_leaving = True
        leaving = TaskSet()
        for nameserver in self._nameservers:
            if nameserver.is_registered:
                leaving.spawn(self._unregister(nameserver))
        await leaving.wait()

    async def _unregister(self, nameserver: _Nameserver) -> None:
        try:
            await self._caller.call(nameserver.address, UnregisterBroker(**self._identity()), _UNREGISTER_TIMEOUT_S)
        except ArianeError as error:
            log.warning("unregistration failed", extra={"nameserver": nameserver.address, "reason": str(error)})


def _signer(settings: BrokerSettings, clock: Clock) -> Signer | None:
    if settings.namesrv_access_key is None or settings.namesrv_secret_key is None:
        return None
    return Signer(settings.namesrv_access_key, settings.namesrv_secret_key, clock.now_ms)


def _permitted(topics: dict[str, TopicConfig], permission: int) -> dict[str, TopicConfig]:
    """The topics with the broker's permission applied: a read-only broker has no writable topics."""
    if permission & Permission.READ_WRITE == Permission.READ_WRITE:
        return topics
    return {name: replace(config, perm=config.perm & permission) for name, config in topics.items()}


# --- advertised address ---

# Must contain a letter: operating systems interpret an incomplete address of digits and dots in different ways.
_HOST_NAME = re.compile(r"(?=[0-9._-]*[A-Za-z])[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?")
# An address reserved for documentation, to look up the default route. Nothing is sent to it.
_ROUTE_PROBE_TARGET = Address("192.0.2.1", 9)
_HINT = "set brokerIP1 in the settings file, or --advertise HOST, to an address of this machine that clients reach"

IpAddress = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class ResolvedAddress:
    """Settings with the actual port and advertised address, and the host part of message ids."""

    settings: BrokerSettings
    store_host: bytes


async def resolve_advertised_address(settings: BrokerSettings, port: int) -> ResolvedAddress:
    """Completes `settings` for a broker that listens on `port`. SettingsError if no address can be determined."""
    host = settings.advertised_host or await _choose_host(settings)
    address = await _resolve(host)
    if address.is_unspecified or address.is_multicast:
        raise SettingsError(f"brokerIP1 = {host} is not an address that clients can connect to: {_HINT}")
    resolved = dataclasses.replace(settings, port=port, advertised_host=host)
    _warn_if_unreachable(resolved, address)
    return ResolvedAddress(resolved, encode_host(HostPort(address, resolved.advertised.port)))


async def _choose_host(settings: BrokerSettings) -> str:
    if not _is_every_address(settings.host):
        return settings.host
    targets = [Address.parse(text) for text in settings.nameservers] or [_ROUTE_PROBE_TARGET]
    for target in targets:
        source = await _source_address(target)
        if source is not None:
            return source
    raise SettingsError(
        f"listening on {settings.host}, but no route leads to {' or '.join(map(str, targets))}, so the address "
        f"for clients cannot be determined: {_HINT}"
    )


def _is_every_address(host: str) -> bool:
    try:
        return not host or ip_address(host).is_unspecified
    except ValueError:
        return False


async def _source_address(target: Address) -> str | None:
    """The local address that the route to `target` uses. Connecting a UDP socket only looks up the route."""
    try:
        results = await asyncio.get_running_loop().getaddrinfo(target.host, target.port, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, name = results[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(name)
            source: str = probe.getsockname()[0]
    except OSError:
        return None
    return source


async def _resolve(host: str) -> IpAddress:
    try:
        return ip_address(host)
    except ValueError:
        pass
    try:
        if _HOST_NAME.fullmatch(host) is None:
            raise OSError("not a host name")
        results = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SettingsError(
            f"brokerIP1 = {host[:255]!r} is neither an IP address nor a name that resolves ({error}): {_HINT}"
        ) from error
    addresses = [ip_address(name[0]) for *_, name in results]
    # IPv4 first: C++ and Node clients cannot read message ids that hold an IPv6 address.
    return min(addresses, key=lambda address: address.version)


def _warn_if_unreachable(settings: BrokerSettings, address: IpAddress) -> None:
    fields = {"advertised": str(settings.advertised), "listening": settings.host}
    if address.is_loopback and not all(map(_is_local, settings.nameservers)):
        log.warning("clients on other machines cannot reach the advertised address", extra=fields | {"hint": _HINT})
    elif not address.is_loopback and _is_local(f"{settings.host}:0"):
        log.warning(
            "listening on the loopback address only, but advertising another address to clients",
            extra=fields | {"hint": "listen on every address with bindAddress=0.0.0.0 or --listen 0.0.0.0:PORT"},
        )


def _is_local(address: str) -> bool:
    host = Address.parse(address).host
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
