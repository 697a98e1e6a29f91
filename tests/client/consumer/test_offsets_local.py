"""Offsets of broadcast consumers in a file: format, backup, damage."""

import asyncio
from pathlib import Path

import pytest

from ariane.client.consumer.offsets import LocalFileOffsetStore, offsets_file
from ariane.errors import StoreCorrupt
from ariane.model.route import MessageQueue

QUEUE = MessageQueue(topic="orders", broker_name="a", queue_id=0)
OTHER = MessageQueue(topic="orders", broker_name="a", queue_id=1)


async def test_saved_offsets_are_read_by_the_next_process(tmp_path: Path) -> None:
    path = offsets_file("10.0.0.1@DEFAULT", "group", tmp_path)
    assert await LocalFileOffsetStore(path).save({QUEUE: 5, OTHER: 7}) == {QUEUE, OTHER}
    again = LocalFileOffsetStore(path)
    assert (await again.load(QUEUE), await again.load(OTHER)) == (5, 7)


async def test_the_file_has_apaches_format(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    await LocalFileOffsetStore(path).save({QUEUE: 5})
    assert path.read_bytes() == b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"orders"}:5}}'


async def test_a_file_that_apaches_client_wrote_is_read(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_text(
        '{\n\t"offsetTable":{{\n\t\t"brokerName":"a",\n\t\t"queueId":0,\n\t\t"topic":"orders"\n\t}:42\n\t}\n}'
    )
    assert await LocalFileOffsetStore(path).load(QUEUE) == 42


async def test_a_damaged_file_is_replaced_by_its_backup(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    offsets = LocalFileOffsetStore(path)
    await offsets.save({QUEUE: 5})
    await offsets.save({QUEUE: 6})
    path.write_bytes(b"\x00\x00")
    assert await LocalFileOffsetStore(path).load(QUEUE) == 5


async def test_damage_to_file_and_backup_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(b"[")
    with pytest.raises(StoreCorrupt, match="delete both"):
        await LocalFileOffsetStore(path).load(QUEUE)


async def test_offsets_stay_due_if_the_directory_is_not_writable(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    assert await LocalFileOffsetStore(blocked / "offsets.json").save({QUEUE: 1}) == set()


async def test_a_new_consumer_has_no_offsets(tmp_path: Path) -> None:
    assert await LocalFileOffsetStore(tmp_path / "offsets.json").load(QUEUE) is None


async def test_concurrent_saves_do_not_corrupt_the_file(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    offsets = LocalFileOffsetStore(path)
    queues = [MessageQueue(topic="orders", broker_name="a", queue_id=number) for number in range(20)]
    saved = await asyncio.gather(*(offsets.save({queue: 7}) for queue in queues))
    assert saved == [{queue} for queue in queues]
    assert [await LocalFileOffsetStore(path).load(queue) for queue in queues] == [7] * 20
