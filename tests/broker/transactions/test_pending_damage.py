"""A damaged half message is neither committed nor checked: its copy would hide the damage."""

import pytest

from ariane.errors import RequestFailed
from ariane.wire.requests.send import Decision
from tests.broker.transaction_fixtures import TOPIC, peer, transaction_broker


async def test_a_damaged_half_message_is_not_committed(caplog: pytest.LogCaptureFixture) -> None:
    async with transaction_broker() as broker, peer(broker) as client:
        damaged = await client.send_half(b"damaged", city="Nantes")
        await client.send_half(bytes(2000))
        intact = await client.send_half(b"intact")
        broker.store.make_durable()
        (segment,) = broker.store.components.commit_log.segments
        path, at = segment.path, bytes(segment.file.view()).index(b"Nantes")
    disk = broker.disk.crash_process()
    disk.flip_bit(path, at, 0)
    async with transaction_broker(disk) as broker, peer(broker) as client:
        with pytest.raises(RequestFailed):
            await client.end(damaged, Decision.COMMIT)
        await client.end(intact, Decision.COMMIT)
        await broker.run_pass()
        assert broker.bodies(TOPIC) == [b"intact"]
    assert "half message skipped" in caplog.text
