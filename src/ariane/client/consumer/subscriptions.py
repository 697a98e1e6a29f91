"""Subscriptions: filter expressions of a consumer, in the format of brokers, and exact matching of tags."""

from collections.abc import Sequence

from ariane.client.consumer.message import Received
from ariane.errors import ClientError
from ariane.model.group import ExpressionType, Subscription
from ariane.model.ids import topic_name_problem
from ariane.wire.hashes import java_hash

ALL = "*"


def subscription_of(topic: str, expression: str = ALL, *, sql: str | None = None, version: int = 0) -> Subscription:
    """`expression` is tags joined by `||`, or `*`; `sql` is a condition over properties, checked by the broker."""
    fault = topic_name_problem(topic)
    if fault is not None:
        raise ClientError(f"cannot subscribe: {fault}")
    if sql is not None:
        return _by_sql(topic, expression, sql, version)
    tags = _tags_of(topic, expression)
    return Subscription(
        topic=topic,
        sub_string=expression.strip() if tags else ALL,
        tags_set=tags,
        code_set=list(dict.fromkeys(map(java_hash, tags))),
        sub_version=version,
    )


def matches(subscription: Subscription, message: Received) -> bool:
    """The broker compares hashes of tags, and two tags may have the same: the client compares the text."""
    return not _has_tags(subscription) or message.tags in subscription.tags_set


def matching(subscription: Subscription, messages: Sequence[Received]) -> Sequence[Received]:
    """Those of `messages` that match; all of them, without a check of each, if the subscription has no tags."""
    if not _has_tags(subscription):
        return messages
    return [message for message in messages if message.tags in subscription.tags_set]


def _has_tags(subscription: Subscription) -> bool:
    return bool(subscription.tags_set) and subscription.expression_type == ExpressionType.TAG


def _tags_of(topic: str, expression: str) -> list[str]:
    if not expression.strip() or expression.strip() == ALL:
        return []
    tags = list(dict.fromkeys(filter(None, (tag.strip() for tag in expression.split("||")))))
    if not tags:
        raise ClientError(f"the subscription {expression!r} of {topic} names no tag: write 'a || b', or '*' for all")
    return tags


def _by_sql(topic: str, expression: str, sql: str, version: int) -> Subscription:
    if expression != ALL:
        raise ClientError(f"{topic}: tags and sql exclude each other; in sql a tag is the property TAGS")
    if not sql.strip():
        raise ClientError(f"{topic}: the sql expression is empty; leave it out to get every message")
    return Subscription(topic=topic, sub_string=sql, expression_type=ExpressionType.SQL92, sub_version=version)
