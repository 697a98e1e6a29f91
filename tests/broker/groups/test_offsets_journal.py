"""The offset journal: commits survive a kill of the process; a machine crash loses those since the last save."""

import errno
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.broker.groups.offsets import ConsumerOffsets, OffsetJournal
from ariane.broker.json_table import JsonTable
from ariane.errors import StoreError, StoreFull
from ariane.store.config.journal import JOURNAL_BYTES
from ariane.store.disk import Disk
from tests.simulation.simulated_disk import SimulatedDisk

CONFIG = Path("/store/config")


def offsets_on(disk: Disk, boot: str = "boot") -> ConsumerOffsets:
    return ConsumerOffsets(JsonTable(disk, CONFIG / "consumerOffset.json"), OffsetJournal(disk, CONFIG, boot))


def journals(disk: Disk) -> list[str]:
    return [name for name in disk.names(CONFIG) if "journal" in name]


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("commit"), st.sampled_from("ab"), st.sampled_from("xy"), st.integers(0, 3), st.integers(0, 99)
        ),
        st.tuples(st.just("delete_group"), st.sampled_from("ab")),
        st.tuples(st.just("delete_topic"), st.sampled_from("xy")),
        st.tuples(st.just("save")),
        st.tuples(st.just("kill")),
    )
)


@given(STEPS)
def test_all_commits_before_a_kill_are_there_after_it(steps: list[tuple[str, ...]]) -> None:
    disk = SimulatedDisk()
    offsets = offsets_on(disk)
    for name, *arguments in steps:
        if name == "kill":
            before = offsets.table()
            disk = disk.crash_process()
            offsets = offsets_on(disk)
            assert offsets.table() == before
        else:
            getattr(offsets, name)(*arguments)


def test_a_save_begins_a_new_journal() -> None:
    disk = SimulatedDisk()
    offsets = offsets_on(disk)
    offsets.commit("billing", "orders", 0, 5)
    assert journals(disk) == ["consumerOffset.journal.1"]
    offsets.save()
    assert journals(disk) == ["consumerOffset.journal.2"]


def test_starts_without_commits_leave_one_journal() -> None:
    disk = SimulatedDisk()
    for _ in range(3):
        disk = disk.crash_process()
        offsets_on(disk)
    assert len(journals(disk)) == 1


def test_after_another_boot_the_journal_is_ignored() -> None:
    disk = SimulatedDisk()
    offsets = offsets_on(disk)
    offsets.commit("billing", "orders", 0, 5)
    offsets.save()
    offsets.commit("billing", "orders", 0, 9)
    offsets = offsets_on(disk.crash_process(), boot="another")
    assert offsets.get("billing", "orders", 0) == 5


def test_without_a_boot_id_the_journal_is_ignored() -> None:
    disk = SimulatedDisk()
    offsets_on(disk, boot="").commit("billing", "orders", 0, 9)
    assert offsets_on(disk.crash_process(), boot="").table() == {}


@pytest.mark.parametrize("length", range(150))
def test_an_incomplete_line_is_ignored(length: int) -> None:
    disk = SimulatedDisk()
    offsets = offsets_on(disk)
    for offset in (1, 22, 333):
        offsets.commit("billing", "orders", 0, offset)
    (name,) = journals(disk)
    data = disk.open(CONFIG / name, writable=False).read(1000, 0)[:length]
    cut = SimulatedDisk()
    cut.make_directory(CONFIG)
    cut.create(CONFIG / name, 1000, allocated=0).write(data, 0)
    assert offsets_on(cut).get("billing", "orders", 0) in (-1, 1, 22, 333)


def test_garbage_is_not_a_commit() -> None:
    disk = SimulatedDisk()
    disk.make_directory(CONFIG)
    noise = b"boot boot\norders@billing 0 7\n" + random.Random(1).randbytes(500)
    disk.create(CONFIG / "consumerOffset.journal.3", 1000, allocated=0).write(noise, 0)
    assert offsets_on(disk).table() == {"orders@billing": {0: 7}}  # as releases before checksums wrote it


def test_a_commit_that_cannot_be_written_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    offsets = offsets_on(disk)
    offsets.commit("billing", "orders", 0, 1)
    disk.fail_writes(OSError(errno.ENOSPC, "no space"))
    for offset in (2, 3):
        with pytest.raises(StoreFull, match=r"consumerOffset\.journal\.1 cannot be written \(no space\): free"):
            offsets.commit("billing", "orders", 0, offset)
    assert offsets.get("billing", "orders", 0) == 1
    offsets.record("billing", "orders", 1, 7)  # the broker's own progress is not refused
    assert offsets.get("billing", "orders", 1) == 7
    assert [record.message for record in caplog.records] == ["journal cannot be written, changes are refused"]
    disk.fail_writes(None)
    offsets.commit("billing", "orders", 0, 4)
    assert offsets_on(disk.crash_process()).get("billing", "orders", 0) == 4


def test_a_journal_goes_on_without_space_for_a_new_one() -> None:
    disk = SimulatedDisk(space_left=JOURNAL_BYTES + 64 * 1024)
    offsets = offsets_on(disk)
    offsets.commit("billing", "orders", 0, 1)
    disk.create(CONFIG / "ballast", 60 * 1024, allocated=60 * 1024)
    with pytest.raises(StoreError, match="cannot be saved"):
        offsets.save()
    offsets.commit("billing", "orders", 0, 2)
    assert offsets_on(disk.crash_process()).get("billing", "orders", 0) == 2
    disk.remove(CONFIG / "ballast")
    offsets.save()
    offsets.commit("billing", "orders", 0, 3)
    assert offsets_on(disk.crash_process()).get("billing", "orders", 0) == 3


@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_of_a_journal_is_reported_and_gives_no_other_offset(
    bit: int, caplog: pytest.LogCaptureFixture
) -> None:
    committed = {"orders@billing": {0: 11}, "orders@audit": {1: 22}, "bills@billing": {2: 33}}
    disk = SimulatedDisk()
    offsets = offsets_on(disk)
    for key, queues in committed.items():
        topic, group = key.split("@")
        for queue_id, offset in queues.items():
            offsets.commit(group, topic, queue_id, offset)
    (name,) = journals(disk)
    length = len(disk.open(CONFIG / name, writable=False).read(10_000, 0).rstrip(b"\0"))
    for position in range(length):
        disk.flip_bit(CONFIG / name, position, bit)
        caplog.clear()
        table = offsets_on(disk.crash_process()).table()
        assert table.items() <= committed.items(), position
        assert len(table) >= len(committed) - 2, position  # a lost end of line damages two
        assert "is damaged and left out" in caplog.text, position
        disk.flip_bit(CONFIG / name, position, bit)
    assert offsets_on(disk).table() == committed


def test_a_full_file_is_followed_by_another() -> None:
    disk = SimulatedDisk()
    offsets = offsets_on(disk)
    for offset in range(1, 10_000):
        offsets.commit("billing" * 10, "orders" * 10, 0, offset)
    assert len(journals(disk)) > 1
    assert offsets_on(disk.crash_process()).table() == offsets.table()
    offsets.save()
    assert len(journals(disk)) == 1
