"""The commands that a check can give to any client, and the inboxes with the messages that arrived.

Commands (all fields are sent as text to a client in another process):

    send         topic body [tags keys delay_level deliver_at queue trace mode=sync|async|oneway p.NAME...]
    batch        topic body0 body1 ...
    transaction  topic body decision=commit|rollback|unknown [check=commit|rollback]
    request      topic body seconds                  -> body of the reply
    query        topic key                           -> body0 ...
    view         topic id_to_view                    -> body0, by an id of either kind
    consume      inbox group topic [expression sql model ordered fail max_reconsume reply trace] -> client_id
    stop         inbox
    pull         group topic                         -> body0 ..., with a pull consumer
    poll         group topic count seconds           -> body0 ..., with a lite pull consumer

`send`, `batch` and `transaction` return status, message_id, offset_message_id, queue_id and queue_offset.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from interop.report import CheckFailed

WAIT_S = 60.0
"""Far more than any step takes on an idle machine."""


class NotOffered(Exception):
    """The client or the server does not have the feature; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A message as a consumer received it."""

    body: str
    at_s: float
    tags: str = ""
    keys: str = ""
    message_id: str = ""
    queue_id: int = 0
    queue_offset: int = 0
    attempt: int = 1


@dataclass(slots=True)
class Inbox:
    """All messages that one consumer received, in order of arrival."""

    seen: list[Delivery] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def add(self, seen: Delivery) -> None:
        async with self.changed:
            self.seen.append(seen)
            self.changed.notify_all()

    @property
    def bodies(self) -> list[str]:
        return [message.body for message in self.seen]

    async def wait(self, enough: Callable[[list[Delivery]], bool], what: str, timeout_s: float = WAIT_S) -> None:
        try:
            async with asyncio.timeout(timeout_s), self.changed:
                await self.changed.wait_for(lambda: enough(self.seen))
        except TimeoutError:
            raise CheckFailed(f"{what}: after {timeout_s:.0f} s there is {_short(self.bodies)}") from None

    async def wait_bodies(self, expected: set[str], timeout_s: float = WAIT_S) -> None:
        """Waits until each of them has arrived; others may have arrived too."""
        await self.wait(
            lambda seen: expected <= {message.body for message in seen},
            f"expected {_short(sorted(expected))}",
            timeout_s,
        )


class Client(Protocol):
    @property
    def name(self) -> str: ...

    async def call(self, verb: str, **fields: object) -> Mapping[str, str]:
        """CheckFailed when it fails, NotOffered when the client does not have the feature."""

    def inbox(self, name: str) -> Inbox:
        """Of the consumer that was, or will be, started with this name."""


@dataclass(frozen=True, slots=True)
class ClientPair:
    """Two clients used as one: the first sends, the second consumes."""

    sender: Client
    receiver: Client

    @property
    def name(self) -> str:
        return f"{self.sender.name} sends, {self.receiver.name} consumes"

    async def call(self, verb: str, **fields: object) -> Mapping[str, str]:
        client = self.receiver if verb in {"consume", "stop", "pull", "poll"} else self.sender
        return await client.call(verb, **fields)

    def inbox(self, name: str) -> Inbox:
        return (self.sender if name == "checks" else self.receiver).inbox(name)


def bodies_of(response: Mapping[str, str]) -> list[str]:
    """The bodies in a response of query, view, pull or poll."""
    return [response[f"body{number}"] for number in range(len(response)) if f"body{number}" in response]


def _short(bodies: list[str]) -> str:
    return f"{len(bodies)} messages {[body[:30] for body in bodies[:12]]}"
