"""The public names of `ariane` and `ariane.sync`, and their type stubs."""

import re
import subprocess
import sys
from pathlib import Path

import ariane
import ariane.sync
from ariane.client.sync import WRAPPERS

ROOT = Path(__file__).parents[1]


def documented() -> set[str]:
    """The names in the table of the package's docstring."""
    rows = re.findall(r"^    (?:\w+ {2,}| {12})(.+)$", ariane.__doc__ or "", re.MULTILINE)
    return {name for row in rows for name in row.split()}


def test_the_public_names_are_those_that_are_documented() -> None:
    assert documented() == set(ariane.__all__)
    assert len(ariane.__all__) == len(set(ariane.__all__))


def test_every_public_name_exists_in_both_modules() -> None:
    for name in ariane.__all__:
        assert getattr(ariane, name) is not None
        assert getattr(ariane.sync, name) is not None
    assert ariane.sync.__all__ == ariane.__all__
    assert set(ariane.__all__) <= set(dir(ariane)) & set(dir(ariane.sync))


def test_what_can_be_opened_has_a_sync_wrapper_and_nothing_else_differs() -> None:
    for name in ariane.__all__:
        value = getattr(ariane, name)
        is_opened = isinstance(value, type) and hasattr(value, "__aenter__")
        assert (getattr(ariane.sync, name) is value) == (not is_opened and name != "PullContext")


def test_an_unknown_name_is_an_attribute_error() -> None:
    for module in (ariane, ariane.sync):
        assert not hasattr(module, "Consumer")


def test_importing_the_package_imports_no_submodule() -> None:
    program = "import sys, ariane; print([name for name in sys.modules if name.startswith('ariane')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "['ariane']"


def test_the_stubs_are_up_to_date() -> None:
    script = ROOT / "scripts" / "stubs.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_stub_has_every_member_of_every_sync_wrapper() -> None:
    for name in ariane.sync.__all__:
        getattr(ariane.sync, name)
    text = (ROOT / "src" / "ariane" / "sync.pyi").read_text(encoding="utf-8")
    for wrapper in WRAPPERS.values():
        (body,) = re.findall(rf"^class {wrapper.__name__}\b.*?(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
        members = [name for name in vars(wrapper) if not name.startswith("_")]
        assert [name for name in members if f"def {name}(" not in body] == []
