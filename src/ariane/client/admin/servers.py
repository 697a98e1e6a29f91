"""Brokers as an administrator names them, and what several servers answered to one question."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from ariane.errors import ArianeError, ClientError
from ariane.model.route import MASTER_ID, BrokerData

S = TypeVar("S", bound="Broker | str")
T = TypeVar("T")
U = TypeVar("U")


class Broker(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One broker process."""

    cluster: str
    name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID

    def __str__(self) -> str:
        return f"{self.name} ({self.address})"


def brokers_of(data: BrokerData, *, slaves: bool = False) -> list[Broker]:
    """The processes behind one broker name: its master, and its slaves if they are wanted."""
    return [
        Broker(cluster=data.cluster, name=data.broker_name, broker_id=broker_id, address=address)
        for broker_id, address in sorted(data.broker_addrs.items())
        if slaves or broker_id == MASTER_ID
    ]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A server that did not do what it was asked, and why."""

    server: str
    error: ArianeError

    def __str__(self) -> str:
        return f"{self.server}: {self.error}"


@dataclass(frozen=True, slots=True)
class PerServer(Generic[S, T]):
    """What each server answered. Those that did not are in `failures`: nobody may take a part for the whole."""

    answers: Mapping[S, T]
    failures: tuple[Failure, ...] = ()

    @property
    def is_complete(self) -> bool:
        return not self.failures

    def mapped(self, look: Callable[[T], U]) -> "PerServer[S, U]":
        """What `look` sees in each answer."""
        return PerServer({server: look(answer) for server, answer in self.answers.items()}, self.failures)

    def some(self, what: str) -> "PerServer[S, T]":
        """Itself, unless no server at all answered: that is an error and not an empty result."""
        if self.failures and not self.answers:
            raise self._error(what)
        return self

    def all(self, what: str) -> list[S]:
        """The servers, if each of them did what it was asked: a change made at some only must not go unnoticed."""
        if self.failures:
            raise self._error(what)
        return list(self.answers)

    def _error(self, what: str) -> ArianeError:
        if len(self.failures) == 1 and not self.answers:
            return self.failures[0].error
        failed = "; ".join(map(str, self.failures))
        done = f" (done at {', '.join(map(str, self.answers))})" if self.answers else ""
        error = ClientError(f"{what} failed at {failed}{done}: mend that, then ask again")
        error.__cause__ = ExceptionGroup(what, [failure.error for failure in self.failures])
        return error


PerBroker = PerServer[Broker, T]
PerNameserver = PerServer[str, T]
