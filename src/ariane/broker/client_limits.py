"""What strangers may make a broker remember: the bounds of a heartbeat, checked before anything is kept."""

from collections.abc import Set
from dataclasses import dataclass

from ariane.broker.groups import consumer_group_fault
from ariane.model.ids import group_fault
from ariane.wire.requests.clients import HeartbeatData

_CLIENT_ID_LENGTH_MAX = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    members_max: int = 10_000
    """Of one group. Every change is told to each of them."""
    groups_max: int = 1_000
    """Of one connection, as producer and as consumer together."""
    topics_max: int = 1_000
    """Of one member's subscription."""


def heartbeat_fault(heartbeat: HeartbeatData, groups: Set[tuple[str, str]], limits: ClientLimits) -> str | None:
    """Why a heartbeat is not taken, None when it is. `groups`: role and name of all that the connection would be in."""
    if not 0 < len(heartbeat.client_id) <= _CLIENT_ID_LENGTH_MAX:
        return f"clientID has {len(heartbeat.client_id)} characters: 1 to {_CLIENT_ID_LENGTH_MAX} are taken"
    if len(groups) > limits.groups_max:
        return (
            f"one connection takes part in at most {limits.groups_max} groups, this would be {len(groups)}: "
            "spread them over several client instances"
        )
    for role, name in groups:
        fault = group_fault(name) if role == "producer" else consumer_group_fault(name)
        if fault is not None:
            return fault
    for consumer in heartbeat.consumer_data_set:
        if len(consumer.subscription_data_set) > limits.topics_max:
            return (
                f"group {consumer.group_name} subscribes to {len(consumer.subscription_data_set)} topics, at most "
                f"{limits.topics_max} are taken: split the group"
            )
    return None
