"""Validation of topic and group names: length, characters, and the reason of a refusal."""

import pytest

from ariane.model.ids import GROUP_LENGTH_MAX, TOPIC_LENGTH_MAX, group_name_problem, topic_name_problem


@pytest.mark.parametrize("name", ["orders", "%RETRY%billing", "a-b_C9", "t" * TOPIC_LENGTH_MAX])
def test_a_valid_topic_name_has_no_problem(name: str) -> None:
    assert topic_name_problem(name) is None


@pytest.mark.parametrize("name", ["../etc/passwd", "a b", "a.b", "a|b", "caf\u00e9", "a\n", "a\x00"])
def test_a_name_that_is_unsafe_as_a_directory_is_refused(name: str) -> None:
    assert topic_name_problem(name) == f"the topic name {name!r} may hold only letters, digits, '_', '-' and '%'"


def test_an_empty_name_is_refused() -> None:
    assert topic_name_problem("") == "the topic name is empty"
    assert group_name_problem("") == "the group name is empty"


def test_a_topic_name_fits_a_signed_byte_and_a_group_name_may_be_longer() -> None:
    assert topic_name_problem("t" * 128) == "the topic name has 128 characters, at most 127 are allowed"
    assert group_name_problem("g" * 128) is None
    assert group_name_problem("g" * GROUP_LENGTH_MAX) is None
    assert group_name_problem("g" * 256) == "the group name has 256 characters, at most 255 are allowed"
