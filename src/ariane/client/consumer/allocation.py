"""Queue allocation strategies: which queues of a topic each group member owns. Pure functions.

There is no coordinator. Each member sees the same queues and the same client ids, sorts both, and applies the same
rule, so the shares fit together. It follows that all members must use one strategy, and that these must return exactly
what Apache's classes of the same name return: a group may have Java and Python members.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from ariane.model.route import MessageQueue

VIRTUAL_NODES = 10


class HashRing:
    """Apache's consistent hash ring, hash for hash.

    Each member is on the ring as ten virtual nodes named `id-0` to `id-9`. The hash is the first four bytes of the MD5
    of the name, read as an unsigned number. A key belongs to the first node at or after its own hash, wrapping around.
    """

    def __init__(self, members: Iterable[str], virtual_nodes: int = VIRTUAL_NODES) -> None:
        # A dict, because a later node replaces an earlier one with the same hash, as in Java's TreeMap.
        nodes = {_hash(f"{member}-{index}"): member for member in members for index in range(virtual_nodes)}
        self._hashes = sorted(nodes)
        self._owners = [nodes[node_hash] for node_hash in self._hashes]

    def owner_of(self, key: str) -> str | None:
        """The member that owns `key`; None on an empty ring."""
        if not self._hashes:
            return None
        return self._owners[bisect_left(self._hashes, _hash(key)) % len(self._owners)]


def _hash(text: str) -> int:
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


Share = Callable[[Sequence[MessageQueue], Sequence[str], str], list[MessageQueue]]


@dataclass(frozen=True, slots=True)
class Allocation:
    """A strategy: Apache's name for it, and its rule over sorted queues and sorted client ids."""

    name: str
    share: Share

    def queues_of(
        self, client_id: str, queues: Collection[MessageQueue], members: Collection[str]
    ) -> list[MessageQueue]:
        """The queues of `client_id`. None if the broker does not list it as a member (yet)."""
        if client_id not in members or not queues:
            return []
        return self.share(sorted(queues, key=_queue_order), sorted(members, key=_java_order), client_id)


def _averagely(queues: Sequence[MessageQueue], members: Sequence[str], client_id: str) -> list[MessageQueue]:
    """Contiguous blocks; the first members take one more if the division has a remainder."""
    index = members.index(client_id)
    size, remainder = divmod(len(queues), len(members))
    start = index * size + min(index, remainder)
    return list(queues[start : start + size + (index < remainder)])


def _by_circle(queues: Sequence[MessageQueue], members: Sequence[str], client_id: str) -> list[MessageQueue]:
    """Round robin: one queue for each member in turn."""
    return list(queues[members.index(client_id) :: len(members)])


AVERAGELY = Allocation("AVG", _averagely)
BY_CIRCLE = Allocation("AVG_BY_CIRCLE", _by_circle)


def consistent_hash(virtual_nodes: int = VIRTUAL_NODES) -> Allocation:
    """Most queues stay where they are when a member joins or leaves, but the shares are less even."""

    def share(queues: Sequence[MessageQueue], members: Sequence[str], client_id: str) -> list[MessageQueue]:
        ring = HashRing(members, virtual_nodes)
        return [queue for queue in queues if ring.owner_of(_java_text(queue)) == client_id]

    return Allocation("CONSISTENT_HASH", share)


def machine_room(rooms: Collection[str]) -> Allocation:
    """Only queues of brokers named `room@broker` whose room is one of `rooms`.

    Apache 4.7.1 counts the blocks over the queues of all rooms, and so hands out queues of other rooms and leaves some
    of `rooms` without an owner. This is the rule of later releases; the two agree when every queue is in `rooms`.
    """

    def share(queues: Sequence[MessageQueue], members: Sequence[str], client_id: str) -> list[MessageQueue]:
        selected = [queue for queue in queues if _room_of(queue) in rooms]
        index, (size, remainder) = members.index(client_id), divmod(len(selected), len(members))
        block = selected[index * size : (index + 1) * size]
        return block + ([selected[index + size * len(members)]] if index < remainder else [])

    return Allocation("MACHINE_ROOM", share)


def by_config(mine: Sequence[MessageQueue]) -> Allocation:
    """A fixed list, whatever the other members do."""
    fixed = list(mine)
    return Allocation("CONFIG", lambda _queues, _members, _client_id: list(fixed))


def _room_of(queue: MessageQueue) -> str | None:
    """The room of a broker named `room@broker`: exactly two parts, as Java's split sees them."""
    room, at, broker = queue.broker_name.partition("@")
    return room if at and broker and "@" not in broker.rstrip("@") else None


def _java_text(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def _java_order(text: str) -> bytes:
    """Java compares UTF-16 code units: beyond the basic plane that is not the order of code points."""
    return text.encode("utf-16-be", "surrogatepass")


def _queue_order(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    return _java_order(queue.topic), _java_order(queue.broker_name), queue.queue_id
