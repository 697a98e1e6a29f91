"""Generates the type stubs src/ariane/__init__.pyi and src/ariane/sync.pyi.

The first imports each public name from its module. The second is generated from the source of the asynchronous
classes, without `async`: a signature is written once, in the class. With --check it only reports whether both are up to
date.
"""

import ast
import builtins
import inspect
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import ariane
from ariane import sync
from ariane.client.sync import WRAPPERS, own_classes

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "ariane"

# Private names, which the stubs do not declare.
HOMES: dict[str, str] = vars(ariane)["_HOME"]
WRAPPED: set[str] = vars(sync)["_WRAPPED"]

HEAD = '"""Made by scripts/stubs.py{source}: change it there."""\n\n'
CONTEXT_MANAGER = """
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
"""
ITERATION = """
    def __iter__(self) -> Self: ...
"""
EXTRA_IMPORTS = {
    "Self": "typing",
    "TypeVar": "typing",
    "TracebackType": "types",
    "Future": "concurrent.futures",
    "Iterator": "collections.abc",
}


def names_stub() -> str:
    lines = [f"from {module} import {name} as {name}" for name, module in sorted(HOMES.items(), key=_by_home)]
    return "\n".join([HEAD.format(source=" from __init__.py"), *lines, "__version__: str", _all()])


def _by_home(item: tuple[str, str]) -> tuple[str, str]:
    return item[1], item[0]


def _all() -> str:
    return f"__all__ = {ariane.__all__!r}\n"


# --- the synchronous API --------------------------------------------------------------------------------------------


def sync_stub() -> str:
    for name in sync.__all__:
        getattr(sync, name)  # makes the wrapper classes
    classes = list(WRAPPERS)
    imports = Imports({kind.__name__ for kind in classes})
    bodies = [class_stub(kind, imports) for kind in classes]
    values = [name for name in sync.__all__ if name not in WRAPPED]
    lines = [f"from ariane import {name} as {name}" for name in values]
    head = [HEAD.format(source=" from the asynchronous classes"), *lines, *imports.lines(), *imports.variables()]
    return "\n".join([*head, *bodies, _all()])


def class_stub(kind: type, imports: "Imports") -> str:
    wrapper = WRAPPERS[kind]
    base = wrapper.__bases__[0].__name__
    head = f"class {kind.__name__}({base}):" if wrapper.__bases__[0] in WRAPPERS.values() else f"class {kind.__name__}:"
    members: dict[str, str] = {}
    for own_class in own_classes(kind):
        members |= dict(Members(own_class, imports))
    if "__enter__" in members:
        imports.add_extra("Self", "TracebackType")
    return "\n".join([f"\n{head}", *_docstring(kind), *(members.values() or ["    ..."])])


def _docstring(documented: Any) -> list[str]:
    text = vars(documented).get("__doc__") if isinstance(documented, type) else ast.get_docstring(documented)
    if not text:
        return []
    text = inspect.cleandoc(text).replace("async with", "with").replace("async for", "for")
    quoted = f'"""{text}\n"""' if "\n" in text else f'"""{text}"""'
    return [f"    {line}" if line else "" for line in quoted.splitlines()]


class Members:
    """The public members of one class, by name, as stubs."""

    def __init__(self, kind: type, imports: "Imports") -> None:
        self._kind = kind
        self._imports = imports
        self._tree = class_tree(kind)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for node in self._tree.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                if not node.target.id.startswith("_"):
                    yield node.target.id, f"    {node.target.id}: {self._type(node.annotation)}"
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, str]]:
        if node.name == "__init__":
            yield from self._attributes(node)
        if node.name == "__aenter__":
            yield "__enter__", CONTEXT_MANAGER
        elif node.name == "__anext__":
            yield "__iter__", ITERATION
            yield "__next__", self._stub(node, "__next__")
        elif not node.name.startswith("_") or (node.name == "__init__" and hasattr(self._kind, "__aenter__")):
            yield node.name, self._stub(node, node.name)

    def _stub(self, node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> str:
        decorators = "".join(f"    @{ast.unparse(decorator)}\n" for decorator in node.decorator_list)
        returns = "None" if node.returns is None else self._result(node)
        text = f"{decorators}    def {name}({self._arguments(node.args)}) -> {returns}:"
        body = [f"    {line}" if line else "" for line in _docstring(node)]
        return "\n".join([text, *body]) if body else f"{text} ..."

    def _arguments(self, arguments: ast.arguments) -> str:
        for argument in [*arguments.args, *arguments.kwonlyargs, arguments.kwarg]:
            if argument is not None and argument.annotation is not None:
                argument.annotation = ast.parse(self._type(argument.annotation), mode="eval").body
        arguments.defaults = [_default(value) for value in arguments.defaults]
        arguments.kw_defaults = [value and _default(value) for value in arguments.kw_defaults]
        return ast.unparse(arguments)

    def _result(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
        assert node.returns is not None
        returns = _parsed(node.returns)
        text = ast.unparse(returns)
        if text.startswith(("AsyncIterator[", "AsyncGenerator[")):
            assert isinstance(returns, ast.Subscript)
            self._imports.add_extra("Iterator")
            yielded = returns.slice.elts[0] if isinstance(returns.slice, ast.Tuple) else returns.slice
            return f"Iterator[{self._type(yielded)}]"
        if text.startswith("asyncio.Future["):
            assert isinstance(returns, ast.Subscript)
            self._imports.add_extra("Future")
            return f"Future[{self._type(returns.slice)}]"
        return self._type(returns)

    def _attributes(self, init: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, str]]:
        """Public attributes that `__init__` sets, if their type can be seen in the source."""
        types = {argument.arg: argument.annotation for argument in [*init.args.args, *init.args.kwonlyargs]}
        for node in init.body:
            match node:
                case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Name(id=source)) if name[0] != "_":
                    annotation = types.get(source)
                case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Call(func=ast.Name() as called)):
                    annotation = self._return_type(called) if name[0] != "_" else None
                case _:
                    continue
            if annotation is not None:
                yield name, f"    {name}: {self._type(annotation)}"

    def _return_type(self, name: ast.Name) -> ast.expr | None:
        """The type that a class or a function returns."""
        function = vars(sys.modules[self._kind.__module__])[name.id]
        if isinstance(function, type):
            return name
        returns = inspect.signature(function).return_annotation
        return ast.Name(id=returns.__name__) if isinstance(returns, type) else None

    def _type(self, annotation: ast.expr) -> str:
        parsed = _parsed(annotation)
        for node in ast.walk(parsed):
            if isinstance(node, ast.Name):
                self._imports.add(node.id, self._kind)
        return ast.unparse(parsed)


