"""The shape of the source tree: width of packages, tests that mirror it, the spine, and pages that name real files."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ariane"
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")

ENTRIES_MAX = 18
"""About 16, with room for one or two: a reader scans so many names at a glance."""

SPINE_LINES_MAX = 6000

WIDE = {".": "has the rooms", "cli": "has an entry for each command"}


def packages() -> list[Path]:
    return sorted({path.parent for path in SOURCE.rglob("*.py")})


def entries(package: Path) -> list[str]:
    modules = [path.stem for path in package.glob("*.py") if path.stem not in ("__init__", "__main__")]
    return sorted([*modules, *(path.parent.name for path in package.glob("*/__init__.py"))])


@pytest.mark.parametrize("package", packages(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_package_has_few_entries(package: Path) -> None:
    if str(package.relative_to(SOURCE)) not in WIDE:
        assert len(entries(package)) <= ENTRIES_MAX


@pytest.mark.parametrize("package", packages(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_package_has_its_tests_where_a_reader_looks_for_them(package: Path) -> None:
    assert list((ROOT / "tests" / package.relative_to(SOURCE)).glob("test_*.py"))


@pytest.mark.parametrize("package", packages(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_test_in_a_package_is_named_after_a_module_of_it(package: Path) -> None:
    relative = package.relative_to(SOURCE)
    if len(relative.parts) < 2:  # a room, or the root: its directory also has tests of the room as a whole
        return
    names = [*entries(package), package.name]
    for path in (ROOT / "tests" / relative).glob("test_*.py"):
        subject = path.stem.removeprefix("test_")
        assert [name for name in names if subject == name or subject.startswith(f"{name}_")], path


def test_every_module_says_what_it_is() -> None:
    silent = [path for path in SOURCE.rglob("*.py") if not ast.get_docstring(ast.parse(path.read_text("utf-8")))]
    assert not silent


def test_the_spine_is_short() -> None:
    section = ARCHITECTURE.split("## The spine")[1].split("\n## ")[0]
    files = re.findall(r"^\| `([\w/]+\.py)` \|", section, re.MULTILINE)
    assert len(files) >= 20
    lines = sum(len((SOURCE / name).read_text(encoding="utf-8").splitlines()) for name in files)
    assert lines <= SPINE_LINES_MAX, f"the spine has {lines} lines"


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/glossary.md"])
def test_every_file_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[\w-]+/)+[\w.-]*)`", text))
    places = (SOURCE, ROOT, ROOT / "src")
    planned = {"replication/", "grpc/", "broker/pop/", "console/"}
    generic = {name for name in named if "<" in name or name.startswith(("commitlog_sums", "quarantine"))}
    missing = [name for name in named - planned - generic if not any((place / name).exists() for place in places)]
    assert not missing
    links = re.findall(r"\]\(([\w/.-]+?)(?:#[\w-]+)?\)", text)
    assert not [link for link in links if not ((ROOT / page).parent / link).exists()]
