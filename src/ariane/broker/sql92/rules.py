"""What may stand where. Each rule is Apache's: a filter that one broker takes and another refuses helps nobody."""

from ariane.broker.sql92.tree import BareProperty, Condition, Literal, Node, Property
from ariane.errors import ExpressionError


def as_condition(node: Node, position: int) -> Node:
    """`node` where TRUE or FALSE is expected."""
    if isinstance(node, Property):
        return BareProperty(node.name)
    if isinstance(node, Condition) or (isinstance(node, Literal) and isinstance(node.value, bool | None)):
        return node
    raise ExpressionError("a condition expected, such as a comparison, found a value", position)


def check_equal(left: Node, left_position: int, right: Node, right_position: int) -> None:
    for node, position in ((left, left_position), (right, right_position)):
        if isinstance(node, Literal) and node.value is None:
            raise ExpressionError("nothing equals NULL: write IS NULL or IS NOT NULL", position)
    if _is_boolean(left) and isinstance(right, Literal) and not _is_boolean(right):
        raise ExpressionError("TRUE or FALSE cannot be compared with a number or a text", left_position)


def _is_boolean(node: Node) -> bool:
    return isinstance(node, Literal) and isinstance(node.value, bool)


def check_ordered(node: Node, position: int) -> None:
    """Only numbers have an order; a property may hold one."""
    if isinstance(node, Condition):
        raise ExpressionError("a condition has no order: compare numbers and properties", position)
    if isinstance(node, Literal) and (isinstance(node.value, bool | str) or node.value is None):
        raise ExpressionError("only numbers have an order: a number without quotes or a property expected", position)


def check_between(low: Node, high: Node, position: int) -> None:
    if isinstance(low, Literal) and isinstance(high, Literal):
        first, last = low.value, high.value
        if isinstance(first, int | float) and isinstance(last, int | float) and _is_below(last, first):
            raise ExpressionError(f"nothing is between {first} and {last}: the lower bound comes first", position)


def _is_below(one: float, other: float) -> bool:
    """Java compares an integer with a fraction as two doubles."""
    if isinstance(one, float) or isinstance(other, float):
        return float(one) < float(other)
    return one < other


def check_property(node: Node, position: int) -> str:
    if not isinstance(node, Property):
        raise ExpressionError("a property name expected before IN", position)
    return node.name
