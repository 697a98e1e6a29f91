"""Generated pages are up to date, and pages name files that exist."""

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ariane.broker.settings import BrokerSettings
from ariane.broker.settings.rocketmq_keys import UNSUPPORTED as UNSUPPORTED_BY_BROKER
from ariane.nameserver.settings import UNSUPPORTED, NameserverSettings
from ariane.settings import describe

ROOT = Path(__file__).parents[1]
_SOURCE = re.compile(r"`((?:[a-z_0-9]+/)+(?:[a-z_0-9*]+\.py))`")


def test_the_page_of_settings_is_up_to_date() -> None:
    script = ROOT / "scripts" / "settings_docs.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_of_compatibility_ends_with_the_differences_that_are_on_purpose() -> None:
    differences = (ROOT / "interop" / "differences.md").read_text(encoding="utf-8")
    assert (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8").endswith("\n\n" + differences)


@pytest.mark.parametrize(
    ("settings", "unsupported"), [(NameserverSettings, UNSUPPORTED), (BrokerSettings, UNSUPPORTED_BY_BROKER)]
)
def test_the_page_of_settings_has_every_setting_and_every_key(settings: Any, unsupported: dict[str, str]) -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    names = [declared.name.rpartition(".")[2] for declared in describe(settings)]
    keys = [key.name for declared in describe(settings) for key in declared.keys]
    for word in (*names, *keys, *unsupported):
        assert f"`{word}`" in page, word


def _missing_sources(pages: Iterable[Path]) -> list[str]:
    """Files and patterns of files that the pages name, from the package on or from the root, and that are not there."""
    named = {name for page in pages for name in _SOURCE.findall(page.read_text(encoding="utf-8"))}
    assert len(named) > 10
    return [
        name for name in sorted(named) if not any(any((ROOT / root).glob(name)) for root in ("", "src", "src/ariane"))
    ]


def test_every_file_that_the_architecture_names_exists() -> None:
    assert not _missing_sources([ROOT / "ARCHITECTURE.md"])


def test_every_file_that_a_lesson_names_exists() -> None:
    assert not _missing_sources((ROOT / "docs" / "internals").rglob("*.md"))


def test_every_file_that_a_guide_or_a_decision_names_exists() -> None:
    assert not _missing_sources([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "decisions").glob("*.md")])


def test_a_lesson_names_the_same_files_in_each_language() -> None:
    for page in (ROOT / "docs" / "internals").glob("[0-9]*.md"):
        english, chinese = (
            set(_SOURCE.findall(text.read_text(encoding="utf-8"))) for text in (page, page.parent / "zh" / page.name)
        )
        assert english == chinese, page.name


def test_the_architecture_has_every_room() -> None:
    drawn = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rooms = [path.parent.name for path in (ROOT / "src" / "ariane").glob("*/__init__.py")]
    assert len(rooms) > 10
    assert not [room for room in rooms if not re.search(rf"^ *{room}/", drawn, re.MULTILINE)]


def test_every_decision_is_listed() -> None:
    listed = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    pages = [page.name for page in (ROOT / "docs" / "decisions").glob("*.md") if page.name != "README.md"]
    assert not [name for name in pages if f"[{name}]({name})" not in listed]
