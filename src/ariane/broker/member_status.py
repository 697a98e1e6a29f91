"""Asking the members of a group where they are: all at once, and those that stay silent are left out."""

import asyncio
import logging

from ariane.broker.clients import ConsumerGroup, Member
from ariane.broker.resets import check_understood
from ariane.errors import ArianeError
from ariane.model.ids import QueueOffset
from ariane.model.route import MessageQueue
from ariane.rpc.caller import ask_peer
from ariane.wire.requests.resets import GetClientStatus

log = logging.getLogger(__name__)

_TIMEOUT_S = 5.0

Positions = dict[MessageQueue, QueueOffset]


async def offsets_of_members(group: ConsumerGroup, topic: str, client_id: str | None) -> dict[str, Positions]:
    """By client id; of `client_id` alone when it is given."""
    check_understood(group)
    asked = {
        member.client_id: member
        for member in group.members.values()
        if client_id is None or member.client_id == client_id
    }
    answers = await asyncio.gather(*(_positions(member, group.name, topic) for member in asked.values()))
    return {name: found for name, found in zip(asked, answers, strict=True) if found is not None}


async def _positions(member: Member, group: str, topic: str) -> Positions | None:
    try:
        answer = await ask_peer(member.connection, GetClientStatus(topic=topic, group=group), _TIMEOUT_S)
    except ArianeError as error:
        log.warning("client does not tell its offsets", extra={"client": member.client_id, "reason": str(error)})
        return None
    return answer.body.message_queue_table
