"""The unique keys of one producer."""

import os
from ipaddress import IPv4Address, IPv6Address, ip_address

from ariane.client.instance import Instance
from ariane.wire.message_id import UniqueKeys


def unique_keys_for(instance: Instance) -> UniqueKeys:
    """Each producer gets a salt of its own, so that two in one process never make the same key."""
    return UniqueKeys(_address(instance.ip), os.getpid(), os.urandom(4), instance.clock.now_ms)


def _address(text: str) -> IPv4Address | IPv6Address:
    try:
        return ip_address(text)
    except ValueError:  # a user may put any word into client_ip
        return IPv4Address("127.0.0.1")
