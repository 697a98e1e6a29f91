"""The benches of a broker without sockets run: they use the broker's own parts, which change."""

import sys

import pytest

from bench import pull_path, send_path, transaction_path


@pytest.mark.parametrize("bench", [send_path, pull_path, transaction_path])
def test_a_short_run_prints_figures(
    bench: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "ROUNDS", 1)
    monkeypatch.setattr(sys, "argv", ["bench"])
    bench.main()  # type: ignore[attr-defined]
    assert " us " in capsys.readouterr().out
