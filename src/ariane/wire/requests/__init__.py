"""Every request of RocketMQ 4.x as a typed struct, one file per area. Importing it fills `declare.REQUESTS`."""

from ariane.wire.requests import acl, brokers, clients, groups, messages, offsets, pull, send, topics

__all__ = ["acl", "brokers", "clients", "groups", "messages", "offsets", "pull", "send", "topics"]
