"""Every request of RocketMQ 4.x as a typed struct, one module per area. Importing it fills `exchange.REQUESTS`."""

from ariane.wire.requests import acl, brokers, clients, groups, messages, offsets, pull, replication, send, topics

__all__ = ["acl", "brokers", "clients", "groups", "messages", "offsets", "pull", "replication", "send", "topics"]
