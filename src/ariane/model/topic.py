"""Topics: their queues, their permissions, and the names that the system keeps for itself."""

from enum import IntFlag, StrEnum

import msgspec


class Permission(IntFlag):
    """What may be done with a topic's queues on one broker. The numbers are RocketMQ's."""

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
"""The topic whose settings a new topic copies when a broker creates topics by itself."""


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A topic on one broker, as brokers tell nameservers and keep it in `topics.json`."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = Permission.READ_WRITE
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: int = 0
    order: bool = False


class DataVersion(msgspec.Struct, frozen=True, kw_only=True):
    """Which edition of a broker's tables this is. Equal when both numbers are: there is no order among editions."""

    timestamp: int = 0
    counter: int = 0
