"""Compares the top-level definitions of two revisions, wherever they stand: what moved unchanged, and what did not.

    python scripts/fingerprint.py OLD [NEW]        NEW is the working tree if it is left out

Each function, class and constant is hashed as `ast.dump` writes it, without docstrings, positions and the paths of
modules. A regrouping is behaviour-preserving if every hash of OLD is in NEW exactly as often; what differs is listed.
"""

import ast
import io
import re
import subprocess
import sys
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

_TREES = ("src/ariane", "tests/simulation/simulated_disk.py", "tests/simulation/delivery_history.py")
_MODULE = re.compile(r"ariane(\.[a-z_0-9]+)+")


def sources(revision: str | None) -> Iterator[tuple[str, str]]:
    """Path and text of each module of the product, and of the simulators that once were a part of it."""
    if revision is None:
        for tree in _TREES:
            for path in [Path(tree)] if tree.endswith(".py") else sorted(Path(tree).rglob("*.py")):
                yield str(path), path.read_text(encoding="utf-8")
        return
    archive = subprocess.run(["git", "archive", revision, "src", "tests"], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            if member.name.startswith(_TREES) and member.name.endswith(".py"):
                file = tar.extractfile(member)
                assert file is not None
                yield member.name, file.read().decode()


def definitions(text: str) -> Iterator[tuple[str, str]]:
    """Name and normalised dump of each top-level definition; imports, docstrings and loggers are not compared."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import | ast.ImportFrom) or _is_docstring(node) or _is_type_checking(node):
            continue
        for inner in ast.walk(node):
            _normalise(inner)
        name = _name(node)
        if name not in ("log", "__all__"):
            yield name, ast.dump(node)


def _name(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name
    names = [target.id for target in ast.walk(node) if isinstance(target, ast.Name)]
    return names[0] if names else ast.unparse(node)[:60]


def _normalise(node: ast.AST) -> None:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        node.body = [child for child in node.body if not _is_docstring(child)] or node.body
    if isinstance(node, ast.ImportFrom) and node.module:
        node.module = _MODULE.sub("ariane", node.module)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node.value = _MODULE.sub("ariane", node.value)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def fingerprints(revision: str | None) -> tuple[Counter[str], dict[str, list[str]]]:
    counts: Counter[str] = Counter()
    homes = defaultdict(list)
    for path, text in sources(revision):
        for name, dump in definitions(text):
            counts[dump] += 1
            homes[dump].append(f"{path}: {name}")
    return counts, homes


def main(old: str, new: str | None = None) -> int:
    """Prints what only one side has; the status is 1 if anything is."""
    before, homes_before = fingerprints(old)
    after, homes_after = fingerprints(new)
    gone, come = before - after, after - before
    for sign, missing, homes in (("-", gone, homes_before), ("+", come, homes_after)):
        for home in sorted(homes[dump][0] for dump in missing):
            print(sign, home)
    print(f"{before.total()} definitions before, {after.total()} after; {gone.total()} gone, {come.total()} new")
    return 1 if gone or come else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
