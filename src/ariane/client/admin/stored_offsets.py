"""A group's offsets exactly as a broker stores them.

Asked for a single offset, brokers answer 0 where there is none but the queue is young, so that new consumers lose
nothing. Here the difference matters, so the broker's whole table is asked for: the one that slaves copy.
"""

from ariane.client.admin.desk import Desk
from ariane.client.admin.servers import Broker
from ariane.wire.requests.offsets import GetAllConsumerOffsets


async def stored_offsets_at(desk: Desk, broker: Broker, group: str) -> dict[str, dict[int, int]]:
    """By topic and queue id."""
    table = (await desk.ask(broker.address, GetAllConsumerOffsets())).body.offset_table
    split = ((key.rpartition("@"), offsets) for key, offsets in table.items())
    return {topic: offsets for (topic, _, owner), offsets in split if owner == group}
