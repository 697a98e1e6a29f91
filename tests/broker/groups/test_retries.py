"""Send-back, retries and dead letters: attempts, delays, target topics and message properties."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from msgspec import structs

from ariane.broker.groups.configs import Groups
from ariane.broker.groups.dead_letters import retry_target
from ariane.broker.groups.retries import RetryHandlers
from ariane.broker.schedule.delay_levels import DelayedDelivery
from ariane.broker.topics import Topics
from ariane.broker.writer import draft_of
from ariane.errors import RequestFailed
from ariane.model.group import GroupConfig
from ariane.model.system_topics import SCHEDULE, TRANS_HALF
from ariane.model.topic import Permission, TopicConfig
from ariane.rpc.handlers import Call
from ariane.store.append.draft import Appended
from ariane.testing import FakeClock
from ariane.wire.codes import RequestCode, ResponseCode, Version
from ariane.wire.frame import Command
from ariane.wire.message_id import offset_message_id
from ariane.wire.requests.send import SendBack
from tests.broker.schedule_fixtures import ScheduleEnv, message, schedule_env
from tests.store.stores import HOST

GROUP = "billing"
RETRY, DEAD = "%RETRY%billing", "%DLQ%billing"


@dataclass
class RetryEnv:
    store_env: ScheduleEnv
    handlers: RetryHandlers
    topics: Topics
    groups: Groups

    async def send_back(self, stored: Appended | int, version: int = Version.V4_9_4, **changes: Any) -> ResponseCode:
        offset = stored if isinstance(stored, int) else stored.physical_offset
        fields: dict[str, Any] = {"group": GROUP, "delay_level": 0, **changes}
        command = Command(code=RequestCode.CONSUMER_SEND_MSG_BACK, version=version)
        response = await self.handlers.send_back(SendBack(offset=offset, **fields), Call(None, command))  # type: ignore[arg-type]
        return ResponseCode(response.code)


@pytest.fixture
async def env() -> AsyncIterator[RetryEnv]:
    clock = FakeClock()
    async with schedule_env(clock) as store_env:
        topics, groups = Topics(store_env.settings, None, clock), Groups(store_env.settings, None, clock)
        lookup = store_env.service.store.lookup
        yield RetryEnv(
            store_env, RetryHandlers(store_env.writer, lookup, groups, topics, store_env.settings), topics, groups
        )


def with_permission(env: RetryEnv, permission: int) -> RetryEnv:
    handlers = replace(env.handlers, settings=replace(env.store_env.settings, permission=permission))
    return replace(env, handlers=handlers)


async def test_a_message_sent_back_is_delayed_and_delivered_to_the_retry_topic(env: RetryEnv) -> None:
    sent = message(b"body", queue_id=2, KEYS="k", TAGS="t", UNIQ_KEY="u")
    sent.flag = 5
    stored = env.store_env.writer.put(sent)
    assert await env.send_back(stored) == ResponseCode.SUCCESS
    (waiting,) = env.store_env.views(SCHEDULE, 2)  # level 3: 10 s
    assert waiting.properties()["DELAY"] == "3"
    delivery = DelayedDelivery(
        env.store_env.service, env.store_env.writer, env.store_env.delay_offsets, env.store_env.clock
    )
    await env.store_env.clock.advance(10)
    await delivery.deliver_due()
    (view,) = env.store_env.views(RETRY)
    assert view.reconsume_times == 1
    assert (view.flag, view.born_host, view.born_timestamp_ms) == (5, HOST, 1)
    origin = offset_message_id(HOST, stored.physical_offset)
    assert view.properties() == {
        **sent.properties,
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": origin,
        "WAIT": "false",
    }


async def test_the_retry_topic_has_as_many_queues_as_the_group_says(env: RetryEnv) -> None:
    env.groups.put(GroupConfig(group_name=GROUP, retry_queue_nums=3))
    await env.send_back(env.store_env.writer.put(message()))
    config = env.topics.get(RETRY)
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (3, 3, 6)


async def test_the_original_topic_and_id_survive_further_attempts(env: RetryEnv) -> None:
    retried = message(topic=RETRY, RETRY_TOPIC="orders", ORIGIN_MESSAGE_ID="0A")
    retried.reconsume_times = 4
    await env.send_back(env.store_env.writer.put(retried))
    (view,) = env.store_env.views(SCHEDULE, 6)  # level 3 + 4
    properties = view.properties()
    assert (properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"]) == ("orders", "0A")
    assert (properties["DELAY"], view.reconsume_times) == ("7", 5)


async def test_the_client_may_name_the_delay(env: RetryEnv) -> None:
    await env.send_back(env.store_env.writer.put(message()), delay_level=1)
    assert len(env.store_env.views(SCHEDULE, 0)) == 1


async def test_delays_end_at_the_last_level(env: RetryEnv) -> None:
    tired = message(topic=RETRY)
    tired.reconsume_times = 40
    await env.send_back(env.store_env.writer.put(tired), max_reconsume_times=100)
    assert len(env.store_env.views(SCHEDULE, 17)) == 1


@pytest.mark.parametrize("attempts", [16, 17])
async def test_after_the_last_attempt_a_message_is_a_dead_letter_immediately(env: RetryEnv, attempts: int) -> None:
    tired = message(b"dead", topic=RETRY, RETRY_TOPIC="orders")
    tired.reconsume_times = attempts
    assert await env.send_back(env.store_env.writer.put(tired)) == ResponseCode.SUCCESS
    (view,) = env.store_env.views(DEAD)
    assert view.reconsume_times == attempts + 1
    assert view.properties()["RETRY_TOPIC"] == "orders"


async def test_a_remaining_delay_property_does_not_delay_a_dead_letter(env: RetryEnv) -> None:
    """Apache leaves DELAY on what it delivers, and up to 4.9.2 files such a dead letter two hours later."""
    tired = message(b"dead", topic=RETRY, DELAY=18, TIMER_DELAY_SEC=9)
    await env.send_back(env.store_env.writer.append(draft_of(tired)), delay_level=-1)
    assert env.store_env.bodies(DEAD) == [b"dead"]


async def test_a_negative_level_makes_a_dead_letter_immediately(env: RetryEnv) -> None:
    await env.send_back(env.store_env.writer.put(message(b"poison")), delay_level=-1)
    assert env.store_env.bodies(DEAD) == [b"poison"]


async def test_dead_letters_are_readable_and_an_existing_topic_is_unchanged(env: RetryEnv) -> None:
    stored = env.store_env.writer.put(message(b"poison"))
    await env.send_back(stored, delay_level=-1)
    config = env.topics.get(DEAD)
    assert config is not None
    assert (config.perm, config.write_queue_nums) == (Permission.READ | Permission.WRITE, 1)
    env.topics.put(structs.replace(config, perm=int(Permission.WRITE)))  # as 4.7.1 made it
    await env.send_back(stored, delay_level=-1)
    assert env.store_env.bodies(DEAD) == [b"poison", b"poison"]
    assert env.topics.get(DEAD) == structs.replace(config, perm=int(Permission.WRITE))


async def test_a_client_without_a_limit_gets_that_of_the_group(env: RetryEnv) -> None:
    env.groups.put(GroupConfig(group_name=GROUP, retry_max_times=2))
    tired = message(b"dead", topic=RETRY)
    tired.reconsume_times = 2
    stored = env.store_env.writer.put(tired)
    assert await env.send_back(stored, max_reconsume_times=None) == ResponseCode.SUCCESS
    assert await env.send_back(stored, max_reconsume_times=-1) == ResponseCode.SUCCESS
    assert env.store_env.bodies(DEAD) == [b"dead", b"dead"]


async def test_a_limit_of_the_client_wins_over_the_one_of_the_group(env: RetryEnv) -> None:
    env.groups.put(GroupConfig(group_name=GROUP, retry_max_times=2))
    tired = message(b"m", topic=RETRY)
    tired.reconsume_times = 2
    stored = env.store_env.writer.put(tired)
    await env.send_back(stored, max_reconsume_times=3)
    assert env.store_env.bodies(DEAD) == []
    await env.send_back(stored, max_reconsume_times=1)
    assert env.store_env.bodies(DEAD) == [b"m"]


async def test_a_limit_from_before_clients_had_one_is_ignored(env: RetryEnv) -> None:
    await env.send_back(env.store_env.writer.put(message()), version=Version.V3_4_9 - 1, max_reconsume_times=0)
    assert env.store_env.bodies(DEAD) == []


async def test_a_group_without_retry_queues_drops_failed_messages(env: RetryEnv) -> None:
    env.groups.put(GroupConfig(group_name=GROUP, retry_queue_nums=0))
    end = env.store_env.service.store.components.commit_log.max_offset
    assert await env.send_back(12345) == ResponseCode.SUCCESS
    assert env.store_env.service.store.components.commit_log.max_offset == end
    assert env.topics.get(RETRY) is None


@pytest.mark.parametrize("offset", [-1, 7, 10**15])
async def test_an_offset_without_a_message_is_reported(env: RetryEnv, offset: int) -> None:
    env.store_env.writer.put(message())
    with pytest.raises(RequestFailed, match="no consumable message starts") as caught:
        await env.send_back(offset)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR


async def test_a_half_message_cannot_be_made_visible_by_sending_it_back(env: RetryEnv) -> None:
    half = env.store_env.writer.put(message(b"uncommitted", topic=TRANS_HALF))
    with pytest.raises(RequestFailed):
        await env.send_back(half, delay_level=-1)
    assert env.store_env.bodies(DEAD) == []


async def test_an_unknown_group_is_an_error_without_auto_creation(env: RetryEnv) -> None:
    settings = replace(env.store_env.settings, auto_create_groups=False)
    handlers = replace(env.handlers, groups=Groups(settings, None, env.store_env.clock))
    with pytest.raises(RequestFailed) as caught:
        await replace(env, handlers=handlers).send_back(env.store_env.writer.put(message()))
    assert caught.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_a_read_only_broker_rejects_a_message_sent_back(env: RetryEnv) -> None:
    stored = env.store_env.writer.put(message())
    with pytest.raises(RequestFailed, match="brokerPermission = 4") as caught:
        await with_permission(env, 4).send_back(stored)
    assert caught.value.code == ResponseCode.NO_PERMISSION


async def test_a_retry_topic_that_is_not_writable_is_reported(env: RetryEnv) -> None:
    env.topics.put(TopicConfig(topic_name=RETRY, read_queue_nums=1, write_queue_nums=1, perm=int(Permission.READ)))
    with pytest.raises(RequestFailed, match="%RETRY%billing is not writable") as caught:
        await env.send_back(env.store_env.writer.put(message()))
    assert caught.value.code == ResponseCode.NO_PERMISSION


async def test_a_full_disk_leaves_the_message_with_the_consumer(env: RetryEnv) -> None:
    stored = env.store_env.writer.put(message())
    env.store_env.disk.fail_writes(OSError(28, "No space left on device"))
    with pytest.raises(RequestFailed, match="not sent back") as caught:
        await env.send_back(stored)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR


async def test_success_means_that_the_copy_is_durable(env: RetryEnv) -> None:
    stored = env.store_env.writer.put(message())
    await env.send_back(stored)
    store = env.store_env.service.store
    assert store.flusher.flushed_to == store.components.commit_log.max_offset


# --- a client that sends to the retry topic itself ------------------------------------------------------------------


async def test_other_topics_are_not_affected(env: RetryEnv) -> None:
    assert retry_target("orders", {}, 99, env.groups, env.topics) is None


@pytest.mark.parametrize(
    ("attempts", "limit", "is_dead"), [(15, None, False), (16, None, True), (3, 3, True), (3, 4, False)]
)
async def test_a_message_without_attempts_left_becomes_a_dead_letter(
    env: RetryEnv, attempts: int, limit: int | None, is_dead: bool
) -> None:
    properties = {"DELAY": "5", "RETRY_TOPIC": "orders"}
    target = retry_target(RETRY, properties, attempts, env.groups, env.topics, max_reconsume_times=limit)
    assert (target is not None) == is_dead
    if target is not None:
        assert target == (DEAD, 0, {"RETRY_TOPIC": "orders"})
        assert env.topics.get(DEAD) is not None
    assert properties["DELAY"] == "5"


async def test_attempts_and_limit_may_still_be_in_the_properties(env: RetryEnv) -> None:
    properties = {"RECONSUME_TIME": "2", "MAX_RECONSUME_TIMES": "2"}
    target = retry_target(RETRY, properties, 0, env.groups, env.topics)
    assert target is not None
    assert target.topic == DEAD


async def test_invalid_numbers_in_properties_are_ignored(env: RetryEnv) -> None:
    properties = {"RECONSUME_TIME": "many", "MAX_RECONSUME_TIMES": "²"}
    assert retry_target(RETRY, properties, 0, env.groups, env.topics) is None
