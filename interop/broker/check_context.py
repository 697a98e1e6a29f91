"""The context of a check: a client, servers, and topic and group names that no other check uses."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from ariane.client.core.instance import Instance
from ariane.errors import RequestFailed
from ariane.model.topic import Permission
from ariane.rpc.caller import Caller
from ariane.wire.requests.topics import GetRoute, UpdateTopic
from interop.broker.client import WAIT_S, Client, ClientPair, Inbox, NotOffered
from interop.broker.foreign_clients import AdminShell
from interop.broker.servers import Servers
from interop.report import CheckFailed

QUEUES = 4
POLL_S = 0.1


@dataclass(slots=True)
class CheckContext:
    client: Client
    servers: Servers
    admin: AdminShell | None
    """None where Java is not installed; few checks need it."""
    caller: Caller | Instance
    name: str
    numbers: "count[int]" = field(default_factory=count)

    @property
    def group(self) -> str:
        return f"group_{self.name}"

    @property
    def members(self) -> tuple[Client, Client]:
        """Two members to share the queues of a topic: both clients of a pair, or the same client twice."""
        return (self.client.sender, self.client.receiver) if isinstance(self.client, ClientPair) else (self.client,) * 2

    async def mqadmin(self, *words: str) -> str:
        if self.admin is None:
            raise NotOffered("there is no mqadmin here")
        return await self.admin.run(*words)

    async def topic(self) -> str:
        """A new topic, known to the nameserver."""
        topic = f"topic_{self.name}"
        await self.caller.call(self.servers.plan.address, create_request(topic))
        await eventually(lambda: self._has_route(topic), f"a route of {topic}")
        return topic

    async def _has_route(self, topic: str) -> bool:
        try:
            await self.caller.call(self.servers.nameserver, GetRoute(topic=topic))
        except RequestFailed:
            return False
        return True

    async def send(self, topic: str, body: str, **fields: object) -> dict[str, str]:
        """The response; its status has been checked."""
        response = dict(await self.client.call("send", topic=topic, body=body, **fields))
        if response["status"] != "SEND_OK":
            raise CheckFailed(f"send status {response['status']}")
        return response

    async def consume(
        self, topic: str, *, client: Client | None = None, group: str | None = None, **fields: object
    ) -> "RunningConsumer":
        """Starts a consumer that begins at the first message."""
        client = client or self.client
        inbox = f"{self.name}-{next(self.numbers)}"
        await client.call("consume", inbox=inbox, group=group or self.group, topic=topic, **fields)
        return RunningConsumer(client, inbox, client.inbox(inbox))


def create_request(topic: str) -> UpdateTopic:
    return UpdateTopic(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=QUEUES,
        write_queue_nums=QUEUES,
        perm=int(Permission.READ_WRITE),
        topic_filter_type="SINGLE_TAG",
    )


@dataclass(frozen=True, slots=True)
class RunningConsumer:
    """A started consumer and its inbox."""

    client: Client
    name: str
    inbox: Inbox

    async def stop(self) -> None:
        await self.client.call("stop", inbox=self.name)


async def eventually(holds: Callable[[], Awaitable[bool]], what: str, timeout_s: float = WAIT_S) -> None:
    """Polls until the condition holds: for state of another process, which has no event to wait for."""
    try:
        async with asyncio.timeout(timeout_s):
            while not await holds():  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise CheckFailed(f"{what}: not within {timeout_s:.0f} s") from None


async def until_printed(
    run: Callable[..., Awaitable[str]], expected: Sequence[str], *words: str, timeout_s: float = WAIT_S
) -> None:
    """Repeats the mqadmin command until its output contains all expected texts; a failure shows the last output."""
    printed = ""

    async def is_printed() -> bool:
        nonlocal printed
        printed = " ".join((await run(*words)).split())
        return all(text in printed for text in expected)

    try:
        await eventually(is_printed, f"{expected} from mqadmin {' '.join(words)}", timeout_s)
    except CheckFailed as problem:
        raise CheckFailed(f"{problem}, but:\n{printed[-1500:]}") from None


def safe_name(text: str) -> str:
    """The text with every character replaced that topic and group names do not allow."""
    return re.sub(r"[^A-Za-z0-9]+", "_", text)
