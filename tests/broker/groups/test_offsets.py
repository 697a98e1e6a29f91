"""The table of consumer offsets and its file."""

import asyncio
import random
import re
import tarfile
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.broker.groups.offsets import ConsumerOffsets
from ariane.broker.json_table import Encodable, JsonTable
from ariane.errors import StoreCorrupt
from ariane.testing import FakeClock
from tests.broker.groups.test_configs import GOLDEN, disk_with
from tests.simulation.simulated_disk import PowerCut, SimulatedDisk
from tests.transport.peers import until

PATH = Path("/store/config/consumerOffset.json")


def offsets_on(disk: SimulatedDisk) -> ConsumerOffsets:
    return ConsumerOffsets(JsonTable(disk, PATH))


NAMES = st.from_regex(r"[%a-zA-Z0-9_-]{1,20}", fullmatch=True)
COMMITS = st.lists(st.tuples(NAMES, NAMES, st.integers(0, 1023), st.integers(0, 2**63 - 1)), max_size=30)


@given(COMMITS)
def test_saved_groups_are_loaded(commits: list[tuple[str, str, int, int]]) -> None:
    disk = SimulatedDisk()
    offsets = offsets_on(disk)
    for commit in commits:
        offsets.commit(*commit)
    offsets.save()
    assert offsets_on(disk.crash_process()).table() == offsets.table()


def test_a_file_of_apache_is_read_and_written_back_the_same() -> None:
    with tarfile.open(GOLDEN) as archive:
        content = archive.extractfile("store/config/consumerOffset.json")
        assert content is not None
        original = content.read()
    disk = disk_with(original, PATH)
    offsets = offsets_on(disk)
    assert offsets.of("golden_group", "GoldenNormal") == {0: 303, 1: 303, 2: 302, 3: 302}
    assert offsets.topics_of("golden_group") == {"GoldenNormal", "%RETRY%golden_group"}
    assert offsets.groups_of("GoldenRetry") == {"golden_retry_group"}
    assert ConsumerOffsets(JsonTable(disk, PATH)).table() == offsets.table()
    offsets.save()
    saved = disk.open(PATH, writable=False).read(10_000, 0)
    assert len(_entries(saved)) == 6
    assert sorted(_entries(saved)) == sorted(_entries(original))


def _entries(text: bytes) -> list[bytes]:
    compact = text.replace(b"\n", b"").replace(b"\t", b"")
    assert re.match(rb'\{("arianeCrc32":"[0-9a-f]{8}","arianeSaves":\d+,)?"offsetTable":\{', compact)
    return re.findall(rb'"[^"]+@[^"]+":\{[0-9:,]+\}', compact)


def test_additions_of_5x_and_quoted_queue_ids_are_accepted() -> None:
    disk = disk_with(b'{"dataVersion":{"counter":1},"offsetTable":{"T@g":{"0":5,1:6}},"resetOffsetTable":{}}', PATH)
    assert offsets_on(disk).of("g", "T") == {0: 5, 1: 6}


def test_a_file_that_is_something_else_stops_the_start() -> None:
    with pytest.raises(StoreCorrupt, match="not a valid offset table"):
        offsets_on(disk_with(b'{"offsetTable":{"T@g":[1]}}', PATH))


def test_an_offset_may_go_back() -> None:
    offsets = ConsumerOffsets(None)
    assert offsets.get("g", "T", 0) == -1
    offsets.commit("g", "T", 0, 9)
    offsets.commit("g", "T", 0, 3)
    assert offsets.get("g", "T", 0) == 3


def test_a_group_is_cloned_for_one_topic() -> None:
    offsets = ConsumerOffsets(None)
    offsets.commit("g", "T", 0, 9)
    offsets.commit("g", "U", 0, 7)
    offsets.commit("h", "T", 1, 1)
    offsets.clone("g", "h", "T")
    assert offsets.table() == {"T@g": {0: 9}, "U@g": {0: 7}, "T@h": {1: 1, 0: 9}}


