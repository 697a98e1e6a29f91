"""References inside a fastjson text: `{"$ref":"$.path"}` stands for an object that was written out earlier.

fastjson writes an object in full the first time and a path from the root every later time:

    {"table":{"a":{"perm":6},"b":{"$ref":"$.table.a"}}}        means     {"table":{"a":{"perm":6},"b":{"perm":6}}}

    $            the root                   .name    a member; newer releases put a backslash before each sign in a name
    [2]          an item of a list, or the member with the integer key 2

The first time always comes first, so a path is followed at the moment it is read: what it names is either whole by then
or still open, and an open target would make a circle. Nothing can loop. What remains to be feared is growth: a few
dozen references to references can stand for more objects than memory holds, hence the two limits.
"""

import re
from typing import Final

REFERENCE: Final = "$ref"
EXPANSION_MAX: Final = 1_000_000  # values that all references of one text may stand for; a big cluster needs thousands

_STEP = re.compile(r"\.((?:[^.\[\\]|\\.)++)|\[([0-9]{1,9})\]", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def path_of(value: object) -> str | None:
    """The path in `value` when it is a reference, else None."""
    if isinstance(value, dict) and len(value) == 1:
        path = value.get(REFERENCE)
        return path if isinstance(path, str) else None
    return None


def follow(root: object, path: str) -> object:
    """What `path` names under `root`; LookupError when it names nothing."""
    if not path.startswith("$"):
        raise LookupError(path)
    value, at = root, 1
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            raise LookupError(path)
        value, at = _child(value, step[1], step[2]), step.end()
    return value


def _child(value: object, name: str | None, index: str | None) -> object:
    if isinstance(value, dict):
        if name is not None:
            return value[_ESCAPED.sub(r"\1", name)]
        return value[int(index)] if index and int(index) in value else value[index]
    if isinstance(value, list) and index is not None:
        return value[int(index)]
    raise LookupError(name or index)


class Expansion:
    """Counts what the references of one text stand for, so that a small text cannot unfold into a huge or deep one."""

    __slots__ = ("depth_max", "left")

    def __init__(self, depth_max: int) -> None:
        self.depth_max = depth_max
        self.left = EXPANSION_MAX

    def fits(self, target: object, depth: int) -> bool:
        """Whether `target` may stand at `depth`; its size is taken from what is left for this text."""
        todo = [(target, depth)]
        while todo:
            value, depth = todo.pop()
            if not isinstance(value, dict | list):
                continue
            self.left -= 1 + len(value)
            if self.left < 0 or depth > self.depth_max:
                return False
            members = value.values() if isinstance(value, dict) else value
            todo.extend((member, depth + 1) for member in members)
        return True
