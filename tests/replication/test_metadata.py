"""Tables that a slave copies from its master: the recorded frames of Apache's, and which master is followed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ariane.errors import ArianeError, CallTimeout, RequestFailed, TransportError
from ariane.replication.hello import VERSION, Identity
from ariane.replication.metadata import VERSION_KEY, MasterDirectory, MetadataSync, Progress, Tables
from ariane.replication.settings import ReplicationSettings
from ariane.replication.slave import MasterTarget
from ariane.rpc.caller import Caller
from ariane.testing import FakeClock
from ariane.wire.codes import ResponseCode
from ariane.wire.exchange import declaration_of, read_request, read_response
from ariane.wire.fields import Request, Response
from ariane.wire.frame import Command, FrameDecoder
from ariane.wire.requests.brokers import (
    BrokerSettingsResponse,
    GetBrokerSettings,
    GetRuntimeInfo,
    KeyValueTable,
    RegisterBroker,
    RuntimeInfoResponse,
)
from ariane.wire.requests.groups import GetGroupTable, GroupTable
from ariane.wire.requests.offsets import (
    TIMER_PROGRESS,
    GetAllConsumerOffsets,
    GetAllDelayOffsets,
    GetTimerProgress,
    TimerProgressResponse,
)
from ariane.wire.requests.topics import GetTopicTable, TopicTable
from tests.broker.in_process_broker import turns
from tests.replication.golden_ha import GOLDEN

A = TypeVar("A", bound=Response)
IDENTITY = Identity("DefaultCluster", "broker-a", 65_536)
MASTER, HA = "10.0.0.1:10911", "10.0.0.1:10912"


def command(name: str) -> Command:
    decoder = FrameDecoder()
    decoder.feed((GOLDEN / f"meta-{name}.bin").read_bytes())
    (found,) = list(decoder)
    return found


LOG_END = 310_362
_UNRECORDED: dict[type[Any], Response] = {
    GetBrokerSettings: BrokerSettingsResponse(body="brokerName=broker-a\n"),
    GetRuntimeInfo: RuntimeInfoResponse(body=KeyValueTable(table={"commitLogMaxOffset": str(LOG_END)})),
}


class RecordedMaster(Caller):
    """Answers as the recorded master did; other requests as given here."""

    def __init__(self, answers: Mapping[type[Any], Response | ArianeError] | None = None) -> None:
        self.answers = dict(answers or {})
        self.asked: list[str] = []
        self.asked_deletions: list[bool | None] = []

    async def call(self, address: str, request: Request[A], timeout_s: float | None = None) -> A:
        self.asked.append(type(request).__name__)
        if isinstance(request, GetTopicTable):
            self.asked_deletions.append(request.with_deletions)
        answer = self.answers.get(type(request), _UNRECORDED.get(type(request)))
        if isinstance(answer, ArianeError):
            raise answer
        if answer is not None:
            return answer  # type: ignore[return-value]
        name = {
            GetTopicTable: "topics",
            GetGroupTable: "subscription-groups",
            GetAllConsumerOffsets: "consumer-offsets",
            GetAllDelayOffsets: "delay-offsets",
        }[type(request)]
        return read_response(request, command(f"{name}.answer"))


class CopiedTables:
    def __init__(self) -> None:
        self.topics: TopicTable | None = None
        self.groups: GroupTable | None = None
        self.progress: Progress | None = None

    def tables(self) -> Tables:
        async def topics(table: TopicTable) -> None:
            self.topics = table

        async def groups(table: GroupTable) -> None:
            self.groups = table

        async def progress(new: Progress) -> None:
            self.progress = new

        return Tables(topics, groups, progress)


class Position:
    """Of a slave's log."""

    def __init__(self, dispatched_to: int = LOG_END) -> None:
        self.dispatched_to = dispatched_to
        self.topic_count = 0


def a_directory(caller: Caller, **settings: Any) -> MasterDirectory:
    directory = MasterDirectory(caller, ReplicationSettings(**settings), IDENTITY)
    directory.learn(MASTER, HA)
    directory.ask_by(lambda: None)
    return directory


