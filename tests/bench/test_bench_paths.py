"""The benches of a broker without sockets run: they use the broker's own parts, which change."""

import sys

import pytest

from bench import client_headers, pull_path, send_path, timing, transaction_path


@pytest.mark.parametrize("bench", [send_path, pull_path, transaction_path])
def test_a_short_run_prints_figures(
    bench: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "ROUNDS", 1)
    monkeypatch.setattr(sys, "argv", ["bench"])
    bench.main()  # type: ignore[attr-defined]
    assert " us " in capsys.readouterr().out


def test_the_headers_of_our_client_are_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(timing, "ROUNDS", 1)
    client_headers.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[1:]] == [*dict(client_headers.rows()), "both"]
