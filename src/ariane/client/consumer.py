"""What all consumers share: a group, a client instance, and a life from `start()` to `close()`."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Generic, Self, TypeVar

from ariane.client.instance import Instance
from ariane.client.lifetime import Lifetime
from ariane.client.settings import ClientSettings, settings_for
from ariane.clock import Clock
from ariane.errors import ClientError
from ariane.model.ids import group_fault

R = TypeVar("R")


class Consumer(ABC, Generic[R]):
    """`R` holds the parts of a consumer that is open."""

    def __init__(
        self,
        nameservers: str | Iterable[str] | None,
        group: str,
        settings: ClientSettings | None,
        clock: Clock | None,
    ) -> None:
        fault = group_fault(group)
        if fault is not None:
            raise ClientError(f"cannot consume: {fault}")
        self.group = group
        self.client_settings = settings_for(nameservers, settings)
        self._clock = clock
        self._lifetime = Lifetime(f"consumer of group {group}", self._open)

    async def start(self) -> None:
        """Topics and brokers that are not there yet are waited for, with a line in the log."""
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

    @property
    def client_id(self) -> str:
        return self._running[0].client_id

    @property
    def _running(self) -> tuple[Instance, R]:
        """ClientClosed unless it is open."""
        return self._lifetime.value

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[tuple[Instance, R]]:
        async with Instance.open(self.client_settings, clock=self._clock) as instance:
            async with self._opened(instance) as parts:
                yield instance, parts

    @abstractmethod
    def _opened(self, instance: Instance) -> AbstractAsyncContextManager[R]:
        """Builds the parts on `instance` and keeps them running."""
