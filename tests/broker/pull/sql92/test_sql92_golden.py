"""Apache's own classes (rocketmq-filter 5.3.3 and 4.9.7) answered each line of sql92.jsonl; we answer alike, but for
two short lists.
"""

import json
from pathlib import Path

import pytest

from ariane.broker.pull.sql92 import compile_sql
from ariane.errors import ExpressionError

GOLDEN = Path(__file__).parents[3] / "golden" / "sql92.jsonl"
CASES = [json.loads(connection_to) for connection_to in GOLDEN.read_text(encoding="utf-8").splitlines()]

# docs/decisions/sql92.md says why.
WE_TAKE = {"a != 5", "a > 0.0", "a = 0.0", "a > -0.0"}
WE_REFUSE = {
    *("a = 007", "a = 5.5.5", "a = 1a", "a = 5E", "a = 0x5", "a-b = 5", "a LIKE 'x%'", "a + 1 = 6"),
    *("a = 5)", "a b", "a = 5 b = 5", "a = 5,", "a = --5"),
}


def response(expression: str, properties: dict[str, str]) -> str:
    """Asked from outside, by what the expression, its negation and its being unknown match."""
    try:
        compile_sql(expression)
    except ExpressionError:
        return "refused"
    questions = {"true": "({}\n)", "false": "NOT ({}\n)", "unknown": "({}\n) IS NULL"}
    responses = [word for word, form in questions.items() if compile_sql(form.format(expression))(properties)]
    assert len(responses) <= 1
    return responses[0] if responses else "fails"


def test_there_are_many_cases_of_each_answer() -> None:
    for word in ("true", "false", "unknown", "fails", "refused"):
        assert sum(case["answer"] == word for case in CASES) > 100


def test_we_answer_as_apache_does() -> None:
    wrong = [
        (case["expression"], case["properties"], case["answer"], ours)
        for case in CASES
        if case["expression"] not in WE_TAKE | WE_REFUSE
        and (ours := response(case["expression"], case["properties"])) != case["answer"]
    ]
    assert not wrong


def test_4_9_answers_like_5_3_but_for_the_words_it_does_not_know() -> None:
    other = {case["expression"] for case in CASES if "answer_4.9.7" in case}
    assert other
    assert all("CONTAINS" in text.upper() or "SWITH" in text.upper() for text in other)


@pytest.mark.parametrize("expression", sorted(WE_TAKE))
def test_what_only_we_take_is_refused_by_apache(expression: str) -> None:
    responses = {case["answer"] for case in CASES if case["expression"] == expression}
    assert responses == {"refused"}
    compile_sql(expression)


@pytest.mark.parametrize("expression", sorted(WE_REFUSE))
def test_what_only_we_refuse_is_cut_short_by_apache(expression: str) -> None:
    responses = {case["answer"] for case in CASES if case["expression"] == expression}
    assert responses
    assert "refused" not in responses
    with pytest.raises(ExpressionError):
        compile_sql(expression)
