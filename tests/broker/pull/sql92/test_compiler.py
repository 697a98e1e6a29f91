import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.broker.pull.sql92 import compile_sql
from ariane.broker.pull.sql92.compiler import double_rank, to_double, to_int, to_long
from ariane.broker.pull.sql92.parser import CHAINED_MAX, NESTING_MAX


def matches(expression: str, **properties: str) -> bool:
    return compile_sql(expression)(properties)


def test_a_filter_of_everyday() -> None:
    expression = "region IN ('eu', 'us') AND price BETWEEN 10 AND 20 AND NOT (vip = TRUE) AND note IS NULL"
    assert matches(expression, region="eu", price="15", vip="false")
    assert not matches(expression, region="asia", price="15", vip="false")
    assert not matches(expression, region="eu", price="21", vip="false")
    assert not matches(expression, region="eu", price="15", vip="True")
    assert not matches(expression, region="eu", price="15", vip="false", note="x")


def test_a_missing_property_is_unknown_and_so_is_its_opposite() -> None:
    assert not matches("a = 1")
    assert not matches("NOT (a = 1)")
    assert matches("a = 1 OR b = 2", b="2")
    assert not matches("a = 1 AND b = 2", b="2")


def test_a_text_that_is_no_number_ends_the_evaluation() -> None:
    assert not matches("a > 5", a="x")
    assert not matches("NOT (a > 5)", a="x")
    assert not matches("a > 5 OR TRUE", a="x")
    assert matches("TRUE OR a > 5", a="x")


def test_an_integer_reads_integers_and_a_fraction_reads_fractions() -> None:
    assert not matches("a > 5", a="7.5")
    assert matches("a > 5.0", a="7.5")
    assert not matches("a > 5", a="3000000000")
    assert matches("a > 5.0", a="3000000000")
    assert matches("a > 2999999999", a="3000000000")


def test_two_properties_are_ordered_as_numbers_and_equal_as_texts() -> None:
    assert matches("a < b", a="9", b="10")
    assert not matches("a = b", a="1", b="1.0")


def test_a_constant_on_the_left_differs_from_what_is_missing() -> None:
    assert matches("1 <> a")
    assert not matches("a <> 1")


def test_searches() -> None:
    assert matches("a CONTAINS 'b' AND a STARTSWITH 'ab' AND a ENDSWITH 'bc'", a="abc")
    assert matches("a NOT CONTAINS 'x'", a="abc")
    assert not matches("a NOT CONTAINS 'x'")
    assert not matches("a CONTAINS ''", a="abc")


def test_the_deepest_expressions_are_evaluated() -> None:
    deep = "(" * NESTING_MAX + "a = 1" + ") = TRUE AND TRUE" * NESTING_MAX
    assert compile_sql(deep)({"a": "1"})
    assert compile_sql("(a = 1" + " = TRUE" * CHAINED_MAX + ")")({"a": "1"})
    assert compile_sql(" OR ".join(["a = 'x'"] * 1400))({"a": "x"})


def test_an_expression_is_compiled_once() -> None:
    assert compile_sql("cached = 1") is compile_sql("cached = 1")
    long = "a = '" + "x" * 2000 + "'"
    assert compile_sql(long) is compile_sql(long)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5.0),
        (" 5\t", 5.0),
        ("5d", 5.0),
        ("-5.5F", -5.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("0x1.8p1", 3.0),
        ("Infinity", float("inf")),
        ("-Infinity", float("-inf")),
        ("1e999", float("inf")),
        ("0x1p99999", float("inf")),
    ],
)
def test_doubles_are_read_as_java_reads_them(text: str, value: float) -> None:
    assert to_double(text) == value


@pytest.mark.parametrize("text", ["", "x", "1_0", "1e", ".", "0x1", "inf", "nan", "\u00a05", "５", "5 5", "--5"])
def test_what_is_no_double_for_java_is_none_here(text: str) -> None:
    with pytest.raises(ValueError, match="double"):
        to_double(text)


@pytest.mark.parametrize("text", ["", "+", "1_0", " 1", "1.0", "2147483648", "-2147483649", "\U0001d7d8"])
def test_what_is_no_int_for_java_is_none_here(text: str) -> None:
    with pytest.raises(ValueError, match=r"integer|range"):
        to_int(text)


def test_integers_are_read_as_java_reads_them() -> None:
    assert [to_int(text) for text in ("+7", "-007", "９", "-2147483648")] == [7, -7, 9, -(2**31)]
    assert to_long("-9223372036854775808") == -(2**63)


@given(st.floats(), st.floats())
def test_ranks_order_doubles(one: float, other: float) -> None:
    if one < other:
        assert double_rank(one) < double_rank(other)
    if one != one and other == other:
        assert double_rank(one) > double_rank(other)
    assert double_rank(-0.0) < double_rank(0.0)


property_texts = (
    st.text(max_size=8) | st.integers().map(str) | st.floats().map(str) | st.sampled_from(["true", "x", "1"])
)
expressions = st.sampled_from(
    [
        "a > 1 OR b = 2.5 AND NOT (c IS NULL)",
        "a < b",
        "a BETWEEN -1 AND c",
        "a = TRUE <> (b = 'x')",
        "- a IS NULL AND a",
        "a CONTAINS '1' OR 5 = b",
        "(a > 1) = b",
        "a = 9223372036854775807",
    ]
)


@given(expressions, st.dictionaries(st.sampled_from(["a", "b", "c"]), property_texts))
def test_no_property_makes_a_filter_raise(expression: str, properties: dict[str, str]) -> None:
    assert compile_sql(expression)(properties) in (True, False)
