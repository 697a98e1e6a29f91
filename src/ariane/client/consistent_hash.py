"""Apache's consistent hash ring, hash for hash.

Each member stands on the ring as ten virtual nodes named `id-0` to `id-9`. The hash is the first four bytes of the MD5
of the name, read as an unsigned number. A key belongs to the first node at or behind its own hash, around the end.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable

VIRTUAL_NODES = 10


class Ring:
    def __init__(self, members: Iterable[str], virtual_nodes: int = VIRTUAL_NODES) -> None:
        # A dict, because a later node takes the place of an earlier one with the same hash, as in Java's TreeMap.
        nodes = {_hash(f"{member}-{index}"): member for member in members for index in range(virtual_nodes)}
        self._hashes = sorted(nodes)
        self._owners = [nodes[place] for place in self._hashes]

    def owner_of(self, key: str) -> str | None:
        """The member that owns `key`; None on an empty ring."""
        if not self._hashes:
            return None
        return self._owners[bisect_left(self._hashes, _hash(key)) % len(self._owners)]


def _hash(text: str) -> int:
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")
