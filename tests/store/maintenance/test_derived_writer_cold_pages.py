"""When the last page of a queue's file is fetched before entries are written to it."""

from ariane.store.maintenance.derived_writer import QueueEndPages
from ariane.store.message_store import MessageStore
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.stores import bodies, draft, opened, put


def idle(queues: int = 1) -> tuple[SimulatedDisk, MessageStore, QueueEndPages]:
    """A store whose queues hold a message each, written by another process; nothing is in memory."""
    disk = SimulatedDisk()
    store = opened(disk)
    put(store, *[draft(b"old", queue_id=number) for number in range(queues)])
    store.close()
    store = opened(disk)
    disk.is_cold = True
    return disk, store, QueueEndPages(disk, store.components.queues)


def fetched(ends: QueueEndPages) -> bool:
    """Whether a thread was needed; it needs to come once."""
    call = ends.cold_fetch()
    if call is None:
        return False
    call()
    assert ends.cold_fetch() is None
    return True


def write(store: MessageStore, queues: int = 1) -> None:
    put(store, *[draft(b"new", queue_id=number) for number in range(queues)])


def test_without_new_entries_there_is_nothing_to_fetch() -> None:
    _, _, ends = idle()
    assert not fetched(ends)


def test_the_end_of_an_idle_queue_is_fetched_once() -> None:
    _, store, ends = idle()
    write(store)
    assert fetched(ends)
    store.components.queues.write_dirty()
    write(store)
    assert not fetched(ends)


def test_what_is_in_memory_needs_no_thread() -> None:
    disk, store, ends = idle()
    disk.is_cold = False
    write(store)
    assert not fetched(ends)


def test_a_busy_queue_is_not_asked_for_again_and_an_idle_one_is() -> None:
    _, store, ends = idle()
    write(store)
    assert fetched(ends)
    for _ in range(3):
        ends.checkpointed()
        assert not fetched(ends)  # written since the checkpoint before
    store.components.queues.write_dirty()
    ends.checkpointed()
    ends.checkpointed()
    write(store)
    assert fetched(ends)


def test_of_many_queues_no_page_is_asked_for() -> None:
    disk, store, ends = idle(queues=100)
    disk.is_cold = False
    write(store, queues=100)
    assert fetched(ends)


def test_a_queue_without_a_file_has_nothing_to_fetch() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    disk.is_cold = True
    write(store)
    assert not fetched(QueueEndPages(disk, store.components.queues))


def test_a_queue_may_be_deleted_while_a_thread_fetches() -> None:
    _, store, ends = idle(queues=2)
    write(store, queues=2)
    call = ends.cold_fetch()
    assert call is not None
    store.components.queues.delete_queue("orders", 0)
    call()
    assert ends.cold_fetch() is None
    store.components.queues.write_dirty()
    assert bodies(store, "orders", 1) == [b"old", b"new"]
