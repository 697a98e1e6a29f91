"""The admin client: everything that mqadmin does, as methods.

async with Admin("127.0.0.1:9876") as admin:
    await admin.topics.create("orders", queues=8)
    lag = await admin.groups.lag("billing")
"""

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ariane.client.admin.acl import AccountAdmin
from ariane.client.admin.cluster import BrokerAdmin, ClusterAdmin, NameserverAdmin
from ariane.client.admin.groups import ClientAdmin, GroupAdmin
from ariane.client.admin.messages import MessageAdmin, QueueAdmin
from ariane.client.admin.offsets import OffsetAdmin
from ariane.client.admin.requests import AdminRequests
from ariane.client.admin.topics import TopicAdmin
from ariane.client.core.instance import Instance
from ariane.client.core.lifecycle import Lifetime
from ariane.client.settings import ClientSettings, settings_for
from ariane.clock import Clock

_TIMEOUT_S = 5.0  # as in Apache's tool

_AREAS = {
    "topics": TopicAdmin,
    "groups": GroupAdmin,
    "offsets": OffsetAdmin,
    "queues": QueueAdmin,
    "messages": MessageAdmin,
    "clients": ClientAdmin,
    "cluster": ClusterAdmin,
    "brokers": BrokerAdmin,
    "nameservers": NameserverAdmin,
    "accounts": AccountAdmin,
}


class Admin:
    """One attribute for each area of administration.

    Requests go to all brokers concerned concurrently. An incomplete result says so (`failures`, `is_complete`); a
    change that was not made everywhere raises an error that says where it was made.
    """

    topics: TopicAdmin
    groups: GroupAdmin
    offsets: OffsetAdmin
    queues: QueueAdmin
    messages: MessageAdmin
    clients: ClientAdmin
    cluster: ClusterAdmin
    brokers: BrokerAdmin
    nameservers: NameserverAdmin
    accounts: AccountAdmin

    def __init__(
        self,
        nameservers: str | Iterable[str] | None = None,
        *,
        timeout_s: float = _TIMEOUT_S,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.client_settings = settings_for(nameservers, settings)
        self._clock = clock
        self._lifetime = Lifetime("admin", self._open)
        self._requests = AdminRequests(self._instance, timeout_s)

    if not TYPE_CHECKING:  # the annotations above are the attributes there are

        def __getattr__(self, name: str) -> object:
            """An area is created when it is first used: most programs use one or two."""
            if name not in _AREAS:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            area = _AREAS[name](self._requests)
            setattr(self, name, area)
            return area

    async def start(self) -> None:
        """Opens no connection yet."""
        await self._lifetime.start()

    async def close(self) -> None:
        await self._lifetime.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _open(self) -> AbstractAsyncContextManager[Instance]:
        return Instance.open(self.client_settings, clock=self._clock)

    def _instance(self) -> Instance:
        return self._lifetime.value
