"""A broker whose topics.json is lost: it does not start without the topics, and names the file and the fix."""

import re
from pathlib import Path

import pytest

from ariane.cli.main import main
from ariane.errors import StoreCorrupt, sole_cause
from ariane.model.topic import TopicConfig
from ariane.store.append.draft import Appended
from tests.broker.brokers import running_broker
from tests.store.stores import draft


async def _fill(tmp_path: Path) -> Path:
    async with running_broker(tmp_path) as broker:
        broker.parts.topics.put(TopicConfig(topic_name="orders", read_queue_nums=1, write_queue_nums=1))
        await broker.parts.topics.saved()
        (stored,) = await broker.parts.store.append([draft(b"hello")])
        assert isinstance(stored, Appended)
        return broker.settings.store.root / "config"


async def _refusal(tmp_path: Path) -> str:
    with pytest.raises((StoreCorrupt, ExceptionGroup)) as caught:
        async with running_broker(tmp_path):
            pass
    error = sole_cause(caught.value)
    assert isinstance(error, StoreCorrupt)
    return str(error)


async def test_a_lost_table_of_topics_stops_the_start_until_it_is_accepted(tmp_path: Path) -> None:
    config = await _fill(tmp_path)
    for path in config.iterdir():
        path.unlink()
    assert re.search(r"topics\.json is missing, but .* \(orders\).*accept-config", await _refusal(tmp_path))
    assert main(["store", "accept-config", str(config.parent)]) == 0
    async with running_broker(tmp_path) as broker:
        assert broker.parts.topics.get("orders") is not None


async def test_a_new_store_has_its_table_of_topics_before_its_first_message(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        assert (broker.settings.store.root / "config" / "topics.json").exists()


async def test_a_lost_table_stops_the_start_though_its_list_is_there(tmp_path: Path) -> None:
    config = await _fill(tmp_path)
    for name in ("topics.json", "topics.json.bak"):
        (config / name).unlink()
    assert "topics.json and topics.json.bak are missing" in await _refusal(tmp_path)


async def test_a_topic_that_is_not_in_the_table_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = await _fill(tmp_path)
    (config / "topics.json").write_text('{"dataVersion":{"counter":1,"timestamp":1},"topicConfigTable":{}}')
    async with running_broker(tmp_path):
        assert "topics that are not in the table have queues" in caplog.text
