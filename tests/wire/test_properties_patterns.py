"""Property patterns: a text that matches reads as `read_property_text` reads it."""

from hypothesis import given
from hypothesis import strategies as st

from ariane.broker.send.responses import is_plain
from ariane.errors import MessageRefused
from ariane.wire.properties import (
    NO_PATTERN,
    PATTERN_VALUES,
    SEEN_BEFORE,
    PropertyPatternCache,
    property_pattern_of,
    read_property_text,
)

plain = st.text("abc(.*[é ", min_size=1, max_size=4)
names = st.lists(plain | st.sampled_from([*PATTERN_VALUES, "__SHARDINGKEY"]), unique=True, max_size=6).map(tuple)
any_text = st.text("ab\x01\x02é", max_size=20)


def text_of(pairs: list[tuple[str, str]]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs)


@given(names, st.data(), st.booleans())
def test_the_four_values_are_found_whatever_stands_around_them(
    names: tuple[str, ...], data: st.DataObject, is_open: bool
) -> None:
    pairs = [(name, data.draw(st.text("aZ9", min_size=1) if name == "UNIQ_KEY" else plain)) for name in names]
    text = text_of(pairs)
    pattern = property_pattern_of(names)
    match = pattern.match(text[:-1] if is_open and text else text)
    assert match is not None
    assert match.group(*pattern.groups) == tuple(dict(pairs).get(name) for name in PATTERN_VALUES)
    assert pattern.is_ordered == ("__SHARDINGKEY" in names)


@given(st.lists(st.sampled_from(["a", "b", "TAGS"]), unique=True, max_size=3).map(tuple), any_text)
def test_what_matches_is_a_regular_text_with_these_names(names: tuple[str, ...], text: str) -> None:
    if property_pattern_of(names).match(text) is None:
        return
    properties, kept = read_property_text(text)
    assert tuple(properties) == names
    assert kept in (text, text + "\x02")


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.text("a\x01\x02", max_size=3)), max_size=3))
def test_a_text_that_is_refused_or_repaired_does_not_match(pairs: list[tuple[str, str]]) -> None:
    text = text_of(pairs)
    try:
        properties, kept = read_property_text(text)
    except MessageRefused:
        assert all(property_pattern_of(names).match(text) is None for names in [("a",), ("b",), ("a", "b"), ("b", "a")])
        return
    assert (property_pattern_of(tuple(properties)).match(text) is None) == (kept != text)


@given(st.text('aZ9-é"\\\u0660\x7f', min_size=1, max_size=3))
def test_a_unique_key_matches_if_an_answer_can_repeat_it_as_it_is(key: str) -> None:
    assert (property_pattern_of(("UNIQ_KEY",)).match(f"UNIQ_KEY\x01{key}\x02") is not None) == is_plain(key)


def test_names_get_a_shape_when_they_have_come_often_enough() -> None:
    patterns = PropertyPatternCache()
    for _ in range(SEEN_BEFORE - 1):
        assert patterns.of(["KEYS"]) is NO_PATTERN
    pattern = patterns.of(["KEYS"])
    assert pattern is not NO_PATTERN
    assert patterns.of(["KEYS"]) is pattern


def test_names_that_are_made_up_do_not_fill_the_memory() -> None:
    patterns = PropertyPatternCache()
    for number in range(10_000):
        patterns.of([f"name-{number}"])
    assert len(patterns._seen) < 1_000


def test_too_many_names_get_no_shape() -> None:
    patterns = PropertyPatternCache()
    assert all(patterns.of(map(str, range(100))) is NO_PATTERN for _ in range(2 * SEEN_BEFORE))


def test_no_shape_matches_nothing() -> None:
    assert NO_PATTERN.match("") is None
    assert NO_PATTERN.match("KEYS\x01a\x02") is None


def test_a_pattern_of_half_messages_matches_only_what_is_true() -> None:
    pattern = property_pattern_of(("TRAN_MSG", "TAGS"))
    assert pattern.is_half
    assert not property_pattern_of(("TAGS",)).is_half
    assert pattern.match("TRAN_MSG\x01true\x02TAGS\x01a\x02") is not None
    for value in ("True", "false", "truer"):
        assert pattern.match(f"TRAN_MSG\x01{value}\x02TAGS\x01a\x02") is None


def test_a_pattern_of_delayed_messages_finds_the_level() -> None:
    pattern = property_pattern_of(("KEYS", "DELAY", "TAGS"))
    assert property_pattern_of(("KEYS",)).delay_group == 0
    for level, is_found in (("1", True), ("18", True), ("0", False), ("01", False), ("123", False), ("-1", False)):
        match = pattern.match(f"KEYS\x01k\x02DELAY\x01{level}\x02TAGS\x01a\x02")
        assert (match is not None and match.group(pattern.delay_group) == level) == is_found
        assert match is None or match.group(*pattern.groups) == (None, "k", "a", None)
