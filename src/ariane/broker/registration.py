"""Tells every nameserver that this broker lives and which topics it has.

Each nameserver has a job of its own, so one that is down or slow holds up no other. A registration is due at the start,
every 30 s, when a topic has changed, and when the connection was lost, for a nameserver drops a broker with its
connection. Changes that come while one is under way are told together by the next.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec.structs import replace

from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import Topics
from ariane.clock import Clock
from ariane.errors import ArianeError
from ariane.lifecycle import Backoff, Job, TaskSet, background, every
from ariane.model.topic import DataVersion, Permission, TopicConfig
from ariane.rpc.caller import Caller
from ariane.rpc.dispatcher import Dispatcher
from ariane.rpc.handlers import HandlerTable
from ariane.transport.connection import Connection
from ariane.transport.pool import Pool
from ariane.wire.registration import RegistrationBody, encode_registration
from ariane.wire.requests.brokers import QueryDataVersion, RegisterBroker, UnregisterBroker

log = logging.getLogger(__name__)

_UNREGISTER_TIMEOUT_S = 1.0  # a stop must not wait for a nameserver that is gone
_RETRY_LONGEST_S = 5.0


@dataclass(eq=False, slots=True)
class _Nameserver:
    address: str
    due: asyncio.Event = field(default_factory=asyncio.Event)
    tried: asyncio.Event = field(default_factory=asyncio.Event)
    backoff: Backoff = field(default_factory=partial(Backoff, longest_s=_RETRY_LONGEST_S))
    connection: Connection | None = None
    is_registered: bool = False
    is_faulty: bool = False
    """Its fault was told: once, not with every attempt."""


class Registration:
    """Made by `open`, which registers first and unregisters at its end."""

    def __init__(self, settings: BrokerSettings, topics: Topics, pool: Pool, clock: Clock) -> None:
        self._settings = settings
        self._topics = topics
        self._pool = pool
        self._caller = Caller(pool)
        self._clock = clock
        self._nameservers = [_Nameserver(address) for address in settings.nameservers]
        self._encoded: tuple[DataVersion, int, bytes, int] | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: BrokerSettings, topics: Topics, clock: Clock) -> AsyncIterator["Registration"]:
        """Begins when each nameserver has been tried once: clients find the topics of a broker that is ready."""
        nobody_asks = Dispatcher(HandlerTable.of()).receive
        async with Pool.open(settings.transport, clock, nobody_asks) as pool:
            registration = cls(settings, topics, pool, clock)
            topics.on_change(lambda _: registration.make_due())
            async with background(*registration._jobs()):
                registration.make_due()
                for nameserver in registration._nameservers:
                    await nameserver.tried.wait()
                try:
                    yield registration
                finally:
                    await registration._unregister_all()

    def make_due(self) -> None:
        for nameserver in self._nameservers:
            nameserver.due.set()

    @property
    def registered(self) -> list[str]:
        """The nameservers that know this broker now."""
        return [nameserver.address for nameserver in self._nameservers if nameserver.is_registered]

    def _jobs(self) -> list[Job]:
        period_s = self._settings.register_interval_s
        keepers: list[Job] = [partial(self._keep_registered, nameserver) for nameserver in self._nameservers]
        return [*keepers, partial(every, self._clock, period_s, self.make_due, period_s)] if keepers else []

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
            self._note_fault(nameserver, error)
            return False
        finally:
            nameserver.tried.set()
        nameserver.backoff.reset()
        return True

    # --- one registration -------------------------------------------------------------------------------------------

    async def _register(self, nameserver: _Nameserver) -> None:
        if nameserver.is_registered and not self._settings.force_register and not await self._is_news(nameserver):
            return
        body, crc = self._body()
        ask = RegisterBroker(
            **self._identity(),
            compressed=self._settings.compressed_register,
            body_crc32=crc,
            body=body,
        )
        answer = await self._caller.call(nameserver.address, ask, self._settings.register_timeout_s)
        await self._note_success(nameserver)
        if answer.body is not None and self._leads(nameserver):
            self._topics.follow_order_confs(answer.body.table)

    async def _is_news(self, nameserver: _Nameserver) -> bool:
        """Also a sign of life, which is all that a nameserver with our version needs."""
        ask = QueryDataVersion(**self._identity(), body=self._topics.version)
        return (await self._caller.call(nameserver.address, ask, self._settings.register_timeout_s)).changed

    def _leads(self, nameserver: _Nameserver) -> bool:
        """Of several that disagree on ordered topics, the first that answers decides: else flags would flap."""
        return nameserver is next(one for one in self._nameservers if one.is_registered)

    def _body(self) -> tuple[bytes, int]:
        version, permission = self._topics.version, self._settings.permission
        if self._encoded is None or self._encoded[:2] != (version, permission):
            table = RegistrationBody(data_version=version, topics=_permitted(self._topics.all(), permission))
            self._encoded = (version, permission, *encode_registration(table, self._settings.compressed_register))
        return self._encoded[2:]

    def _identity(self) -> dict[str, Any]:
        settings = self._settings
        return {
            "broker_name": settings.name,
            "broker_addr": str(settings.advertised),
            "cluster_name": settings.cluster,
            "broker_id": settings.broker_id,
        }

    # --- what became of it ------------------------------------------------------------------------------------------

    async def _note_success(self, nameserver: _Nameserver) -> None:
        if not nameserver.is_registered:
            log.info("registered", extra={"nameserver": nameserver.address, "as": str(self._settings.advertised)})
        nameserver.is_registered, nameserver.is_faulty = True, False
        connection = await self._pool.connection(nameserver.address)
        if connection is not nameserver.connection:
            nameserver.connection = connection
            connection.on_close(partial(self._lost, nameserver))

    def _note_fault(self, nameserver: _Nameserver, error: ArianeError) -> None:
        nameserver.is_registered = False
        if not nameserver.is_faulty:
            nameserver.is_faulty = True
            log.warning(
                "not registered: tried again until it works",
                extra={"nameserver": nameserver.address, "reason": str(error)},
            )

    def _lost(self, nameserver: _Nameserver) -> None:
        nameserver.is_registered = False
        nameserver.connection = None
        nameserver.due.set()

    async def _unregister_all(self) -> None:
        leaving = TaskSet()
        for nameserver in self._nameservers:
            if nameserver.is_registered:
                leaving.spawn(self._unregister(nameserver))
        await leaving.wait()

    async def _unregister(self, nameserver: _Nameserver) -> None:
        try:
            await self._caller.call(nameserver.address, UnregisterBroker(**self._identity()), _UNREGISTER_TIMEOUT_S)
        except ArianeError as error:
            log.warning("not unregistered", extra={"nameserver": nameserver.address, "reason": str(error)})


def _permitted(topics: Mapping[str, TopicConfig], permission: int) -> dict[str, TopicConfig]:
    """The topics as this broker lets them be used: one that is read-only has no topic that can be written."""
    if permission & Permission.READ_WRITE == Permission.READ_WRITE:
        return dict(topics)
    return {name: replace(config, perm=config.perm & permission) for name, config in topics.items()}