def shown(**settings: str) -> BrokerSettingsResponse:
    facts = {"brokerClusterName": "DefaultCluster", "brokerName": "broker-a", "mappedFileSizeCommitLog": "65536"}
    return BrokerSettingsResponse(body="".join(f"{key}={value}\n" for key, value in {**facts, **settings}.items()))


async def test_the_recorded_tables_of_apaches_master_are_copied() -> None:
    caller, copied = RecordedMaster(), CopiedTables()
    sync = MetadataSync(a_directory(caller), caller, copied.tables(), Position())
    await sync.run()
    assert sync.synced == 1
    tables = ["GetTopicTable", "GetAllConsumerOffsets", "GetAllDelayOffsets"]
    assert caller.asked == ["GetBrokerSettings", *tables, "GetRuntimeInfo", "GetGroupTable"]
    assert copied.topics is not None
    assert "golden" in copied.topics.topic_config_table
    assert copied.groups is not None
    assert "TOOLS_CONSUMER" in copied.groups.subscription_group_table
    assert copied.progress is not None
    assert copied.progress.offsets
    assert copied.progress.delays
    assert copied.progress.timer is None
    assert not copied.progress.is_of_ours, "as Apache's slave does it: the master is not known to be ours"


async def test_what_fails_does_not_stop_the_rest_and_without_a_master_nothing_is_asked() -> None:
    caller, copied = RecordedMaster({GetTopicTable: CallTimeout("no response")}), CopiedTables()
    directory = a_directory(caller)
    sync = MetadataSync(directory, caller, copied.tables(), Position())
    await sync.run()
    assert sync.synced == 0
    assert copied.topics is None
    assert copied.groups is not None
    directory.learn(None, None)
    asked = len(caller.asked)
    await sync.run()
    assert len(caller.asked) == asked


async def test_topics_are_copied_as_soon_as_the_log_has_a_new_one() -> None:
    caller, copied, followed = RecordedMaster(), CopiedTables(), Position()
    async with MetadataSync.open(a_directory(caller), caller, copied.tables(), followed, FakeClock()) as sync:
        sync.dispatched()
        await turns()
        assert caller.asked == []
        for count in (1, 2):
            followed.topic_count = count
            for _ in range(3):
                sync.dispatched()
                await turns()
            assert caller.asked == ["GetTopicTable"] * count, "the clock stands still: this was not the periodic copy"
        assert copied.topics is not None


async def test_topics_of_a_master_that_did_not_answer_are_asked_for_again() -> None:
    clock, followed = FakeClock(), Position()
    caller, copied = RecordedMaster({GetTopicTable: CallTimeout("no response")}), CopiedTables()
    async with MetadataSync.open(a_directory(caller), caller, copied.tables(), followed, clock) as sync:
        followed.topic_count = 1
        sync.dispatched()
        await turns()
        assert caller.asked == ["GetTopicTable"]
        del caller.answers[GetTopicTable]
        await clock.advance(1.0)
        await turns()
        assert caller.asked == ["GetTopicTable"] * 2, "the periodic copy comes later"
        assert copied.topics is not None


async def test_progress_is_taken_over_only_when_the_log_has_what_it_rests_on() -> None:
    caller, copied, position = RecordedMaster(), CopiedTables(), Position(0)
    sync = MetadataSync(a_directory(caller), caller, copied.tables(), position)
    await sync.run()
    position.dispatched_to = LOG_END - 1
    await sync.settle()
    assert copied.topics is not None
    assert copied.progress is None
    position.dispatched_to = LOG_END
    await sync.settle()
    assert copied.progress is not None


async def test_without_the_end_of_the_masters_log_no_progress_is_taken_over() -> None:
    for answer in (
        CallTimeout("no response"),
        RuntimeInfoResponse(),
        a_log_end("x"),
        a_log_end(""),
        a_log_end("9" * 5000),
    ):
        caller, copied = RecordedMaster({GetRuntimeInfo: answer}), CopiedTables()
        sync = MetadataSync(a_directory(caller), caller, copied.tables(), Position())
        await sync.run()
        assert copied.progress is None
        assert sync.synced == 0, "it is reported, and tried again"
        assert copied.groups is not None


def a_log_end(text: str) -> RuntimeInfoResponse:
    return RuntimeInfoResponse(body=KeyValueTable(table={"commitLogMaxOffset": text}))


