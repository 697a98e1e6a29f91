import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.broker.pull.sql92.parser import (
    CHAINED_MAX,
    EXPRESSION_LENGTH_MAX,
    KEYWORDS,
    NESTING_MAX,
    And,
    BareProperty,
    Compare,
    Find,
    In,
    IsNull,
    Literal,
    Negate,
    Node,
    Not,
    Operator,
    Or,
    Property,
    Search,
    parse,
)
from ariane.errors import ExpressionError

A, B = Property("a"), Property("b")


def equal(left: Node, right: Node) -> Compare:
    return Compare(Operator.EQUAL, left, right)


def test_and_binds_tighter_than_or() -> None:
    one, two, three = (equal(A, Literal(number)) for number in (1, 2, 3))
    assert parse("a = 1 OR a = 2 AND a = 3") == Or((one, And((two, three))))
    assert parse("(a = 1 OR a = 2) AND a = 3") == And((Or((one, two)), three))


def test_not_binds_tighter_than_a_comparison() -> None:
    assert parse("NOT a = 1") == equal(Not(BareProperty("a")), Literal(1))
    assert parse("NOT (a = 1)") == Not(equal(A, Literal(1)))


def test_keywords_have_no_case_but_names_do() -> None:
    assert parse("Abc iS nOt NuLl") == Not(IsNull(Property("Abc")))


def test_between_is_two_comparisons() -> None:
    low, high = Literal(1), Literal(5)
    inside = And((Compare(Operator.GREATER_OR_EQUAL, A, low), Compare(Operator.LESS_OR_EQUAL, A, high)))
    outside = Or((Compare(Operator.LESS, A, low), Compare(Operator.GREATER, A, high)))
    assert parse("a BETWEEN 1 AND 5") == inside
    assert parse("a NOT BETWEEN 1 AND 5 AND b = 'x'") == And((outside, equal(B, Literal("x"))))


def test_in_takes_texts() -> None:
    assert parse("a IN ('x', 'it''s')") == In("a", ("x", "it's"), negated=False)
    assert parse("a NOT IN ('x')") == In("a", ("x",), negated=True)


@pytest.mark.parametrize("search", Search)
def test_searches_take_a_text(search: Search) -> None:
    assert parse(f"a {search} 'x'") == Find(search, A, "x", negated=False)
    assert parse(f"a NOT {search.lower()} 'x'") == Find(search, A, "x", negated=True)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("0", 0), ("0L", 0), ("12", 12), ("12l", 12), ("5.", 5.0), (".5", 0.5), ("5E3", 5000.0), ("1.5e-3", 0.0015)),
        ("9223372036854775807", 2**63 - 1),
        ("0.0", 0.0),
        ("01.5", 1.5),
        ("'it''s'", "it's"),
        ("''", ""),
        ("TRUE", True),
    ],
)
def test_literals(text: str, value: object) -> None:
    tree = parse(f"a = {text}")
    assert isinstance(tree, Compare)
    assert isinstance(tree.right, Literal)
    assert (type(tree.right.value), tree.right.value) == (type(value), value)


def test_a_sign_is_an_operator() -> None:
    assert parse("a = - +5") == equal(A, Negate(Literal(5)))


def test_names_may_hold_dollars_and_underscores() -> None:
    assert parse("_a$1 = $b") == equal(Property("_a$1"), Property("$b"))


