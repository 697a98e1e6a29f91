"""Autosave: who saves a table, when, and for whom."""

import asyncio
from pathlib import Path
from threading import Event

import pytest

from ariane.broker.json_table import Autosave, Encodable, JsonTable
from ariane.errors import StoreError
from ariane.wire.requests.offsets import ConsumerOffsetTable
from tests.simulation.simulated_disk import SimulatedDisk

PATH = Path("/store/config/table.json")


class CountingFile(JsonTable):
    """Counts the saves, and holds each one until it is let go."""

    def __init__(self, disk: SimulatedDisk) -> None:
        super().__init__(disk, PATH)
        self.saves = 0
        self.began, self.may_end = Event(), Event()

    def save(self, content: Encodable | bytes) -> None:
        self.saves += 1
        self.began.set()
        assert self.may_end.wait(10)
        super().save(content)


class Numbers:
    """A table of one number."""

    def __init__(self, file: JsonTable) -> None:
        self.value = 0
        self.autosave = Autosave(file, self.table)

    def table(self) -> ConsumerOffsetTable:
        return ConsumerOffsetTable(offset_table={"T@g": {0: self.value}})

    def count(self) -> None:
        self.value += 1
        self.autosave.mark_changed()


async def test_a_thousand_changes_that_wait_share_two_saves() -> None:
    file = CountingFile(SimulatedDisk())
    numbers = Numbers(file)

    async def change() -> None:
        numbers.count()
        await numbers.autosave.saved()

    waiting = [asyncio.ensure_future(change()) for _ in range(1000)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    file.may_end.set()
    await asyncio.gather(*waiting)
    assert file.saves <= 2
    assert file.load() == {"offsetTable": {"T@g": {0: 1000}}}
    assert numbers.autosave.is_saved


async def test_nobody_waits_for_a_table_that_has_not_changed() -> None:
    file = CountingFile(SimulatedDisk())
    await Numbers(file).autosave.saved()
    assert file.saves == 0


async def test_a_save_whose_waiter_has_gone_is_made_again_by_the_next() -> None:
    file = CountingFile(SimulatedDisk())
    numbers = Numbers(file)
    numbers.count()
    gone = asyncio.ensure_future(numbers.autosave.saved())
    assert await asyncio.to_thread(file.began.wait, 10)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert not numbers.autosave.is_saved
    file.may_end.set()
    await numbers.autosave.saved()
    assert file.saves == 2
    assert file.load() == {"offsetTable": {"T@g": {0: 1}}}


async def test_all_who_wait_for_a_failed_save_get_its_error() -> None:
    disk = SimulatedDisk()
    file = CountingFile(disk)
    file.may_end.set()
    numbers = Numbers(file)
    disk.fail_writes(OSError(28, "No space left on device"))
    numbers.count()
    outcomes = await asyncio.gather(*(numbers.autosave.saved() for _ in range(3)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreError] * 3
    assert "No space left" in str(outcomes[0])
