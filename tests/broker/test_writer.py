"""What is put into the log, and how it waits to be durable."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.broker.settings import BrokerSettings
from ariane.broker.writer import (
    TIMER_OUT_MS,
    Deferred,
    DelayRules,
    InboundMessage,
    MessageWriter,
    deferred,
    draft_of,
    inbound_message_of,
    wants_durable,
)
from ariane.errors import MessageRefused, RecordError, StoreReadOnly
from ariane.model.system_topics import DEFAULT_LEVELS, SCHEDULE, TIMER, parse_levels
from ariane.store.consume_queue.entry import ENTRY
from ariane.store.service import StoreService
from ariane.store.settings import FlushDiskType, StoreSettings
from ariane.testing import FakeClock
from ariane.wire.codes import ResponseCode
from ariane.wire.hashes import tags_code
from ariane.wire.properties import CHECKSUM_PROPERTY, decode_properties
from tests.broker.blocked_sync import SyncGate
from tests.broker.in_process_broker import STORE_HOST

LEVELS = parse_levels(DEFAULT_LEVELS)
RULES = DelayRules(LEVELS, True, 7 * 86_400)
NOW = 1_700_000_000_000


def message(**changes: object) -> InboundMessage:
    fields: dict[str, object] = {
        "topic": "orders",
        "queue_id": 3,
        "body": b"hello",
        "properties": {},
        "born_timestamp_ms": 5,
        "born_host": STORE_HOST,
    }
    return InboundMessage(**{**fields, **changes})  # type: ignore[arg-type]


def put_aside(**changes: object) -> Deferred:
    found = deferred(message(**changes), RULES, NOW)
    assert found is not None
    return found


# --- delays ---------------------------------------------------------------------------------------------------------


def test_a_message_without_a_delay_is_for_now() -> None:
    assert deferred(message(properties={"TAGS": "a"}), RULES, NOW) is None


@pytest.mark.parametrize("level", range(1, 19))
def test_each_level_has_its_own_queue_and_its_own_delay(level: int) -> None:
    found = put_aside(properties={"DELAY": str(level)})
    assert (found.message.topic, found.message.queue_id) == (SCHEDULE, level - 1)
    assert found.delay_ms == LEVELS[level - 1]
    assert found.message.properties == {"DELAY": str(level), "REAL_TOPIC": "orders", "REAL_QID": "3"}


def test_a_level_above_the_table_is_the_longest() -> None:
    found = put_aside(properties={"DELAY": "99"})
    assert found.message.properties["DELAY"] == "18"
    assert found.delay_ms == LEVELS[-1]


@pytest.mark.parametrize("level", ["0", "-1"])
def test_a_level_of_zero_or_less_is_no_delay(level: str) -> None:
    assert deferred(message(properties={"DELAY": level}), RULES, NOW) is None


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
@pytest.mark.parametrize("text", ["soon", "1.5", "٣", "9" * 21, "--1"])
def test_a_delay_that_is_no_number_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(MessageRefused, match=name):
        deferred(message(properties={name: text}), RULES, NOW)


@pytest.mark.parametrize("sys_flag", [0x4, 0xC])
def test_prepared_and_rolled_back_messages_are_never_put_aside(sys_flag: int) -> None:
    assert deferred(message(sys_flag=sys_flag, properties={"DELAY": "3"}), RULES, NOW) is None


def test_a_committed_message_may_be_delayed() -> None:
    assert put_aside(sys_flag=0x8, properties={"DELAY": "3"}).message.topic == SCHEDULE


@pytest.mark.parametrize(
    ("properties", "due_ms"),
    [
        ({"TIMER_DELAY_SEC": "60"}, NOW + 60_000),
        ({"TIMER_DELAY_MS": "1500"}, NOW + 1500),
        ({"TIMER_DELIVER_MS": str(NOW + 1)}, NOW + 1),
        ({"TIMER_DELAY_SEC": "1", "TIMER_DELAY_MS": "2", "TIMER_DELIVER_MS": "3"}, NOW + 1000),
    ],
)
def test_a_delivery_time_goes_to_the_timer(properties: dict[str, str], due_ms: int) -> None:
    found = put_aside(properties=properties)
    assert (found.message.topic, found.message.queue_id, found.delay_ms) == (TIMER, 0, 0)
    assert found.message.properties[TIMER_OUT_MS] == str(due_ms)
    assert found.message.properties["REAL_TOPIC"] == "orders"
    assert found.message.properties["REAL_QID"] == "3"


@pytest.mark.parametrize("due_ms", [NOW, NOW - 1, 0, -5])
def test_a_delivery_time_that_is_past_is_now(due_ms: int) -> None:
    assert deferred(message(properties={"TIMER_DELIVER_MS": str(due_ms)}), RULES, NOW) is None


def test_a_delay_level_wins_over_a_delivery_time() -> None:
    found = put_aside(properties={"DELAY": "2", "TIMER_DELAY_SEC": "60"})
    assert found.message.topic == SCHEDULE
    assert "TIMER_DELAY_SEC" not in found.message.properties


def test_a_delivery_time_too_far_ahead_is_refused_with_the_limit_and_its_key() -> None:
    assert put_aside(properties={"TIMER_DELAY_SEC": str(7 * 86_400)}).message.topic == TIMER
    with pytest.raises(MessageRefused, match="timerMaxDelaySec = 604800"):
        deferred(message(properties={"TIMER_DELAY_SEC": str(7 * 86_400 + 1)}), RULES, NOW)


def test_a_delivery_time_is_refused_when_the_timer_is_off() -> None:
    with pytest.raises(MessageRefused, match="timerWheelEnable"):
        deferred(message(properties={"TIMER_DELAY_SEC": "1"}), RULES._replace(timer_enable=False), NOW)


def test_the_message_that_was_given_is_not_changed() -> None:
    given_one = message(properties={"DELAY": "2"})
    deferred(given_one, RULES, NOW)
    assert given_one.properties == {"DELAY": "2"}
    assert given_one.topic == "orders"


# --- drafts ---------------------------------------------------------------------------------------------------------


def test_a_draft_has_the_unique_key_first_then_the_keys_and_the_hash_of_the_tags() -> None:
    draft = draft_of(message(properties={"KEYS": "a  b", "UNIQ_KEY": "u", "TAGS": "red"}))
    assert draft.keys == ("u", "a", "b")
    assert draft.tags_code == tags_code("red")


@pytest.mark.parametrize("properties", [{"a": "x\x02y"}, {"a": "x\x01y"}, {"a": ""}, {"": "x"}, {"a": "\ud800"}])
def test_a_property_that_cannot_be_written_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(MessageRefused):
        draft_of(message(properties=properties))


# --- into the log ---------------------------------------------------------------------------------------------------


def settings_at(tmp_path: Path, flush: FlushDiskType = FlushDiskType.ASYNC, **changes: int) -> BrokerSettings:
    sizes = {"segment_bytes": 65_536, "queue_segment_bytes": 2000}
    store = StoreSettings(root=tmp_path, flush_disk_type=flush, **{**sizes, **changes})  # type: ignore[arg-type]
    return BrokerSettings(store=store, name="broker-a")


async def test_a_stored_message_can_be_put_again_as_it_was(tmp_path: Path) -> None:
    settings, clock = settings_at(tmp_path), FakeClock(NOW)
    async with StoreService.open(settings.store, clock, STORE_HOST) as service:
        writer = MessageWriter(service, settings, clock)
        first = message(properties={"TAGS": "a", "KEYS": "k"}, flag=7, sys_flag=1, reconsume_times=2)
        appended = writer.put(first)
        record = service.store.lookup.record_at(appended.physical_offset)
        assert record is not None
        assert inbound_message_of(record) == first


async def test_a_record_checksum_is_not_put_again(tmp_path: Path) -> None:
    settings, clock = settings_at(tmp_path), FakeClock(NOW)
    async with StoreService.open(settings.store, clock, STORE_HOST) as service:
        appended = MessageWriter(service, settings, clock).append(
            draft_of(message(properties={"a": "b", CHECKSUM_PROPERTY: "0", "c": "d"}))
        )
        record = service.store.lookup.record_at(appended.physical_offset)
        assert record is not None
        assert inbound_message_of(record).properties == {"a": "b", "c": "d"}


def test_bytes_that_are_no_record_cannot_be_put_again() -> None:
    with pytest.raises(RecordError):
        inbound_message_of(memoryview(bytes(200)))


async def test_a_delayed_message_carries_its_delivery_time_in_the_queue_entry(tmp_path: Path) -> None:
    settings, clock = settings_at(tmp_path), FakeClock(NOW)
    async with StoreService.open(settings.store, clock, STORE_HOST) as service:
        MessageWriter(service, settings, clock).put(message(properties={"DELAY": "3", "TAGS": "red"}))
        queue = service.store.components.queues.get(SCHEDULE, 2)
        assert queue is not None
        assert ENTRY.unpack(queue.entries(0, 1))[2] == NOW + 10_000


async def test_a_refused_message_is_raised_and_leaves_nothing(tmp_path: Path) -> None:
    settings, clock = settings_at(tmp_path), FakeClock(NOW)
    async with StoreService.open(settings.store, clock, STORE_HOST) as service:
        writer = MessageWriter(service, settings, clock)
        with pytest.raises(MessageRefused, match="32767"):
            writer.put(message(properties={"a": "x" * 40_000}))
        with pytest.raises(MessageRefused):
            writer.put_together([message(), message(body=bytes(5 * 1024 * 1024))])
        assert service.store.components.commit_log.max_offset == 0


async def test_a_store_that_refuses_tells_everybody_without_piling_up_tracebacks(tmp_path: Path) -> None:
    settings, clock = settings_at(tmp_path), FakeClock(NOW)
    async with StoreService.open(settings.store, clock, STORE_HOST) as service:
        service.store.flusher.failed(OSError(5, "broken"))
        writer = MessageWriter(service, settings, clock)
        depths = set()
        for _ in range(3):
            with pytest.raises(StoreReadOnly) as caught:
                writer.put(message())
            depths.add(len(caught.traceback))
        assert len(depths) == 1


async def test_a_batch_is_stored_side_by_side(tmp_path: Path) -> None:
    settings, clock = settings_at(tmp_path), FakeClock(NOW)
    async with StoreService.open(settings.store, clock, STORE_HOST) as service:
        appended = MessageWriter(service, settings, clock).put_together([message(), message(body=b"two")])
        assert [outcome.queue_offset for outcome in appended] == [0, 1]
        assert appended[0].end == appended[1].physical_offset


# --- durable --------------------------------------------------------------------------------------------------------


async def test_with_sync_flush_a_message_is_durable_when_the_disk_says_so(tmp_path: Path) -> None:
    settings, clock = settings_at(tmp_path, FlushDiskType.SYNC), FakeClock(NOW)
    async with StoreService.open(settings.store, clock, STORE_HOST) as service:
        writer = MessageWriter(service, settings, clock)
        appended = writer.put(message())
        assert not writer.is_safe(appended)
        assert await writer.settled(appended) is ResponseCode.SUCCESS
        assert writer.is_safe(appended)
        assert await writer.settled([]) is ResponseCode.SUCCESS


async def test_with_async_flush_nobody_waits(tmp_path: Path) -> None:
    settings, clock = settings_at(tmp_path), FakeClock(NOW)
    async with StoreService.open(settings.store, clock, STORE_HOST) as service:
        writer = MessageWriter(service, settings, clock)
        appended = writer.put(message())
        assert writer.is_safe(appended)
        assert await writer.settled(appended) is ResponseCode.SUCCESS


async def test_a_sync_that_takes_too_long_is_a_flush_disk_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, clock = settings_at(tmp_path, FlushDiskType.SYNC, sync_flush_timeout_ms=1), FakeClock(NOW)
    gate = SyncGate(monkeypatch)
    async with StoreService.open(settings.store, clock, STORE_HOST) as service:
        writer = MessageWriter(service, settings, clock)
        with gate.held():
            appended = writer.put(message())
            assert await writer.settled(appended) is ResponseCode.FLUSH_DISK_TIMEOUT
            assert await writer.settled(appended, wait=False) is ResponseCode.SUCCESS
            assert writer.waiting == 0


async def test_a_failed_sync_is_never_taken_for_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, clock = settings_at(tmp_path, FlushDiskType.SYNC), FakeClock(NOW)
    gate = SyncGate(monkeypatch)
    async with StoreService.open(settings.store, clock, STORE_HOST) as service:
        writer = MessageWriter(service, settings, clock)
        gate.fail()
        appended = writer.put(message())
        with pytest.raises(StoreReadOnly):
            await writer.settled(appended)


async def test_who_waits_and_for_how_long_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, clock = settings_at(tmp_path, FlushDiskType.SYNC), FakeClock(NOW)
    gate = SyncGate(monkeypatch)
    async with StoreService.open(settings.store, clock, STORE_HOST) as service:
        writer = MessageWriter(service, settings, clock)
        with gate.held():
            appended = writer.put(message())
            assert (writer.waiting, writer.longest_wait_ms) == (0, 0)
            waiter = asyncio.ensure_future(writer.settled(appended))
            await clock.advance(0.3)
            assert (writer.waiting, writer.longest_wait_ms) == (1, 300)
        assert await waiter is ResponseCode.SUCCESS
        assert writer.waiting == 0


@pytest.mark.parametrize(("text", "waits"), [(None, True), ("true", True), ("false", False), ("FALSE", False)])
def test_wait_false_means_not_to_wait(text: str | None, waits: bool) -> None:
    assert wants_durable({} if text is None else {"WAIT": text}) is waits


@given(st.dictionaries(st.text(min_size=1), st.text(min_size=1), max_size=4))
def test_any_properties_are_stored_whole_or_refused(properties: dict[str, str]) -> None:
    try:
        draft = draft_of(message(properties=properties))
    except MessageRefused:
        return
    assert decode_properties(draft.properties) == properties