def test_comments_are_blanks() -> None:
    assert parse("/* one */ a -- two 'x\n = /* ** */ 1 -- three") == equal(A, Literal(1))


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 1, "a property name, a value, NOT or '(' expected, found the end"),
        ("a =", 4, "a property name, a value"),
        ("a = 5 b", 7, "an operator, AND, OR or the end expected, found 'b'"),
        ("a = 5)", 6, "an operator, AND, OR or the end expected, found ')'"),
        ("(a = 5", 7, "')' expected, found the end of the expression"),
        ("a = 'x", 5, "a text that is not closed"),
        ("a = 'x''", 5, "a text that is not closed"),
        ('a = "x"', 5, "single quotes"),
        ("a = 1 && b = 2", 7, "write AND"),
        ("a = 1 || b = 2", 7, "write OR"),
        ("a # 1", 3, "unexpected character '#'"),
        ("a = 1 /* x", 7, "a comment that is not closed"),
        ("é = 1", 1, "unexpected character"),
        ("a IN ()", 7, "a text in single quotes expected, found ')'"),
        ("a IN (5)", 7, "a text in single quotes expected, found '5'"),
        ("a IN ('x' 'y')", 11, "',' or ')' expected"),
        ("'x' IN ('x')", 1, "a property name expected before IN"),
        ("a IS 5", 6, "NULL or NOT NULL expected"),
        ("a NOT 5", 7, "BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH after NOT expected"),
        ("a BETWEEN 1 OR 5", 13, "AND and the upper bound of BETWEEN expected"),
        ("a BETWEEN 5 AND 1", 11, "nothing is between 5 and 1"),
        ("a BETWEEN 5 AND 4.5", 11, "nothing is between"),
        ("a = NULL", 5, "IS NULL"),
        ("NULL <> a", 1, "IS NULL"),
        ("TRUE = 5", 1, "TRUE or FALSE cannot be compared"),
        ("a > 'x'", 5, "only numbers have an order"),
        ("TRUE < a", 1, "only numbers have an order"),
        ("a > (b = 1)", 5, "a condition has no order"),
        ("a = 1 AND 5", 11, "a condition expected"),
        ("'x'", 1, "a condition expected"),
        ("NOT 5", 5, "a condition expected"),
        ("a = 9223372036854775808", 5, "the largest integer"),
        ("a = " + "9" * 5000, 5, "the largest integer"),
        ("a = 1e400", 5, "above the largest double"),
        ("a = 1e-400", 5, "below the smallest double"),
    ],
)
def test_a_bad_expression_is_refused_with_its_position(text: str, position: int, reason: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert caught.value.position == position
    assert reason in caught.value.reason


def test_length_is_limited_before_anything_is_read() -> None:
    parse("a = 1".ljust(EXPRESSION_LENGTH_MAX))
    with pytest.raises(ExpressionError, match="too long"):
        parse("a = 1".ljust(EXPRESSION_LENGTH_MAX + 1))


@pytest.mark.parametrize(("opening", "closing"), [("(", ")"), ("NOT ", ""), ("- ", ""), ("+ ", ""), ("NOT (", ")")])
def test_nesting_is_limited(opening: str, closing: str) -> None:
    levels = NESTING_MAX // (2 if opening == "NOT (" else 1)
    inner = "a" if opening != "- " else "1"
    tail = " = 1" if opening in ("- ", "+ ") else ""
    parse(opening * levels + inner + closing * levels + tail)
    with pytest.raises(ExpressionError, match="inside one another"):
        parse(opening * (levels + 1) + inner + closing * (levels + 1) + tail)


def test_comparisons_of_comparisons_are_limited() -> None:
    parse("a" + " IS NULL" * (CHAINED_MAX + 1))
    with pytest.raises(ExpressionError, match="comparisons of comparisons"):
        parse("a" + " IS NULL" * (CHAINED_MAX + 2))
    with pytest.raises(ExpressionError, match="comparisons of comparisons"):
        parse("(" * 9 + "a" + (" = 1" * 9 + ")") * 9)


def test_a_long_row_of_conditions_is_not_deep() -> None:
    tree = parse(" OR ".join(f"a = {number}" for number in range(1000)))
    assert isinstance(tree, Or)
    assert len(tree.parts) == 1000


# --- what is printed is read back -------------------------------------------------------------------------------------


def printed(node: Node) -> str:
    """Every operand in parentheses, so that nothing hangs on precedence."""
    if isinstance(node, Property | BareProperty):
        return node.name
    if isinstance(node, Literal):
        return _literal(node.value)
    if isinstance(node, Negate):
        return f"- ({printed(node.operand)})"
    if isinstance(node, Not):
        return f"NOT ({printed(node.operand)})"
    if isinstance(node, And | Or):
        return f" {type(node).__name__.upper()} ".join(f"({printed(part)})" for part in node.parts)
    if isinstance(node, Compare):
        return f"({printed(node.left)}) {node.operator} ({printed(node.right)})"
    if isinstance(node, IsNull):
        return f"({printed(node.operand)}) IS NULL"
    negation = "NOT " if node.negated else ""
    if isinstance(node, In):
        return f"{node.name} {negation}IN ({', '.join(map(_literal, node.choices))})"
    return f"({printed(node.operand)}) {negation}{node.search} {_literal(node.text)}"


def _literal(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {True: "TRUE", False: "FALSE", None: "NULL"}[value]
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


names = st.from_regex(r"[a-zA-Z_$][a-zA-Z0-9_$]{0,6}", fullmatch=True).filter(lambda name: name.upper() not in KEYWORDS)
texts = st.text(max_size=6)
numbers = st.integers(0, 2**63 - 1) | st.floats(1e-300, 1e300)
words = st.sampled_from([True, False])
ordered = st.builds(Property, names) | st.builds(Literal, numbers) | st.builds(Negate, st.builds(Literal, numbers))
values = ordered | st.builds(Literal, texts)
leaves = (
    st.builds(Compare, st.sampled_from([o for o in Operator if o is not Operator.EQUAL]), ordered, ordered)
    | st.builds(Compare, st.just(Operator.EQUAL), values, values)
    | st.builds(In, names, st.lists(texts, min_size=1, max_size=3).map(tuple), st.booleans())
    | st.builds(Find, st.sampled_from(Search), values, texts, st.booleans())
    | st.builds(IsNull, values)
    | st.builds(BareProperty, names)
    | st.builds(Literal, words)
)


def several(parts: st.SearchStrategy[Node]) -> st.SearchStrategy[tuple[Node, ...]]:
    return st.lists(parts, min_size=2, max_size=3).map(tuple)


conditions = st.recursive(
    leaves,
    lambda inner: (
        st.builds(Not, inner)
        | st.builds(And, several(inner))
        | st.builds(Or, several(inner))
        | st.builds(IsNull, inner.filter(lambda node: not isinstance(node, BareProperty)))
    ),
    max_leaves=12,
)


@given(conditions)
def test_a_printed_tree_is_read_back(tree: Node) -> None:
    assert parse(printed(tree)) == tree


pieces = st.sampled_from(
    [*KEYWORDS, "a", "b", "5", "1.5", "'x'", "''", "(", ")", ",", "=", "<>", "<", ">=", "-", "+", "--", "/*", "*/", "'"]
)


@given(st.text(max_size=60) | st.lists(pieces, max_size=30).map(" ".join) | st.lists(pieces, max_size=30).map("".join))
def test_nothing_but_an_expression_error_comes_out(text: str) -> None:
    position = 1
    try:
        parse(text)
    except ExpressionError as error:
        position = error.position
    assert 1 <= position <= len(text) + 1
