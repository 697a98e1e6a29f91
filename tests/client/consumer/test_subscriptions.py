"""Subscriptions: parsing of tags and SQL, and matching of tags."""

import pytest

from ariane.client.consumer.subscriptions import matches, subscription_of
from ariane.errors import ClientError
from ariane.model.group import ExpressionType
from tests.client.consumer.test_queues import message


@pytest.mark.parametrize("expression", ["*", "", "  ", " * "])
def test_a_star_or_an_empty_expression_means_every_message(expression: str) -> None:
    subscription = subscription_of("orders", expression)
    assert (subscription.sub_string, subscription.tags_set, subscription.code_set) == ("*", [], [])
    assert matches(subscription, message(0))


def test_tags_are_split_trimmed_and_hashed_as_java_does() -> None:
    subscription = subscription_of("orders", " paid||refunded || paid ")
    assert subscription.tags_set == ["paid", "refunded"]
    assert subscription.code_set == [3433164, -707924457]


def test_two_tags_with_the_same_hash_are_one_code_and_two_tags() -> None:
    subscription = subscription_of("orders", "Aa || BB")
    assert subscription.code_set == [2112]
    assert subscription.tags_set == ["Aa", "BB"]


def test_a_message_without_a_tag_does_not_match_a_tag() -> None:
    assert not matches(subscription_of("orders", "paid"), message(0))


def test_sql_is_sent_unchanged_and_not_checked_by_the_client() -> None:
    subscription = subscription_of("orders", sql="price > 100")
    assert (subscription.sub_string, subscription.expression_type) == ("price > 100", ExpressionType.SQL92)
    assert matches(subscription, message(0))


@pytest.mark.parametrize(
    ("topic", "expression", "sql", "reason"),
    [
        ("bad topic", "*", None, "topic name"),
        ("orders", " || ", None, "names no tag"),
        ("orders", "paid", "a = 1", "exclude each other"),
        ("orders", "*", " ", "sql expression is empty"),
    ],
)
def test_an_invalid_subscription_is_an_error_with_the_reason(
    topic: str, expression: str, sql: str | None, reason: str
) -> None:
    with pytest.raises(ClientError, match=reason):
        subscription_of(topic, expression, sql=sql)