def _parsed(annotation: ast.expr) -> ast.expr:
    """Also parses annotations in quotes."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return ast.parse(annotation.value, mode="eval").body
    return annotation


def _default(value: ast.expr) -> ast.expr:
    """Literals are shown; any other default is `...`."""
    return value if isinstance(value, ast.Constant) else ast.Constant(value=...)


class Imports:
    """The imports of the stub, for the names in annotations. `local` names are classes of the stub itself."""

    def __init__(self, local: set[str]) -> None:
        self._local = local
        self._homes: dict[str, str] = {}
        self._variables: dict[str, str] = {}

    def add(self, name: str, user: type) -> None:
        if name in self._local or hasattr(builtins, name):
            return
        home = origins(user.__module__)[name]
        if isinstance(vars(sys.modules[home])[name], TypeVar):
            self._add_variable(name, home, user)
            return
        if HOMES.get(name) == home:
            return  # the stub exports it anyway
        if self._homes.setdefault(name, home) != home:
            raise SystemExit(f"{name} is imported from {self._homes[name]} and from {home}: rename one of them")

    def _add_variable(self, name: str, home: str, user: type) -> None:
        """A type variable is declared anew: its bound may be a class that has a wrapper."""
        declared = WithoutAliases(home).visit(ast.parse(ast.unparse(assigned(home)[name]), mode="eval").body)
        self.add_extra("TypeVar")
        for node in ast.walk(declared):
            if isinstance(node, ast.Name) and node.id != "TypeVar":
                self.add(node.id, user)
        self._variables[name] = ast.unparse(declared)

    def variables(self) -> list[str]:
        return [f"{name} = {text}" for name, text in sorted(self._variables.items())]

    def add_extra(self, *names: str) -> None:
        self._homes.update({name: EXTRA_IMPORTS[name] for name in names})

    def lines(self) -> list[str]:
        return [f"from {home} import {name}" for name, home in sorted(self._homes.items(), key=_by_home)]


class WithoutAliases(ast.NodeTransformer):
    """Replaces a module's own type aliases by their values: two modules may use one name for different types."""

    def __init__(self, module: str) -> None:
        self._aliases = assigned(module)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._aliases.get(node.id, node)


@cache
def assigned(module: str) -> dict[str, ast.expr]:
    return {
        node.targets[0].id: node.value
        for node in module_tree(module).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }


@cache
def origins(module: str) -> dict[str, str]:
    """The module that each name of `module` is imported from, or `module` itself."""
    tree = module_tree(module)
    origins_by_name: dict[str, str] = {}
    for node in tree.body:
        match node:
            case ast.ImportFrom(module=str(home), names=names):
                origins_by_name |= {alias.asname or alias.name: home for alias in names}
            case ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                origins_by_name[name] = module
    return origins_by_name


@cache
def module_tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))


def class_tree(kind: type) -> ast.ClassDef:
    return next(
        node
        for node in module_tree(kind.__module__).body
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    )


# --- output --------------------------------------------------------------------------------------------------------


def formatted(text: str, path: Path) -> str:
    for command in (["check", "--fix-only", "--select", "I,RUF022", "-q"], ["format", "-q"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(path), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


def main() -> int:
    stubs = {PACKAGE / "__init__.pyi": names_stub(), PACKAGE / "sync.pyi": sync_stub()}
    fresh = {path: formatted(text, path) for path, text in stubs.items()}
    if "--check" not in sys.argv[1:]:
        for path, text in fresh.items():
            path.write_text(text, encoding="utf-8")
        return 0
    stale = [path.name for path, text in fresh.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    print(f"stale: {', '.join(stale)}: run python scripts/stubs.py" if stale else "the stubs are up to date")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
