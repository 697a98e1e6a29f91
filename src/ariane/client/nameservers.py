"""The nameservers as one: whichever answers is used until it fails."""

import logging
import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

from ariane.errors import NoRoute, RequestFailed, TransportError
from ariane.wire.codes import ResponseCode
from ariane.wire.fields import Answer, Request

log = logging.getLogger(__name__)

A = TypeVar("A", bound=Answer)


class Calls(Protocol):
    async def call(self, address: str, request: Request[A], timeout_s: float | None = None) -> A: ...


class Nameservers:
    def __init__(self, addresses: Sequence[str], calls: Calls, timeout_s: float) -> None:
        # In a random order, so that many clients with one list do not all lean on its first entry.
        self._addresses = random.sample(addresses, len(addresses))
        self._calls = calls
        self._timeout_s = timeout_s
        self.names = ";".join(addresses)

    async def ask(self, request: Request[A]) -> A:
        """The answer of the first that gives one; RequestFailed is an answer. NoRoute when all are silent."""
        silent: list[str] = []
        for address in list(self._addresses):
            try:
                return await self._calls.call(address, request, self._timeout_s)
            except TransportError as error:
                silent.append(f"{address}: {error}")
                self._put_last(address)
            except RequestFailed as error:
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                raise NoRoute(
                    f"{address} is no nameserver (the port of a broker?): it does not know {type(request).__name__}; "
                    f"correct the list of nameservers ({self.names})"
                ) from error
        log.warning("no nameserver answers", extra={"nameservers": self.names, "reason": "; ".join(silent)})
        raise NoRoute(
            f"no nameserver answers ({'; '.join(silent)}): start one, for example with `ariane up`, "
            f"or correct the list of nameservers ({self.names})"
        )

    def _put_last(self, address: str) -> None:
        if address == self._addresses[0]:
            self._addresses.append(self._addresses.pop(0))
