"""Consumer groups: their configuration on a broker, consume modes, and subscriptions."""

from enum import StrEnum

import msgspec

# Members of these enums keep Apache's order: old clients send the position instead of the name.


class ConsumeType(StrEnum):
    """Who pulls: the application itself (actively) or the client library, for a push consumer (passively)."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"  # 5.x


class MessageModel(StrEnum):
    """Whether every member gets every message (broadcasting), or the members share them (clustering)."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    """Where a group without stored offsets starts. The second to fourth are deprecated and mean the first."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class ExpressionType(StrEnum):
    """The kind of filter expression of a subscription. A client may send any text here, so structs hold a `str`."""

    TAG = "TAG"
    SQL92 = "SQL92"


class GroupConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A consumer group on one broker (Apache's SubscriptionGroupConfig), as stored in `subscriptionGroup.json`."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True


class Subscription(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The filter of one group for one topic (Apache's SubscriptionData). A larger `sub_version` is newer."""

    topic: str
    sub_string: str = "*"
    tags_set: list[str] = []
    code_set: list[int] = []
    """The Java hash of each tag. A broker compares these, because a consume queue entry holds only the hash."""
    sub_version: int = 0
    expression_type: str = ExpressionType.TAG
    class_filter_mode: bool = False
