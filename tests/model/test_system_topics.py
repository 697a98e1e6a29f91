"""System topics: which ones clients may write to; delay levels: parsing and delivery times."""

import pytest

from ariane.errors import SettingsError
from ariane.model import system_topics
from ariane.model.system_topics import (
    DEFAULT_LEVELS,
    delivery_time_ms,
    is_system,
    is_writable_by_clients,
    own_names,
    parse_levels,
    reply_topic,
)

INTERNAL = [
    system_topics.SCHEDULE,
    system_topics.TRANS_HALF,
    system_topics.TRANS_OP,
    system_topics.TRANS_CHECK_MAX,
    system_topics.TIMER,
    system_topics.OFFSET_MOVED_EVENT,
    system_topics.SELF_TEST,
    system_topics.EPOCH,
    "rmq_sys_of_a_later_release",
]


@pytest.mark.parametrize("topic", INTERNAL)
def test_topics_that_the_broker_trusts_are_closed_to_clients(topic: str) -> None:
    assert is_system(topic)
    assert not is_writable_by_clients(topic)


@pytest.mark.parametrize("topic", ["TBW102", system_topics.BENCHMARK, system_topics.TRACE])
def test_some_system_topics_are_open_to_clients(topic: str) -> None:
    assert is_system(topic)
    assert is_writable_by_clients(topic)


def test_topics_of_users_are_not_system_topics() -> None:
    assert not is_system("orders")
    assert is_writable_by_clients("orders")


def test_topics_named_after_a_broker_are_its_own_only() -> None:
    assert own_names("blue", "broker-a") == {"blue", "broker-a", "blue_REPLY_TOPIC"}
    assert not is_system("broker-a")
    assert is_writable_by_clients(reply_topic("blue"))


def test_the_default_levels_are_apaches_eighteen() -> None:
    levels = parse_levels(DEFAULT_LEVELS)
    assert (len(levels), levels[0], levels[4], levels[-1]) == (18, 1_000, 60_000, 7_200_000)


def test_levels_may_be_days() -> None:
    assert parse_levels(" 1d  2s ") == (86_400_000, 2_000)


@pytest.mark.parametrize("text", ["1x", "s", "1", "1.5s", "one"])
def test_a_malformed_level_is_a_settings_error(text: str) -> None:
    with pytest.raises(SettingsError, match="delays like 1s, 5m or 2h expected"):
        parse_levels(text)


def test_no_levels_at_all_are_a_settings_error() -> None:
    with pytest.raises(SettingsError, match="messageDelayLevel is empty"):
        parse_levels("  ")


def test_levels_count_from_one_and_unknown_ones_mean_a_second() -> None:
    levels = parse_levels("5s 10s")
    assert [delivery_time_ms(levels, level, 100) for level in (1, 2)] == [5_100, 10_100]
    assert [delivery_time_ms(levels, level, 100) for level in (0, -1, 3)] == [1_100] * 3
