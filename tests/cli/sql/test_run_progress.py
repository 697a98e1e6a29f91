"""The bar for queries that take a while."""

import pytest

from ariane.cli.sql.run import ScanBar
from ariane.sql.tables import Progress


def test_a_terminal_shows_the_progress_of_the_scans(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    progress = Progress(name="orders", queues=2, total=10, left_out=2)
    with ScanBar(late_s=0) as bar:
        bar.watch(progress)
        progress.begin().scanned = 5
        assert (bar.scanned, bar.total) == (5, 8)
        assert bar.shown.wait(60)


def test_a_script_sees_no_progress() -> None:
    with ScanBar(late_s=0) as bar:
        pass
    assert not bar.shown.is_set()
