"""Message filters of subscriptions: by the tag hash in the queue entry, or by SQL92 on the properties.

A tag filter looks only at the queue entry: the record is not read, and two tags with one hash both match, as in
Apache's broker; clients compare the tag itself. An SQL filter reads the record's properties in place, never its body.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from sys import getsizeof
from typing import TYPE_CHECKING

from ariane.errors import ExpressionError, RecordError, RequestFailed
from ariane.model.group import ExpressionType, Subscription
from ariane.wire.codes import ResponseCode
from ariane.wire.hashes import java_hash
from ariane.wire.record.read import RecordView, verify

if TYPE_CHECKING:
    from ariane.broker.pull.sql92 import Predicate

ALL = "*"
_SEPARATOR = "||"
TAGS_LENGTH_MAX = 32 * 1024
"""As much as fits the header of a pull."""
_NUMBER_BYTES = getsizeof(2**31 - 1)
_CACHED_FILTERS = 512
_CACHED_LENGTH_MAX = 1024  # above, a filter is made anew for each pull; what is behind it stays cached


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """What a read of a queue is given. A part that is None matches everything."""

    tag_match: Callable[[int], bool] | None = None
    """From the tags code of a queue's entry: whether the message may match."""
    record_match: Callable[[memoryview], bool] | None = None
    """From the stored record: whether it does."""
    bytes_held: int = 0
    """Memory that this filter does not share with others."""

    def matches(self, tags_code: int, record: memoryview | None) -> bool:
        """Both parts at once; without a record, whether the message may match."""
        if self.tag_match is not None and not self.tag_match(tags_code):
            return False
        return self.record_match is None or record is None or self.record_match(record)


MATCH_ALL = MessageFilter()


def is_tag_type(expression_type: str | None) -> bool:
    """Clients leave the type out, or empty, when they mean tags."""
    return not expression_type or expression_type == ExpressionType.TAG


def subscription_of(topic: str, expression: str | None, expression_type: str | None, version: int = 0) -> Subscription:
    """The subscription that a client would send for `expression`; ExpressionError when it cannot be read."""
    if is_tag_type(expression_type):
        return _tag_subscription(topic, expression, version)
    if expression_type != ExpressionType.SQL92:
        raise ExpressionError(f"the expression type {expression_type!r} is neither TAG nor SQL92", 1)
    text = expression or ""
    _compile(text)
    return Subscription(topic=topic, sub_string=text, sub_version=version, expression_type=ExpressionType.SQL92)


def filter_of(subscription: Subscription, *, property_filter: bool) -> MessageFilter:
    """The filter of a subscription; ExpressionError for a bad expression, RequestFailed where SQL is switched off."""
    if subscription.class_filter_mode:  # a filter server would have chosen; its clients filter again themselves
        return MATCH_ALL
    if is_tag_type(subscription.expression_type):
        return _tag_filter(subscription)
    if not property_filter:
        raise RequestFailed(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {subscription.expression_type}: "
            "set enablePropertyFilter=true in its configuration",
        )
    if subscription.expression_type != ExpressionType.SQL92:
        raise ExpressionError(f"the expression type {subscription.expression_type!r} is neither TAG nor SQL92", 1)
    text = subscription.sub_string
    return _cached_sql_filter(text) if len(text) <= _CACHED_LENGTH_MAX else _sql_filter(text)


# --- tags -------------------------------------------------------------------------------------------------------------


def _tag_subscription(topic: str, expression: str | None, version: int) -> Subscription:
    if not expression or expression == ALL:
        return Subscription(topic=topic, sub_string=ALL, sub_version=version)
    tags = _tags(expression)
    if not tags:
        raise ExpressionError("no tag in the expression: 'TagA || TagB' or '*' expected", 1)
    codes = [java_hash(tag) for tag in tags]
    return Subscription(topic=topic, sub_string=expression, tags_set=tags, code_set=codes, sub_version=version)


def _tag_filter(subscription: Subscription) -> MessageFilter:
    expression = subscription.sub_string
    if not expression or expression == ALL:
        return MATCH_ALL
    # C++ clients send no codes with their heartbeats. A message without a tag has the code 0, which no tag has but "".
    codes = frozenset(subscription.code_set or [java_hash(tag) for tag in _tags(expression)])
    return MessageFilter(tag_match=codes.__contains__, bytes_held=getsizeof(codes) + _NUMBER_BYTES * len(codes))


def _tags(expression: str) -> list[str]:
    """In their order, each once. ExpressionError for a list that would take long to read, with each pull."""
    if len(expression) > TAGS_LENGTH_MAX:
        raise ExpressionError(
            f"the tags have {len(expression)} characters, at most {TAGS_LENGTH_MAX} are allowed: too long",
            TAGS_LENGTH_MAX + 1,
        )
    return list(dict.fromkeys(filter(None, map(str.strip, expression.split(_SEPARATOR)))))


# --- properties -------------------------------------------------------------------------------------------------------


def _sql_filter(text: str) -> MessageFilter:
    return MessageFilter(record_match=_on_properties(_compile(text)))


def _compile(text: str) -> "Predicate":
    """Imports the compiler with the first SQL subscription: most brokers see none, and all start sooner."""
    from ariane.broker.pull.sql92 import compile_sql

    return compile_sql(text)


_cached_sql_filter = lru_cache(_CACHED_FILTERS)(_sql_filter)


def _on_properties(predicate: "Predicate") -> Callable[[memoryview], bool]:
    def matches(record: memoryview) -> bool:
        view = verify(record, check_body_crc=False)
        if not isinstance(view, RecordView):
            return False
        try:
            return predicate(view.properties())
        except RecordError:  # another writer's properties that are not text match nothing
            return False

    return matches
