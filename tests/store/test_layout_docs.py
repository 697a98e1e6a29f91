"""docs/data_files.md draws the layouts as the modules do that read and write them."""

import importlib
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "data_files.md").read_text(encoding="utf-8")
MODULES = (
    "ariane.wire.record.layout",
    "ariane.wire.sys_flag",
    "ariane.wire.message_id",
    "ariane.store.consume_queue.entry",
    "ariane.store.consume_queue.saved_state",
    "ariane.store.index.entries",
    "ariane.store.checkpoint",
    "ariane.store.commit_log.checksums",
)


def drawings(text: str) -> Iterator[str]:
    """The indented parts of a docstring."""
    lines: list[str] = []
    for line in [*text.splitlines(), "end"]:
        if line.startswith("    ") or (lines and not line.strip()):
            lines.append(line)
        elif lines:
            yield textwrap.dedent("\n".join(lines)).strip("\n")
            lines = []


@pytest.mark.parametrize("name", MODULES)
def test_the_page_has_every_drawing_of_the_module(name: str) -> None:
    found = list(drawings(importlib.import_module(name).__doc__ or ""))
    assert found
    for drawing in found:
        assert f"```text\n{drawing}\n```" in PAGE, f"copy this drawing of {name} to docs/data_files.md:\n{drawing}"


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "consumequeue_ext", "index", "config", "checkpoint",
                                  "abort", "lock", "quarantine", "commitlog_sums"])  # fmt: skip
def test_the_page_has_every_name_under_the_root(name: str) -> None:
    assert f"── {name}" in PAGE
