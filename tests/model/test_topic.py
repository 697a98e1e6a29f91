"""Topic configuration: RocketMQ's numbers, defaults, and equality of data versions."""

from ariane.model.topic import DataVersion, Permission, TopicConfig, TopicSysFlag


def test_permissions_and_flags_have_rocketmqs_numbers() -> None:
    assert [int(bit) for bit in (Permission.INHERIT, Permission.WRITE, Permission.READ)] == [1, 2, 4]
    assert int(Permission.READ_WRITE) == 6
    assert [int(flag) for flag in (TopicSysFlag.UNIT, TopicSysFlag.UNIT_SUBSCRIPTION)] == [1, 2]


def test_a_topic_has_sixteen_queues_for_reading_and_writing_by_default() -> None:
    config = TopicConfig(topic_name="orders")
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (16, 16, Permission.READ_WRITE)


def test_data_versions_are_equal_when_both_numbers_are() -> None:
    version = DataVersion(timestamp=7, counter=1)
    assert version == DataVersion(timestamp=7, counter=1)
    assert version != DataVersion(timestamp=7, counter=2)
    assert version != DataVersion(timestamp=8, counter=1)
