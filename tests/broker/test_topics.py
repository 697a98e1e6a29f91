"""Topics: creation, validation and persistence."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ariane.broker.json_table import JsonTable
from ariane.broker.settings import BrokerSettings
from ariane.broker.topics import QUEUES_MAX, Topics
from ariane.errors import RequestFailed, StoreCorrupt, StoreError
from ariane.model.system_topics import is_system, is_writable_by_clients
from ariane.model.topic import Permission, TopicConfig
from ariane.store.disk import RealDisk
from ariane.testing import FakeClock
from ariane.wire.codes import ResponseCode

OF_APACHE_5 = """{
	"dataVersion":{"counter":7,"stateVersion":0,"timestamp":1700000000000},
	"topicConfigTable":{
		"orders":{"attributes":{"+message.type":"FIFO"},"order":true,"perm":6,"readQueueNums":8,
			"topicFilterType":"SINGLE_TAG","topicName":"orders","topicSysFlag":0,"writeQueueNums":4},
		"ip-10-0-0-1.internal":{"order":false,"perm":7,"readQueueNums":1,"topicFilterType":"SINGLE_TAG",
			"topicName":"ip-10-0-0-1.internal","topicSysFlag":0,"writeQueueNums":1},
		"TBW102":{"order":false,"perm":7,"readQueueNums":8,"topicFilterType":"SINGLE_TAG",
			"topicName":"TBW102","topicSysFlag":0,"writeQueueNums":8}
	}
}"""


def topics_of(file: JsonTable | None = None, **settings: Any) -> Topics:
    return Topics(BrokerSettings(name="broker-a", **settings), file, FakeClock())


def file_under(tmp_path: Path) -> JsonTable:
    return JsonTable(RealDisk(), tmp_path / "config" / "topics.json")


def topic(name: str = "orders", read: int = 4, write: int = 4, **rest: Any) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=read, write_queue_nums=write, **rest)


def failure(call: Any, *arguments: Any) -> RequestFailed:
    with pytest.raises(RequestFailed) as caught:
        call(*arguments)
    return caught.value


async def test_a_topic_outlives_the_process(tmp_path: Path) -> None:
    topics = topics_of(file_under(tmp_path))
    topics.put(topic(order=True))
    assert not topics.is_saved("orders")
    await topics.saved()
    assert topics.is_saved("orders")
    again = topics_of(file_under(tmp_path))
    assert again.get("orders") == topic(order=True)
    assert again.version == topics.version


async def test_the_file_is_what_apache_writes(tmp_path: Path) -> None:
    file = file_under(tmp_path)
    topics = topics_of(file)
    topics.put(topic())
    await topics.saved()
    written = json.loads(file.path.read_text())
    assert list(written) == ["arianeCrc32", "arianeSaves", "dataVersion", "topicConfigTable"]
    assert written["dataVersion"] == {"counter": 1, "timestamp": 1_700_000_000_000}
    assert written["topicConfigTable"]["orders"] == {
        "order": False, "perm": 6, "readQueueNums": 4, "topicFilterType": "SINGLE_TAG",
        "topicName": "orders", "topicSysFlag": 0, "writeQueueNums": 4,
    }  # fmt: skip


def test_a_file_of_apache_5_is_read_without_invalid_topic_names(tmp_path: Path) -> None:
    file = file_under(tmp_path)
    file.path.parent.mkdir()
    file.path.write_text(OF_APACHE_5)
    topics = topics_of(file)
    assert topics.get("orders") == topic(read=8, order=True)
    assert topics.get("ip-10-0-0-1.internal") is None
    assert topics.version.counter == 7


def test_an_old_template_does_not_auto_create_topics_when_disabled(tmp_path: Path) -> None:
    file = file_under(tmp_path)
    file.path.parent.mkdir()
    file.path.write_text(OF_APACHE_5)
    assert topics_of(file).get("TBW102").perm == Permission.READ_WRITE  # type: ignore[union-attr]
    assert topics_of(file, auto_create_topics=True).for_send("new", "TBW102", 4)


def test_a_file_that_is_not_a_table_is_an_error_with_a_hint(tmp_path: Path) -> None:
    file = file_under(tmp_path)
    file.path.parent.mkdir()
    file.path.write_text('{"topicConfigTable":{"T":{"readQueueNums":"many"}}}')
    with pytest.raises(StoreCorrupt, match=r"topics\.json.*accept-config"):
        topics_of(file)


def test_every_change_has_a_new_version_and_notifies_listeners() -> None:
    topics = topics_of()
    changes: list[TopicConfig | None] = []
    topics.on_change(changes.append)
    topics.put(topic())
    topics.delete("orders")
    assert not topics.delete("orders")
    assert changes == [topic(), None]
    assert topics.version.counter == 2


async def test_a_change_that_cannot_be_saved_is_an_error_until_it_can(tmp_path: Path) -> None:
    topics = topics_of(JsonTable(RealDisk(), tmp_path / "file" / "topics.json"))
    (tmp_path / "file").write_text("not a directory")
    topics.put(topic())
    with pytest.raises(StoreError, match="cannot be saved"):
        await topics.saved()
    assert not topics.is_saved("orders")
    (tmp_path / "file").unlink()
    await topics.saved()
    assert topics.is_saved("orders")
    assert topics_of(JsonTable(RealDisk(), tmp_path / "file" / "topics.json")).get("orders") == topic()


async def test_what_changes_during_a_save_is_not_saved_yet(tmp_path: Path) -> None:
    topics = topics_of(file_under(tmp_path))
    topics.put(topic("first"))
    saving = asyncio.ensure_future(topics.saved())
    await asyncio.sleep(0)  # its snapshot is taken
    topics.put(topic("second"))
    await saving
    assert (topics.is_saved("first"), topics.is_saved("second")) == (True, False)


# --- made by sending


def test_a_send_creates_no_topic_unless_enabled() -> None:
    error = failure(topics_of().for_send, "orders", "TBW102", 4)
    assert error.code == ResponseCode.TOPIC_NOT_EXIST
    assert "autoCreateTopicEnable" in error.remark
    assert "updateTopic" in error.remark


@pytest.mark.parametrize(("requested", "created"), [(4, 4), (8, 8), (100, 8), (0, 1), (-1, 1)])
def test_an_auto_created_topic_has_the_requested_queues_up_to_the_template(requested: int, created: int) -> None:
    config = topics_of(auto_create_topics=True).for_send("orders", "TBW102", requested)
    assert config == topic(read=created, write=created)


def test_only_a_template_that_may_be_inherited_makes_topics() -> None:
    topics = topics_of(auto_create_topics=True)
    topics.put(topic("plain"))
    assert failure(topics.for_send, "orders", "plain", 4).code == ResponseCode.TOPIC_NOT_EXIST
    assert failure(topics.for_send, "orders", "nowhere", 4).code == ResponseCode.TOPIC_NOT_EXIST
    assert topics.get("orders") is None


def test_a_retry_topic_is_always_made() -> None:
    assert topics_of().for_send("%RETRY%group", "TBW102", 4) == topic("%RETRY%group", 1, 1)


def test_a_topic_with_an_invalid_name_is_never_created() -> None:
    assert "may hold only" in failure(topics_of(auto_create_topics=True).for_send, "../etc", "TBW102", 4).remark
    assert "may hold only" in failure(topics_of().for_send, "%RETRY%../etc", "TBW102", 4).remark


def test_ensure_keeps_an_existing_topic() -> None:
    topics = topics_of()
    topics.put(topic(perm=4))
    assert topics.ensure("orders", 9) == topic(perm=4)
    assert topics.ensure("%DLQ%g", 1, perm=2) == topic("%DLQ%g", 1, 1, perm=2)


# --- what they may look like


@pytest.mark.parametrize(
    ("config", "remark"),
    [
        (topic(""), "empty"),
        (topic("a b"), "may hold only"),
        (topic("x" * 128), "at most 127"),
        (topic(read=0), "readQueueNums"),
        (topic(write=-1), "writeQueueNums"),
        (topic(write=QUEUES_MAX + 1), str(QUEUES_MAX)),
        (topic(perm=16), "perm is 16"),
        (topic(perm=-1), "perm is -1"),
    ],
)
def test_an_invalid_topic_is_rejected_and_nothing_changes(config: TopicConfig, remark: str) -> None:
    topics = topics_of()
    assert remark in failure(topics.put, config).remark
    assert topics.version.counter == 0


def test_fewer_queues_replace_the_numbers_and_nothing_else() -> None:
    topics = topics_of()
    topics.put(topic(read=8, write=8))
    topics.put(topic(read=8, write=4))
    assert topics.get("orders") == topic(read=8, write=4)


def test_the_number_of_topics_is_limited() -> None:
    topics = topics_of(topics_max=100)
    for number in range(100 - len(topics.all())):
        topics.put(topic(f"t{number}"))
    assert "topics_max" in failure(topics.put, topic("one-more")).remark
    topics.put(topic("t0", read=8))  # a known one may still change


# --- ordered topics


def test_order_flags_follow_the_nameserver() -> None:
    topics = topics_of()
    topics.put(topic("a"))
    topics.put(topic("b", order=True))
    topics.apply_order_configs({"a": "broker-a:4", "unknown": "broker-a:4"})
    assert (topics.get("a"), topics.get("b")) == (topic("a", order=True), topic("b"))
    version = topics.version
    topics.apply_order_configs(["a"])
    assert topics.version == version  # nothing new, nothing saved, no listener called


# --- system topics


def test_system_topics_are_there_from_the_start() -> None:
    topics = topics_of(auto_create_topics=True)
    queues = {name: topics.all()[name].write_queue_nums for name in topics.system_topics()}
    assert queues == {
        "SELF_TEST_TOPIC": 1, "OFFSET_MOVED_EVENT": 1, "TBW102": 8, "BenchmarkTest": 1024, "DefaultCluster": 16,
        "broker-a": 1, "SCHEDULE_TOPIC_XXXX": 18, "RMQ_SYS_TRACE_TOPIC": 1, "DefaultCluster_REPLY_TOPIC": 1,
    }  # fmt: skip


def test_a_host_name_that_is_not_a_valid_topic_creates_none() -> None:
    settings = BrokerSettings(name="ip-10-0-0-1.internal")
    assert "ip-10-0-0-1.internal" not in Topics(settings, None, FakeClock()).all()


@pytest.mark.parametrize(
    "name", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_c"]
)
def test_clients_cannot_send_to_internal_topics(name: str) -> None:
    assert is_system(name)
    assert not is_writable_by_clients(name)


@pytest.mark.parametrize("name", ["TBW102", "RMQ_SYS_TRACE_TOPIC", "BenchmarkTest"])
def test_clients_may_send_to_some_system_topics(name: str) -> None:
    assert is_system(name)
    assert is_writable_by_clients(name)
