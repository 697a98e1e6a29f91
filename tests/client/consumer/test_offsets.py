"""The in-memory table of offsets, and its store at the broker."""

from collections.abc import Collection, Mapping

from ariane.client.consumer.offsets import OffsetTable, RemoteBrokerOffsetStore
from ariane.model.route import MessageQueue
from tests.client.cluster_fixture import LiveCluster, fresh

QUEUE = MessageQueue(topic="orders", broker_name="a", queue_id=0)
OTHER = MessageQueue(topic="orders", broker_name="a", queue_id=1)


class FakeOffsetStore:
    """An offset store that a test can make fail."""

    def __init__(self) -> None:
        self.saved: list[dict[MessageQueue, int]] = []
        self.sought: list[set[MessageQueue]] = []
        self.closed_to: set[MessageQueue] = set()
        self.elsewhere: set[MessageQueue] = set()

    async def load(self, queue: MessageQueue) -> int | None:
        return None

    async def save(
        self, offsets: Mapping[MessageQueue, int], sought: Collection[MessageQueue] = ()
    ) -> set[MessageQueue]:
        self.saved.append(dict(offsets))
        self.sought.append(set(sought))
        return set(offsets) - self.closed_to

    def is_elsewhere(self, queue: MessageQueue) -> bool:
        return queue in self.elsewhere


async def test_only_changed_offsets_are_saved() -> None:
    shelf = FakeOffsetStore()
    table = OffsetTable(shelf)
    table.advance(QUEUE, 5)
    table.advance(OTHER, 1)
    await table.save()
    table.advance(OTHER, 2)
    await table.save()
    await table.save()
    assert shelf.saved == [{QUEUE: 5, OTHER: 1}, {OTHER: 2}]


async def test_an_offset_that_is_read_elsewhere_now_is_saved_again() -> None:
    shelf = FakeOffsetStore()
    table = OffsetTable(shelf)
    table.advance(QUEUE, 5)
    table.advance(OTHER, 1)
    await table.save()
    shelf.elsewhere = {QUEUE}
    await table.save()
    await table.save({OTHER})
    shelf.elsewhere = set()
    await table.save()
    table.forget(QUEUE)
    shelf.elsewhere = {QUEUE}
    await table.save()
    assert shelf.saved == [{QUEUE: 5, OTHER: 1}, {QUEUE: 5}]


async def test_an_offset_goes_back_only_by_move() -> None:
    table = OffsetTable(FakeOffsetStore())
    table.advance(QUEUE, 5)
    table.advance(QUEUE, 3)
    assert table.get(QUEUE) == 5
    table.move(QUEUE, 3)
    assert table.get(QUEUE) == 3


async def test_the_group_goes_back_only_with_a_seek_and_only_once() -> None:
    shelf = FakeOffsetStore()
    table = OffsetTable(shelf)
    table.advance(QUEUE, 5)
    table.correct(OTHER, 5)
    await table.save()
    table.move(QUEUE, 3)
    table.correct(OTHER, 3)
    shelf.closed_to = {QUEUE}
    await table.save()
    shelf.closed_to = set()
    table.advance(QUEUE, 4)
    await table.save()
    table.advance(QUEUE, 6)
    await table.save()
    assert shelf.saved == [{QUEUE: 5, OTHER: 5}, {QUEUE: 3, OTHER: 3}, {QUEUE: 4}, {QUEUE: 6}]
    assert shelf.sought == [set(), {QUEUE}, {QUEUE}, set()]


async def test_a_seek_during_the_save_of_another_is_not_forgotten() -> None:
    class Slow(FakeOffsetStore):
        async def save(
            self, offsets: Mapping[MessageQueue, int], sought: Collection[MessageQueue] = ()
        ) -> set[MessageQueue]:
            if not self.saved:
                table.move(QUEUE, 2)
            return await super().save(offsets, sought)

    shelf = Slow()
    table = OffsetTable(shelf)
    table.move(QUEUE, 5)
    await table.save()
    await table.save()
    assert shelf.saved == [{QUEUE: 5}, {QUEUE: 2}]
    assert shelf.sought == [{QUEUE}, {QUEUE}]


async def test_an_offset_that_could_not_be_saved_stays_due() -> None:
    shelf = FakeOffsetStore()
    table = OffsetTable(shelf)
    table.advance(QUEUE, 5)
    shelf.closed_to = {QUEUE}
    await table.save()
    shelf.closed_to = set()
    await table.save()
    assert shelf.saved == [{QUEUE: 5}, {QUEUE: 5}]


async def test_an_offset_that_moved_on_during_the_save_stays_due() -> None:
    class Slow(FakeOffsetStore):
        async def save(
            self, offsets: Mapping[MessageQueue, int], sought: Collection[MessageQueue] = ()
        ) -> set[MessageQueue]:
            table.advance(QUEUE, 9)
            return await super().save(offsets)

    shelf = Slow()
    table = OffsetTable(shelf)
    table.advance(QUEUE, 5)
    await table.save()
    await table.save()
    assert shelf.saved == [{QUEUE: 5}, {QUEUE: 9}]


async def test_a_revoked_queue_is_saved_alone_and_forgotten() -> None:
    shelf = FakeOffsetStore()
    table = OffsetTable(shelf)
    table.advance(QUEUE, 5)
    table.advance(OTHER, 6)
    await table.save([OTHER])
    table.forget(OTHER)
    assert shelf.saved == [{OTHER: 6}]
    assert table.of("orders") == {QUEUE: 5}


async def test_a_group_stores_its_offsets_at_the_broker(live_cluster: LiveCluster) -> None:
    topic = await live_cluster.topic(queues=1)
    await live_cluster.send(topic, b"a", b"b", b"c")
    (queue,) = await live_cluster.queues(topic)
    offsets = RemoteBrokerOffsetStore(live_cluster.instance, fresh("group"))
    assert await offsets.save({queue: 2}) == {queue}
    assert await offsets.load(queue) == 2


async def test_an_unknown_broker_is_an_error_and_not_none(live_cluster: LiveCluster) -> None:
    nowhere = MessageQueue(topic=await live_cluster.topic(), broker_name="no-such-broker", queue_id=0)
    offsets = RemoteBrokerOffsetStore(live_cluster.instance, fresh("group"))
    assert await offsets.save({nowhere: 2}) == set()
