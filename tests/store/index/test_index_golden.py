"""Our index beside the one that a real Apache broker wrote for the same log. See tests/golden/README.md.

The second store is the first one, restarted and fed on, then killed. In neither was a message dispatched twice, so our
files must be Apache's to the last byte.
"""

import struct
import tarfile
from functools import cache
from pathlib import Path

import pytest

from ariane.store.index.entries import KeyedMessage
from ariane.store.index.file import IndexCapacity
from ariane.store.index.index import Index
from ariane.store.layout import Layout
from ariane.wire.record.read import RecordView, walk
from ariane.wire.sys_flag import SysFlag
from tests.simulation.simulated_disk import SimulatedDisk
from tests.store.index.indexes import EVER, ROOT, checked, contents, found, opened
from tests.wire.golden import golden_store

GOLDEN = Path(__file__).parents[2] / "golden"
SHAPE = IndexCapacity(slots=1000, entries=4000)
STORES = pytest.mark.parametrize("store", ["clean", "killed"])


@cache
def apache_files(store: str, directory: str = "index") -> dict[str, bytes]:
    """The files below a directory of the store by name, or the one file of that name."""
    with tarfile.open(GOLDEN / f"apache-4.9.8-{store}-store.tar.gz") as tar:
        members = [member for member in tar if member.isfile() and member.name.startswith(f"store/{directory}")]
        return {Path(member.name).name: tar.extractfile(member).read() for member in members}  # type: ignore[union-attr]


@cache
def log_of(store: str) -> tuple[KeyedMessage, ...]:
    views = (verdict for verdict in walk(golden_store(store).commit_log) if isinstance(verdict, RecordView))
    return tuple(
        (view.physical_offset, view.store_timestamp_ms, view.topic, keys_of(view))
        for view in views
        if view.sys_flag & SysFlag.TRANSACTION_ROLLBACK != SysFlag.TRANSACTION_ROLLBACK
    )


def keys_of(view: RecordView) -> list[str]:
    facts = view.dispatch_facts()
    return [*([facts.unique_key] if facts.unique_key is not None else []), *facts.keys]


def disk_with(files: dict[str, bytes]) -> SimulatedDisk:
    """Apache's files as they are: nothing allocated, so zeros are holes."""
    disk = SimulatedDisk()
    directory = Layout.under(ROOT).index
    disk.make_directory(directory)
    for name, data in files.items():
        file = disk.create(directory / name, len(data), allocated=0)
        for position in range(0, len(data), 4096):
            if any(page := data[position : position + 4096]):
                file.write(page, position)
        file.sync()
    disk.sync_directory(directory)
    return disk


def put_all(index: Index, messages: tuple[KeyedMessage, ...], batch: int) -> None:
    for begin in range(0, len(messages), batch):
        index.put(messages[begin : begin + batch])


@STORES
@pytest.mark.parametrize("batch", [1, 37, 10_000])
def test_an_index_built_from_the_log_is_apaches_byte_for_byte(store: str, batch: int) -> None:
    disk = SimulatedDisk()
    names = iter(sorted(apache_files(store)))
    put_all(opened(disk, SHAPE, name=lambda: next(names)), log_of(store), batch)
    assert contents(disk) == list(apache_files(store).values())


def test_an_index_that_apache_began_is_continued_as_apache_did() -> None:
    disk = disk_with(apache_files("clean"))
    index = opened(disk, SHAPE)
    index.after_clean_stop()
    assert index.end_physical == log_of("clean")[-1][0]
    put_all(index, log_of("killed"), 100)  # with all that is known already
    assert contents(disk) == list(apache_files("killed").values())


def test_the_index_of_a_killed_broker_is_repaired_to_what_it_was() -> None:
    disk = disk_with(apache_files("killed"))
    index = opened(disk, SHAPE)
    _, _, index_timestamp_ms = struct.unpack_from(">qqq", apache_files("killed", "checkpoint")["checkpoint"])
    durable = index.durable_at(index_timestamp_ms)
    index.after_crash(durable)
    assert 0 < index.end_physical < durable
    put_all(index, log_of("killed"), 1000)
    assert contents(disk) == list(apache_files("killed").values())


@STORES
def test_every_key_that_a_java_client_saw_is_found_in_apaches_files(store: str) -> None:
    index = opened(disk_with(apache_files(store)), SHAPE)
    index.after_clean_stop()
    for number, seen in enumerate(golden_store(store).messages):
        properties, stored_ms = seen["properties"], seen["storeTimestamp"]
        for key in [properties["UNIQ_KEY"], *properties.get("KEYS", "").split()]:
            at = EVER if number % 2 else (stored_ms, stored_ms + 1000)
            assert seen["physicalOffset"] in found(index, key, seen["topic"], at)


@STORES
def test_apaches_files_pass_the_check_of_our_tests(store: str) -> None:
    entries = [entry for data in apache_files(store).values() for entry in checked(data, SHAPE)]
    assert len(entries) == sum(len(keys) for *_, keys in log_of(store))
