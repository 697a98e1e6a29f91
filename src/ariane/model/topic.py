"""Topic configuration: queue numbers, permissions, flags, and the version of a broker's tables."""

from enum import IntFlag, StrEnum

import msgspec


class Permission(IntFlag):
    """The permissions of a topic on one broker. The numbers are RocketMQ's."""

    NONE = 0
    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8
    READ_WRITE = READ | WRITE


class TopicFilterType(StrEnum):
    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


class TopicSysFlag(IntFlag):
    UNIT = 1
    UNIT_SUBSCRIPTION = 2


AUTO_CREATE_TEMPLATE = "TBW102"
"""The topic whose configuration an automatically created topic copies."""


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A topic on one broker, as brokers register it at nameservers and store it in `topics.json`."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = Permission.READ_WRITE
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: int = 0
    order: bool = False


class DataVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The version of a broker's tables. Versions are equal when both numbers are; they have no order."""

    timestamp: int = 0
    counter: int = 0