async def test_a_master_of_ours_is_also_asked_for_deletions_and_for_the_timer() -> None:
    timer = TimerProgressResponse(roll_window_ms=5, body=TIMER_PROGRESS.pack(7, 0, 3, 3))
    ours = {GetBrokerSettings: shown(**{VERSION_KEY: str(VERSION)}), GetTimerProgress: timer}
    caller, copied = RecordedMaster(ours), CopiedTables()
    directory = a_directory(caller)
    await directory.find()
    await MetadataSync(directory, caller, copied.tables(), Position()).run()
    assert copied.progress is not None
    assert copied.progress.is_of_ours
    assert copied.progress.timer == timer
    assert caller.asked_deletions == [True]


@pytest.mark.parametrize("role", ["master", "slave"])
def test_recorded_registrations_name_the_replication_port(role: str) -> None:
    recorded = command(f"register-{role}.request")
    request = read_request(declaration_of(RegisterBroker), recorded)
    assert isinstance(request, RegisterBroker)
    assert request.broker_id == (0 if role == "master" else 1)
    host, _, port = request.ha_server_addr.rpartition(":")
    assert int(port) == int(request.broker_addr.rpartition(":")[2]) + 1
    response = read_response(request, command(f"register-{role}.answer"))
    assert (response.ha_server_addr is None) == (role == "master")
    assert host


async def test_a_master_of_ours_gets_the_native_protocol_and_another_that_of_apache() -> None:
    ours = a_directory(RecordedMaster({GetBrokerSettings: shown(**{VERSION_KEY: str(VERSION)})}))
    assert await ours.find() == MasterTarget(HA, is_native=True)
    assert ours.is_ours
    apaches = a_directory(RecordedMaster({GetBrokerSettings: shown()}))
    assert await apaches.find() == MasterTarget(HA, is_native=False)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"brokerClusterName": "other"}, "brokerClusterName is other"),
        ({"brokerName": "broker-b"}, "brokerName is broker-b"),
        ({"mappedFileSizeCommitLog": "1073741824"}, "1073741824 bytes, ours 65536"),
    ],
)
async def test_a_master_of_another_broker_is_not_followed(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(TransportError, match=reason):
        await a_directory(RecordedMaster({GetBrokerSettings: shown(**settings)})).find()


async def test_a_secret_needs_a_master_of_ours(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret of the cluster")
    with pytest.raises(TransportError, match="secret_file"):
        await a_directory(RecordedMaster({GetBrokerSettings: shown()}), secret_file=secret).find()
    refused = RecordedMaster({GetBrokerSettings: RequestFailed(ResponseCode.NO_PERMISSION, "no")})
    assert (await a_directory(refused, secret_file=secret).find()).is_native
    assert not (await a_directory(refused).find()).is_native


async def test_the_address_of_the_settings_counts_more_than_the_nameservers() -> None:
    directory = a_directory(RecordedMaster({GetBrokerSettings: shown()}), master_address="10.0.0.9:10912")
    assert (await directory.find()).address == "10.0.0.9:10912"
    directory.learn(None, None)
    assert (await directory.find()) == MasterTarget("10.0.0.9:10912", is_native=False), "nobody to ask who it is"


async def test_without_any_address_the_nameservers_are_asked_again() -> None:
    directory, asked = MasterDirectory(RecordedMaster(), ReplicationSettings(), IDENTITY), list[int]()
    directory.ask_by(lambda: asked.append(1))
    with pytest.raises(TransportError, match="haMasterAddress"):
        await directory.find()
    assert asked == [1]


async def test_what_could_not_be_copied_is_known_until_everything_was() -> None:
    caller, copied = RecordedMaster({GetTopicTable: CallTimeout("no response")}), CopiedTables()
    directory = a_directory(caller)
    directory.learn(None, None)
    sync = MetadataSync(directory, caller, copied.tables(), Position())
    await sync.run()
    assert (sync.synced_ms, sync.failure) == (None, "no nameserver knows a master of this brokerName")
    directory.learn(MASTER, HA)
    await sync.run()
    assert (sync.synced_ms, sync.failure) == (None, "topics: no response")
    del caller.answers[GetTopicTable]
    await sync.run()
    assert sync.failure is None
    assert sync.synced_ms is not None
