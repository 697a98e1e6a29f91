"""Whether the members of a group want the same messages.

RocketMQ keeps one subscription for a whole group, and the newest heartbeat wins. Members that differ take turns in
replacing each other's: messages that one of them wants are filtered away or given to one that does not want them. So
nothing here is refused, but it is said aloud.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from ariane.model.group import ExpressionType, Subscription
from ariane.model.ids import RETRY_PREFIX

Wants: TypeAlias = frozenset[tuple[str, str, frozenset[str]]]
"""Of each topic: its name, the kind of its expression, and the tags, or the expression as the only member."""

_ALL_TAGS = frozenset({"*"})


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two members of one group that do not subscribe alike."""

    group: str
    client_id: str
    """Whose heartbeat showed it: the group's subscription follows this one now."""
    other_client_id: str
    topics: tuple[str, ...]


def wants_of(subscriptions: Iterable[Subscription]) -> Wants:
    """What a member wants, in a form that is equal for equal wishes however they are written."""
    # A retry topic comes with clustering and not with broadcasting; the user did not choose it.
    return frozenset(_want(one) for one in subscriptions if not one.topic.startswith(RETRY_PREFIX))


def differing_topics(mine: Wants, theirs: Wants) -> tuple[str, ...]:
    return tuple(sorted({topic for topic, _, _ in mine ^ theirs}))


def _want(subscription: Subscription) -> tuple[str, str, frozenset[str]]:
    kind = (subscription.expression_type or ExpressionType.TAG).upper()
    if kind != ExpressionType.TAG:
        return subscription.topic, kind, frozenset({subscription.sub_string})
    tags = frozenset(filter(None, map(str.strip, subscription.sub_string.split("||"))))
    return subscription.topic, kind, _ALL_TAGS if not tags or "*" in tags else tags
