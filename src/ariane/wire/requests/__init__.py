"""Every request of RocketMQ 4.x as a typed struct, one file per area. Importing it fills `declare.REQUESTS`."""

from ariane.wire.requests import (
    access,
    brokers,
    clients,
    configs,
    connections,
    groups,
    messages,
    offsets,
    pull,
    resets,
    routes,
    runtime,
    send,
    topics,
    transactions,
)

__all__ = [
    "access",
    "brokers",
    "clients",
    "configs",
    "connections",
    "groups",
    "messages",
    "offsets",
    "pull",
    "resets",
    "routes",
    "runtime",
    "send",
    "topics",
    "transactions",
]
