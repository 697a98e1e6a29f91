"""The names on a simulated disk: those that readers see, those that are durable, and the changes between the two."""

import errno
import os
from pathlib import Path
from typing import NamedTuple, TypeVar

from ariane.testing.disk_pages import Content, Luck


class Directory:
    """Has nothing of its own: the names of all directories are in one table."""

    def after_process_crash(self) -> "Directory":
        return self

    def after_power_cut(self, _luck: Luck) -> "Directory":
        return self


Node = Content | Directory
Kind = TypeVar("Kind", Content, Directory)

_ROOT = Directory()


class _Change(NamedTuple):
    """Puts a node at a path or, without one, takes its name. A node has but one name, so a rename is one change."""

    node: Node
    path: Path | None
    directories: frozenset[Path]

    def apply(self, names: dict[Path, Node]) -> None:
        old = next((path for path, node in names.items() if node is self.node), None)
        if old is not None:
            del names[old]
        if self.path is not None:
            names[self.path] = self.node


class Names:
    """`/` and `.` are always there."""

    def __init__(self) -> None:
        self._current: dict[Path, Node] = {}
        self._durable: dict[Path, Node] = {}
        self._changes: list[_Change] = []

    def get(self, path: Path) -> Node | None:
        return _ROOT if path == path.parent else self._current.get(path)

    def find(self, path: Path, kind: type[Kind]) -> Kind:
        node = self.get(path)
        if node is None:
            raise os_error(errno.ENOENT)
        if not isinstance(node, kind):
            raise os_error(errno.EISDIR if kind is Content else errno.ENOTDIR)
        return node

    def below(self, directory: Path) -> list[str]:
        return sorted(path.name for path in self._current if path.parent == directory)

    def put(self, node: Node, path: Path | None, *directories: Path) -> None:
        """Names a node, or renames it, or removes it; `directories` are those whose names that changes."""
        change = _Change(node, path, frozenset(directories))
        change.apply(self._current)
        self._changes.append(change)

    def sync(self, directory: Path) -> None:
        """Makes the changes in a directory durable, with those in others that they build on (a rename across two)."""
        directories = {directory}
        settled: list[_Change] = []
        waiting: list[_Change] = []
        for change in reversed(self._changes):
            is_concerned = not directories.isdisjoint(change.directories)
            (settled if is_concerned else waiting).append(change)
            directories.update(change.directories if is_concerned else ())
        for change in reversed(settled):
            change.apply(self._durable)
        self._changes = waiting[::-1]

    def sync_all(self) -> None:
        for change in self._changes:
            change.apply(self._durable)
        self._changes = []

    def contents(self) -> list[Content]:
        """Of all files."""
        return [node for node in self._current.values() if isinstance(node, Content)]

    def block_bytes(self) -> int:
        return sum(content.block_bytes() for content in self.contents())

    def after_process_crash(self) -> "Names":
        nodes = {*self._current.values(), *self._durable.values(), *(change.node for change in self._changes)}
        twins = {node: node.after_process_crash() for node in nodes}
        found = Names()
        found._current = {path: twins[node] for path, node in self._current.items()}
        found._durable = {path: twins[node] for path, node in self._durable.items()}
        found._changes = [change._replace(node=twins[change.node]) for change in self._changes]
        return found

    def after_power_cut(self, names_luck: Luck, pages_luck: Luck) -> "Names":
        names = self._survivors(names_luck)
        found = Names()
        for path in sorted(names):  # parents first, and an order that does not hang on the history
            if isinstance(found.get(path.parent), Directory):
                found._current[path] = names[path].after_power_cut(pages_luck)
        found._durable = dict(found._current)
        return found

    def _survivors(self, luck: Luck) -> dict[Path, Node]:
        kept = [luck.keeps() for _ in self._changes]
        while True:
            names = dict(self._durable)
            forced = self._replay(kept, names)
            if forced is None:
                return names
            kept[forced] = True

    def _replay(self, kept: list[bool], names: dict[Path, Node]) -> int | None:
        """None when all is well. Nothing may be lost that nobody removed: so when a change puts a node where another
        still stands that had left before, the index of that other's change, which must be kept too."""
        for index, change in enumerate(self._changes):
            if kept[index]:
                occupant = names.get(change.path) if change.path is not None else None
                forced = self._undone_before(index, kept, occupant)
                if forced is not None:
                    return forced
                change.apply(names)
        return None

    def _undone_before(self, end: int, kept: list[bool], node: Node | None) -> int | None:
        changes = enumerate(self._changes[:end] if node is not None else ())
        return next((index for index, change in changes if change.node is node and not kept[index]), None)


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
