"""Comparison of the subscriptions of group members."""

from hypothesis import given
from hypothesis import strategies as st

from ariane.broker.groups.configs import differing_topics, subscription_set_of
from tests.broker.consumer_group_fixtures import subscription

TAGS = st.lists(st.sampled_from("abcde"), min_size=1, unique=True)


@given(TAGS, st.randoms(use_true_random=False), st.sampled_from(["||", " || ", "  ||"]))
def test_equal_tags_in_any_order_and_spacing_are_equal_subscriptions(
    tags: list[str], random: object, glue: str
) -> None:
    shuffled = sorted(tags, reverse=True)
    assert subscription_set_of([subscription("t", "||".join(tags))]) == subscription_set_of(
        [subscription("t", glue.join(shuffled))]
    )


def test_rates_have_the_keys_of_4x_and_5x() -> None:
    assert len({subscription_set_of([subscription("t", text)]) for text in ("*", "", " ", "a || *")}) == 1


def test_versions_and_retry_topics_make_no_difference() -> None:
    mine = subscription_set_of([subscription("t", version=1), subscription("%RETRY%g")])
    assert mine == subscription_set_of([subscription("t", version=2)])


def test_the_topics_that_differ_are_named() -> None:
    mine = subscription_set_of(
        [subscription("same"), subscription("tags", "a"), subscription("mine"), subscription("kind", "a")]
    )
    theirs = subscription_set_of(
        [subscription("same"), subscription("tags", "b"), subscription("kind", "a", kind="SQL92")]
    )
    assert differing_topics(mine, theirs) == ("kind", "mine", "tags")
