"""What the members of a group are doing right now: asked of each, through a broker that it is connected to."""

from ariane.client.admin.desk import Desk
from ariane.client.admin.members import GroupMembers, Member
from ariane.client.admin.servers import PerServer
from ariane.errors import ClientError
from ariane.wire.requests.connections import ConsumerRunningInfo, GetRunningInfo

_TIMEOUT_S = 12.0  # the broker gives the member 10


async def running_infos(
    desk: Desk, group: str, members: GroupMembers, *, stacks: bool = False
) -> PerServer[str, ConsumerRunningInfo]:
    """By client id; members that do not answer are among the failures."""
    by_id = {one.client_id: one for one in members.members}
    return await desk.gather(by_id, lambda client_id: running_info(desk, group, by_id[client_id], stacks=stacks))


async def running_info(desk: Desk, group: str, member: Member, *, stacks: bool = False) -> ConsumerRunningInfo:
    for broker in await desk.brokers():
        if broker.name in member.brokers:
            ask = GetRunningInfo(group, member.client_id, stacks)
            return (await desk.ask(broker.address, ask, _TIMEOUT_S)).body
    raise ClientError(f"no broker that consumer {member.client_id} is connected to is known any more: ask again")
