from pathlib import Path

import click
import pytest

import ariane
from ariane.cli import bench
from ariane.cli.bench import source_tree
from ariane.cli.main import main


def test_the_comparison_is_found_beside_the_package_of_a_clone() -> None:
    assert (source_tree() / "bench" / "compare.py").is_file()


def test_an_installed_package_says_where_the_comparison_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ariane, "__file__", str(tmp_path / "site-packages" / "ariane" / "__init__.py"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(click.ClickException, match="clone it and run make bench"):
        source_tree()


def test_options_reach_the_comparison_and_its_status_comes_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "bench" / "compare.py"
    program.parent.mkdir()
    program.write_text("import sys\nsys.exit(40 + sys.argv[1:].index('--quick'))\n")
    monkeypatch.setattr(bench, "source_tree", lambda: tmp_path)
    assert main(["bench", "run", "--only", "pulls", "--quick"]) == 42
