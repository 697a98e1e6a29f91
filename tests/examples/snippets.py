"""Runs the Python blocks of a page in order, with `await` at the top level."""

import ast
import contextlib
import inspect
import io
import re
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).parents[2]
ADDRESS = "127.0.0.1:9876"
_BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: str) -> list[tuple[str, str]]:
    """Each Python block, with the output below it."""
    found: list[tuple[str, str]] = []
    for kind, text in _BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        if kind == "python":
            found.append((text, ""))
        else:
            found[-1] = (found[-1][0], text)
    return found


async def run_block(text: str, nameserver: str, names: dict[str, Any]) -> str:
    """Returns what the block prints. `names` are shared by the blocks of a page."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        outcome = eval(_compiled(text.replace(ADDRESS, nameserver)), names)
        if inspect.isawaitable(outcome):
            await outcome
    return printed.getvalue()


def _compiled(text: str) -> CodeType:
    code: CodeType = compile(text, "<page>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return code
