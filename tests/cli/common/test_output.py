"""Rows as a table, JSON, JSON lines and CSV."""

import csv
import io
import json
import os
import sys
from collections.abc import Iterator

import pytest

from ariane.cli.common.output import OutputFormat, Row, RowStream, render

ROWS: list[Row] = [
    {"name": "orders", "queues": 4, "city": "杭州", "tags": ["a", "b"], "isOrdered": True, "note": None},
    {"name": "a-longer-name", "queues": 16, "city": "Paris", "tags": [], "isOrdered": False, "note": {"k": "v"}},
]


def test_a_table_aligns_text_left_and_numbers_right(capsys: pytest.CaptureFixture[str]) -> None:
    render(ROWS, OutputFormat.TABLE)
    assert capsys.readouterr().out.splitlines() == [
        "name           queues  city   tags  isOrdered  note",
        "orders              4  杭州   a b   yes",
        "a-longer-name      16  Paris        no         k=v",
    ]


def test_a_table_shows_the_given_columns(capsys: pytest.CaptureFixture[str]) -> None:
    render(ROWS, OutputFormat.TABLE, ["queues", "name"])
    assert capsys.readouterr().out.splitlines()[1] == "     4  orders"


def test_a_table_without_rows_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    render([], OutputFormat.TABLE, ["name"])
    assert capsys.readouterr().out == ""


def test_json_and_json_lines_have_all_fields(capsys: pytest.CaptureFixture[str]) -> None:
    render(ROWS, OutputFormat.JSON, ["name"])
    assert json.loads(capsys.readouterr().out) == ROWS
    render(ROWS, OutputFormat.JSONL, ["name"])
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ROWS


def test_json_without_rows_is_an_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    render([], OutputFormat.JSON)
    assert json.loads(capsys.readouterr().out) == []


def test_csv_can_be_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    render([{"name": 'with "quotes", commas\nand lines', "number": 7, "more": None, "tags": ["a"]}], OutputFormat.CSV)
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert rows == [["name", "number", "more", "tags"], ['with "quotes", commas\nand lines', "7", "", '["a"]']]


def test_json_lines_are_printed_as_the_rows_come(capsys: pytest.CaptureFixture[str]) -> None:
    def rows() -> Iterator[Row]:
        yield {"n": 1}
        assert capsys.readouterr().out == '{"n": 1}\n'
        yield {"n": 2}

    render(rows(), OutputFormat.JSONL)
    assert capsys.readouterr().out == '{"n": 2}\n'


def test_control_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    render([{"body": "\x1b]0;title\x07 red\n\x9b31m"}], OutputFormat.TABLE)
    assert capsys.readouterr().out.splitlines()[1] == r"\x1b]0;title\x07 red\n\x9b31m"


@pytest.mark.parametrize(("is_terminal", "longest"), [(True, 40), (False, 206)])
def test_a_table_is_truncated_only_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_terminal: bool, longest: int
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((40, 24)))
    render([{"name": "n", "text": "x" * 200}], OutputFormat.TABLE)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) == longest
    assert lines[1].endswith("…") is is_terminal


def test_a_wide_character_never_crosses_the_edge(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((6, 24)))
    render([{"c": "杭州杭州"}], OutputFormat.TABLE)
    assert capsys.readouterr().out.splitlines()[1] == "杭州…"


def test_a_table_without_truncation_is_complete(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((40, 24)))
    render([{"why": "x" * 200}], OutputFormat.TABLE, truncate=False)
    assert capsys.readouterr().out.splitlines()[1] == "x" * 200


def test_a_stream_prints_the_same_cells_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    with RowStream(OutputFormat.TABLE, dict.fromkeys(ROWS[0], 6)) as stream:
        for row in ROWS:
            stream.add(row)
    streamed = [line.split() for line in capsys.readouterr().out.splitlines()]
    render(ROWS, OutputFormat.TABLE)
    assert streamed == [line.split() for line in capsys.readouterr().out.splitlines()]


def test_a_stream_pads_to_minimum_widths(capsys: pytest.CaptureFixture[str]) -> None:
    with RowStream(OutputFormat.TABLE, {"city": 6, "queues": 8, "name": 0}) as stream:
        stream.add(ROWS[0])
    assert capsys.readouterr().out.splitlines() == ["city    queues    name", "杭州           4  orders"]


def test_csv_has_the_columns_of_the_first_row(capsys: pytest.CaptureFixture[str]) -> None:
    with RowStream(OutputFormat.CSV, {}) as stream:
        stream.add({"a": 1, "b": 2})
        stream.add({"b": 3})
    assert capsys.readouterr().out.splitlines() == ["a,b", "1,2", ",3"]


def test_combining_characters_take_no_cell(capsys: pytest.CaptureFixture[str]) -> None:
    render([{"name": "e\u0301", "n": "x"}, {"name": "ab", "n": "y"}], OutputFormat.TABLE, ["name", "n"])
    assert capsys.readouterr().out.splitlines()[1] == "e\u0301     x"