def test_offsets_are_deleted_with_their_group_or_topic() -> None:
    offsets = ConsumerOffsets(None)
    for group in "gh":
        for topic in "TU":
            offsets.commit(group, topic, 0, 1)
    offsets.delete_group("g")
    assert offsets.table() == {"T@h": {0: 1}, "U@h": {0: 1}}
    offsets.delete_topic("T")
    offsets.delete_topic("unknown")
    assert offsets.table() == {"U@h": {0: 1}}
    assert (offsets.groups_of("T"), offsets.topics_of("g")) == (set(), set())


def test_offsets_beyond_the_end_of_a_log_that_lost_its_end_are_lowered() -> None:
    offsets = ConsumerOffsets(None)
    offsets.commit("g", "T", 0, 9)
    offsets.commit("g", "T", 1, 5)
    offsets.commit("g", "gone", 0, 5)
    assert offsets.clamp_to_queue_ends(lambda topic, queue_id: 7 if topic == "T" else 0) == 2
    assert offsets.table() == {"T@g": {0: 7, 1: 5}, "gone@g": {0: 0}}


# --- when it is saved


async def test_the_timer_saves_only_what_has_changed() -> None:
    disk, clock = SimulatedDisk(), FakeClock()
    offsets = offsets_on(disk)
    async with offsets.autosave(clock, 5):
        await clock.advance(20)
        assert disk.size(PATH) is None
        offsets.commit("g", "T", 0, 1)
        await clock.advance(5)
        await until(lambda: offsets_on(disk).get("g", "T", 0) == 1)
        quiet = disk.operations
        offsets.commit("g", "T", 0, 1)
        await clock.advance(20)
        assert disk.operations == quiet


async def test_the_end_saves_unsaved_changes() -> None:
    disk, clock = SimulatedDisk(), FakeClock()
    offsets = offsets_on(disk)
    async with offsets.autosave(clock, 5):
        offsets.commit("g", "T", 0, 1)
    assert offsets_on(disk).get("g", "T", 0) == 1


async def test_a_full_disk_is_retried() -> None:
    disk = SimulatedDisk()
    offsets = offsets_on(disk)
    offsets.commit("g", "T", 0, 1)
    disk.fail_writes(OSError(28, "No space left on device"))
    await offsets.save_if_changed()
    assert offsets_on(disk).table() == {}
    disk.fail_writes(None)
    await offsets.save_if_changed()
    assert offsets_on(disk).get("g", "T", 0) == 1


def test_a_power_failure_at_any_moment_leaves_a_valid_file() -> None:
    seen = set()
    for operation in range(1, 40):
        disk = SimulatedDisk()
        offsets = offsets_on(disk)
        offsets.commit("g", "T", 0, 1)
        offsets.save()
        offsets.commit("g", "T", 0, 2)
        disk.crash_at(disk.operations + operation)
        with suppress(PowerCut):
            offsets.save()
        seen.add(offsets_on(disk.cut_power(random.Random(operation))).get("g", "T", 0))
    assert seen == {1, 2}


class SlowFile(JsonTable):
    """A disk that takes its time with the first save."""

    def __init__(self, disk: SimulatedDisk) -> None:
        super().__init__(disk, PATH)
        self.began, self.may_end = Event(), Event()

    def save(self, content: Encodable | bytes) -> None:
        if not self.began.is_set():
            self.began.set()
            self.may_end.wait(10)
        super().save(content)


async def test_a_slow_save_never_overwrites_a_newer_one() -> None:
    disk = SimulatedDisk()
    file = SlowFile(disk)
    offsets = ConsumerOffsets(file)
    offsets.commit("g", "T", 0, 1)
    slow = asyncio.create_task(offsets.save_if_changed())
    await asyncio.to_thread(file.began.wait)
    offsets.commit("g", "T", 0, 2)
    last = asyncio.create_task(asyncio.to_thread(offsets.save))
    file.may_end.set()
    await asyncio.gather(slow, last)
    assert offsets_on(disk).get("g", "T", 0) == 2
