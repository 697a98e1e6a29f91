"""Where a group that follows others may go on: behind the slowest of them.

A tool asks this before it moves consumption of a topic from one group to others. Pure.
"""

from collections.abc import Iterable, Mapping

FREE = 2**63 - 1
"""Every other group is ahead of the compared one already: nothing holds it back."""


def correction_offsets(
    groups: Iterable[Mapping[int, int]], compared: Mapping[int, int], queue_begins: Mapping[int, int]
) -> dict[int, int]:
    """By queue id: the smallest offset of `groups` that is still in the queue, FREE where it passes `compared`."""
    smallest: dict[int, int] = {}
    for offsets in groups:
        for queue_id, offset in offsets.items():
            if offset >= queue_begins.get(queue_id, 0):
                smallest[queue_id] = min(offset, smallest.get(queue_id, FREE))
    for queue_id, offset in compared.items():
        if smallest.get(queue_id, FREE) > offset:
            smallest[queue_id] = FREE
    return smallest
