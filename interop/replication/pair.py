"""A nameserver, a master and its slave, each of any vendor, and requests to the two brokers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ariane.client.core.instance import Instance
from ariane.client.settings import ClientSettings
from ariane.errors import ArianeError, RequestFailed
from ariane.model.ids import QueueOffset
from ariane.wire.fields import Request, Response
from ariane.wire.record.read import decode_all
from ariane.wire.requests.brokers import GetRuntimeInfo
from ariane.wire.requests.offsets import GetMaxOffset
from ariane.wire.requests.pull import PullMessage, PullSysFlag
from ariane.wire.requests.topics import GetRoute, GetTopicTable
from interop.apache import BROKER_PORT_OFFSETS, BrokerPlan, start_nameserver
from interop.broker.check_context import QUEUES, create_request, eventually
from interop.broker.client import WAIT_S
from interop.broker.servers import SETTINGS
from interop.nameserver import our_nameserver
from interop.processes import LOOPBACK, free_port
from interop.replication.members import LOG_FILE_BYTES, Member, Vendor
from interop.report import CheckFailed, expect

A = TypeVar("A", bound=Response)

REQUEST_S = 30.0
"""A Java program that has just started may take seconds to respond on a busy machine."""
CLUSTER, NAME = "InteropCluster", "interop-ha"
PAIR_SETTINGS = {
    **SETTINGS,
    "mappedFileSizeCommitLog": str(LOG_FILE_BYTES),
    # Otherwise Apache's brokers write topics for their transaction checks and so on into a log that checks look at.
    "transactionCheckInterval": "3600000",
    "traceTopicEnable": "false",
    # Apache's slaves make their first report so long after they have connected: 5 s by default.
    "haSendHeartbeatInterval": "1000",
}
SLAVE_SETTINGS = {
    "brokerId": "1",
    "brokerRole": "SLAVE",
    # Without it a slave of Apache 5 refuses every pull; one of 4.9 serves them.
    "slaveReadEnable": "true",
}


@dataclass(frozen=True, slots=True)
class Pair:
    nameserver: str
    master: Member
    slave: Member
    caller: Instance

    async def call(self, address: str, request: Request[A]) -> A:
        return await self.caller.call(address, request, REQUEST_S)

    @property
    def title(self) -> str:
        return title(self.master.vendor, self.slave.vendor)

    async def create_topic(self, topic: str, at: Iterable[Member] = ()) -> None:
        """At the master, or at other masters; known to the nameserver when this returns."""
        members = tuple(at) or (self.master,)
        for member in members:
            await self.call(member.plan.address, create_request(topic))
        names = {member.plan.name for member in members}
        await eventually(lambda: self._has_route(topic, names), f"a route of {topic} with {names}")

    async def _has_route(self, topic: str, names: set[str]) -> bool:
        with contextlib.suppress(ArianeError):
            route = (await self.call(self.nameserver, GetRoute(topic=topic))).body
            return {data.broker_name for data in route.queue_datas} >= names
        return False

    async def log_end(self, member: Member) -> int:
        info = await self.call(member.plan.address, GetRuntimeInfo())
        return int(info.body.table["commitLogMaxOffset"])

    async def max_offsets(self, member: Member, topic: str) -> Sequence[int]:
        requests = (GetMaxOffset(topic=topic, queue_id=queue) for queue in range(QUEUES))
        return [(await self.call(member.plan.address, request)).offset for request in requests]

    async def until_level(self, *topics: str, timeout_s: float = WAIT_S) -> None:
        """Waits until the slave has all of the master's log, and serves all messages of the topics."""
        ends: list[int] = []

        async def is_level() -> bool:
            try:
                ends[:] = [await self.log_end(member) for member in (self.master, self.slave)]
                return ends[0] == ends[1] and all([await self._is_served(topic) for topic in topics])
            except RequestFailed:  # Apache's brokers have no statistics in their first second, and then fail
                return False

        try:
            await eventually(is_level, "the slave has the master's log", timeout_s)
        except CheckFailed as problem:
            raise CheckFailed(f"{problem}: the logs end at {ends}") from None

    async def _is_served(self, topic: str) -> bool:
        return await self.max_offsets(self.slave, topic) == await self.max_offsets(self.master, topic)

    async def slave_knows(self, topics: Iterable[str]) -> bool:
        table = (await self.call(self.slave.plan.address, GetTopicTable())).body.topic_config_table
        return set(topics) <= table.keys()

    async def bodies(self, member: Member, topic: str) -> set[bytes]:
        """Of all messages that it serves."""
        found: set[bytes] = set()
        for queue, end in enumerate(await self.max_offsets(member, topic)):
            offset = 0
            while offset < end:
                response = await self.call(member.plan.address, _pull(topic, queue, offset))
                messages = decode_all(response.body, check_crc=True)
                expect(bool(messages), f"no message at {offset} of queue {queue}, which ends at {end}: {response.code}")
                found.update(message.body for message in messages)
                offset = response.next_begin_offset
        return found


def _pull(topic: str, queue: int, offset: int) -> PullMessage:
    return PullMessage(
        consumer_group="reader",
        topic=topic,
        queue_id=queue,
        queue_offset=QueueOffset(offset),
        max_msg_nums=32,
        sys_flag=int(PullSysFlag.SUBSCRIPTION),
        commit_offset=QueueOffset(0),
        suspend_timeout_millis=0,
        sub_version=0,
        subscription="*",
    )


def title(master: Vendor, slave: Vendor) -> str:
    return f"{master.name}, slave {slave.name}"


@asynccontextmanager
async def open_pair(master: Vendor, slave: Vendor, work: Path) -> AsyncIterator[Pair]:
    """The nameserver is of the master's vendor; neither broker runs yet."""
    port = free_port()
    nameserver = f"{LOOPBACK}:{port}"
    home = work / "namesrv"
    members = (
        Member(master, plan_of(nameserver, {}), work / "master"),
        Member(slave, plan_of(nameserver, SLAVE_SETTINGS), work / "slave"),
    )
    async with AsyncExitStack() as stack:
        start = (
            our_nameserver(port, home)
            if master.version is None
            else start_nameserver(port, home, version=master.version)
        )
        await asyncio.to_thread(stack.enter_context, start)
        for member in members:
            stack.push_async_callback(member.stop)
        caller = await stack.enter_async_context(Instance.open(ClientSettings(nameservers=nameserver)))
        yield Pair(nameserver, *members, caller)


def plan_of(nameserver: str, more: dict[str, str], name: str = NAME) -> BrokerPlan:
    return BrokerPlan(
        nameserver=nameserver,
        port=free_port(BROKER_PORT_OFFSETS),
        settings={**PAIR_SETTINGS, **more},
        cluster=CLUSTER,
        name=name,
    )
