"""Queues that Apache RocketMQ 4.9.8 wrote, against its own commit log; and ours, made from that log, against them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ariane.model.system_topics import DEFAULT_LEVELS, SCHEDULE, delivery_time_ms, parse_levels
from ariane.store.consume_queue.queues import ConsumeQueues
from ariane.wire.record.read import RecordView, walk
from ariane.wire.sys_flag import transaction_type
from tests.store.golden_stores import unpack
from tests.store.queues import Entry, open_queues, read
from tests.wire.golden import golden_store

QUEUE_FILE_BYTES = 2000
LEVELS_MS = parse_levels(DEFAULT_LEVELS)
QUEUED = (0x0, 0x8)  # no transaction, and committed


@pytest.fixture(params=["clean", "killed"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def apache(name: str, tmp_path: Path) -> Path:
    """The root of a store that Apache wrote."""
    return unpack(name, tmp_path).root


def queued_records(name: str) -> Iterator[RecordView]:
    for verdict in walk(golden_store(name).commit_log):
        if isinstance(verdict, RecordView) and transaction_type(verdict.sys_flag) in QUEUED:
            yield verdict


def entry_of(view: RecordView) -> Entry:
    tags_code = view.dispatch_facts().tags_code
    if view.topic == SCHEDULE:
        tags_code = delivery_time_ms(LEVELS_MS, int(view.properties()["DELAY"]), view.store_timestamp_ms)
    return view.physical_offset, view.size, tags_code


def expected_queues(name: str) -> dict[tuple[str, int], list[Entry]]:
    queues: dict[tuple[str, int], list[Entry]] = {}
    for view in queued_records(name):
        queue = queues.setdefault((view.topic, view.queue_id), [])
        assert view.queue_offset == len(queue)
        queue.append(entry_of(view))
    return queues


def apache_queues(root: Path) -> ConsumeQueues:
    return open_queues(root, file_bytes=QUEUE_FILE_BYTES, open_files_max=8)


def files_under(root: Path) -> dict[str, bytes]:
    queues = root / "consumequeue"
    return {str(path.relative_to(queues)): path.read_bytes() for path in queues.rglob("*") if path.is_file()}


def test_every_entry_of_apache_points_to_the_record_it_should(name: str, apache: Path) -> None:
    found = {(queue.topic, queue.queue_id): read(queue) for queue in apache_queues(apache)}
    assert found == expected_queues(name)
    assert sum(map(len, found.values())) > 1500


def test_opening_apaches_queues_changes_none_of_their_bytes(apache: Path) -> None:
    before = files_under(apache)
    apache_queues(apache).close()
    assert files_under(apache) == before


def test_queues_made_from_the_log_have_apaches_very_bytes(name: str, apache: Path, tmp_path: Path) -> None:
    ours = open_queues(tmp_path / "ours", file_bytes=QUEUE_FILE_BYTES, open_files_max=8)
    for number, view in enumerate(queued_records(name)):
        queue = ours.get_or_create(view.topic, view.queue_id)
        assert queue.append_at(view.queue_offset, *entry_of(view))
        if number % 97 == 0:
            ours.write_dirty()
    ours.write_dirty()
    assert files_under(tmp_path / "ours") == files_under(apache)


def test_dispatching_the_whole_log_again_adds_nothing(name: str, apache: Path) -> None:
    queues = apache_queues(apache)
    for view in queued_records(name):
        assert not queues.get_or_create(view.topic, view.queue_id).append_at(view.queue_offset, *entry_of(view))


def test_queues_cut_with_the_log_and_dispatched_again_are_the_same(name: str, apache: Path) -> None:
    before = files_under(apache)
    queues = apache_queues(apache)
    queues.truncate(queues.max_physical // 2)
    queues.write_dirty()
    assert files_under(apache) != before
    for view in queued_records(name):
        queues.get_or_create(view.topic, view.queue_id).append_at(view.queue_offset, *entry_of(view))
    queues.write_dirty()
    assert files_under(apache) == before
