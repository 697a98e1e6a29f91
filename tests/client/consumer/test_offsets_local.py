import asyncio
from pathlib import Path

import pytest

from ariane.client.consumer.offsets import LocalFileOffsetStore, offsets_file
from ariane.errors import StoreCorrupt
from ariane.model.route import MessageQueue

QUEUE = MessageQueue(topic="orders", broker_name="a", queue_id=0)
OTHER = MessageQueue(topic="orders", broker_name="a", queue_id=1)


async def test_what_was_saved_is_there_for_the_next_process(tmp_path: Path) -> None:
    path = offsets_file("10.0.0.1@DEFAULT", "group", tmp_path)
    assert await LocalFileOffsetStore(path).save({QUEUE: 5, OTHER: 7}) == {QUEUE, OTHER}
    again = LocalFileOffsetStore(path)
    assert (await again.load(QUEUE), await again.load(OTHER)) == (5, 7)


async def test_the_file_has_apaches_form(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    await LocalFileOffsetStore(path).save({QUEUE: 5})
    assert path.read_bytes() == b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"orders"}:5}}'


async def test_a_file_that_apaches_client_wrote_is_read(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_text(
        '{\n\t"offsetTable":{{\n\t\t"brokerName":"a",\n\t\t"queueId":0,\n\t\t"topic":"orders"\n\t}:42\n\t}\n}'
    )
    assert await LocalFileOffsetStore(path).load(QUEUE) == 42


async def test_a_damaged_file_gives_way_to_the_edition_before(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    offsets = LocalFileOffsetStore(path)
    await offsets.save({QUEUE: 5})
    await offsets.save({QUEUE: 6})
    path.write_bytes(b"\x00\x00")
    assert await LocalFileOffsetStore(path).load(QUEUE) == 5


async def test_damage_to_both_editions_is_no_reason_to_begin_anew_silently(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(b"[")
    with pytest.raises(StoreCorrupt, match="delete both"):
        await LocalFileOffsetStore(path).load(QUEUE)


async def test_a_directory_that_cannot_be_written_keeps_the_offsets_due(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    assert await LocalFileOffsetStore(blocked / "offsets.json").save({QUEUE: 1}) == set()


async def test_nothing_is_known_of_a_new_consumer(tmp_path: Path) -> None:
    assert await LocalFileOffsetStore(tmp_path / "offsets.json").load(QUEUE) is None


async def test_queues_that_save_at_the_same_time_do_not_spoil_the_file(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    offsets = LocalFileOffsetStore(path)
    queues = [MessageQueue(topic="orders", broker_name="a", queue_id=number) for number in range(20)]
    saved = await asyncio.gather(*(offsets.save({queue: 7}) for queue in queues))
    assert saved == [{queue} for queue in queues]
    assert [await LocalFileOffsetStore(path).load(queue) for queue in queues] == [7] * 20
